"""
What must be the same everywhere: device configs, versions, clocks.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from hamicommon.pod.containers import moment
from kubectl_hami.answer.doctor.readings import Answer, bad, doubtful, good, minor_of, named, readings, unknown
from kubectl_hami.answer.shares import is_ready
from kubectl_hami.values.diagnosis import Examined

_VERSION: Final = "app.kubernetes.io/version"
_AHEAD: Final = timedelta(seconds=5)
_BEHIND: Final = timedelta(seconds=60)
"""A kubelet renews its Lease every 10 s, and is lost after 40."""
_OLDEST_MINOR: Final = 31


def device_configs(examined: Examined) -> Answer:
    """Check that all services use the same device config, and that none refuses a newer one."""
    refused = [service.name for service, _, value in readings(examined.services, "hami_device_config_refused") if value]
    if refused:
        fix = f"the log of {refused[0]} names each error; until it is mended the previous config stays in use"
        return bad(f"it has errors, say {named(refused)}", fix)
    hashes = defaultdict(list)
    for service, labels, _ in readings(examined.services, "hami_device_config_info"):
        hashes[labels.get("hash", "")].append(service.name)
    if not hashes:
        return unknown(
            "no service says which device config it uses", "the check `services` says which of them do not run"
        )
    if len(hashes) > 1:
        odd = min(hashes.values(), key=len)
        fix = f"wait a minute for the kubelet to update the file, then restart {odd[0]}"
        return doubtful(f"{len(hashes)} different ones are in use, the rarest by {named(odd)}", fix)
    return good(f"the same one is used by {sum(map(len, hashes.values()))} services")


def versions(examined: Examined) -> Answer:
    """Check that the services have one version, and that this Kubernetes is new enough for them."""
    minor = minor_of(str(examined.version.get("minor") or ""))
    if minor is not None and minor < _OLDEST_MINOR:
        fix = f"upgrade Kubernetes to 1.{_OLDEST_MINOR}, or install only device plugin and monitor"
        return bad(f"this is Kubernetes 1.{minor}: our scheduler and webhook need 1.{_OLDEST_MINOR}", fix)
    found = defaultdict(list)
    for service in examined.services:
        labels = (service.pod.get("metadata") or {}).get("labels") or {}
        found[str(labels.get(_VERSION) or "")].append(service.name)
    found.pop("", None)
    if not found:
        return unknown(f"no Pod of a service has the label {_VERSION}", "install the services with their chart")
    if len(found) > 1:
        parts = "; ".join(f"{version}: {named(pods)}" for version, pods in sorted(found.items()))
        return doubtful(f"services have different versions: {parts}", "complete the upgrade, or roll it back")
    [version] = found
    return good(f"all services have version {version}, on Kubernetes {examined.version.get('gitVersion', '?')}")


def clocks(examined: Examined) -> Answer:
    """Check that the clocks of the Nodes and of this machine agree: expiries and waits depend on them."""
    now = examined.leases_read_at or examined.cluster.taken_at
    stopped = {str((node.get("metadata") or {}).get("name")) for node in examined.cluster.nodes if not is_ready(node)}
    ages = {}
    for lease in examined.node_leases:
        name, renewed = (
            str((lease.get("metadata") or {}).get("name")),
            moment((lease.get("spec") or {}).get("renewTime")),
        )
        if renewed is not None and name not in stopped:
            ages[name] = now - renewed
    if not ages:
        fix = "ask for list on leases in namespace kube-node-lease"
        return unknown("no Lease of a kubelet that runs can be read", fix)
    ahead = sorted(node for node, age in ages.items() if age < -_AHEAD)
    behind = sorted(node for node, age in ages.items() if age > _BEHIND)
    wrong: Sequence[str] = ahead or behind
    if len(wrong) == len(ages) > 1:
        return doubtful("this machine's clock differs from those of all Nodes", "synchronise it by NTP")
    if wrong:
        what = "ahead of this machine's" if ahead else "behind this machine's, or their kubelets do not run"
        return doubtful(f"the clocks of {named(wrong)} are {what}", "synchronise the Nodes by NTP")
    return good(f"the clocks of {len(ages)} Nodes agree with this machine's")
