"""
What each Node with devices must have.
"""

from datetime import timedelta
from typing import Final

from hamicommon.dra.names import DRA, node_kind
from hamicommon.pod.containers import moment
from hamicommon.vendors.nvidia import KEY as NVIDIA
from hamicommon.wire import keys
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.node_lock import decode_node_lock
from hamicommon.wire.quantity import whole
from kubectl_hami.answer.device_config import device_config
from kubectl_hami.answer.doctor.readings import (
    Answer,
    answered,
    bad,
    doubtful,
    good,
    named,
    of,
    readings,
    unknown,
)
from kubectl_hami.answer.shares import name_of
from kubectl_hami.answer.state import state_of
from kubectl_hami.values.diagnosis import DEVICE_PLUGIN, MONITOR, Examined

_NODES_FIX: Final = "ask for get and list on nodes"
_LOCK_AGE: Final = timedelta(minutes=5)
"""After this time a scheduler ignores a lock."""


def plugins(examined: Examined) -> Answer:
    """Check that each Node with one of device plugin and monitor has the other, and offers devices."""
    if not examined.cluster.nodes:
        return unknown("no Node can be read", _NODES_FIX)
    plugged = {service.node for service in of(examined, DEVICE_PLUGIN)}
    measured = {service.node for service in of(examined, MONITOR)}
    if not plugged:
        return bad("no device plugin runs on any Node", "label Nodes as the chart's nodeSelector says")
    without = sorted(plugged ^ measured)
    if without:
        part = "monitor" if without[0] in plugged else "device plugin"
        fix = f"kubectl -n NAMESPACE get pods -o wide shows its Pods; {without[0]} lacks the {part}"
        return doubtful(f"only one of device plugin and monitor runs on {named(without)}", fix)
    offering = {
        node.name for node in state_of(examined.cluster).nodes if any(device.replicas for device in node.devices)
    }
    empty = sorted(plugged - offering)
    if empty:
        fix = f"the log of the device plugin on {empty[0]} says why"
        return bad(f"the device plugin runs and no device is offered on {named(empty)}", fix)
    return good(f"{len(plugged)} Nodes have a device plugin, a monitor and devices")


def inventories(examined: Examined) -> Answer:
    """
    Check that the kubelet of each Node with an inventory offers devices: a plugin that stops leaves it behind.

    The check `claims` judges Nodes that give NVIDIA's devices by ResourceClaims.
    """
    config = device_config(examined.config_maps)
    if config is None:
        fix = "ask for list on configmaps in the namespace of the services"
        return unknown("no device config can be read beside the scheduler, which names the resources", fix)
    every = [vendor for vendor in config.vendors() if vendor.register_key and vendor.resource_names]
    listing, without = 0, []
    for node in examined.cluster.nodes:
        metadata, allocatable = node.get("metadata") or {}, (node.get("status") or {}).get("allocatable") or {}
        annotations = metadata.get("annotations") or {}
        vendors = [vendor for vendor in every if vendor.key != NVIDIA or node_kind(node) != DRA]
        counts = [v.resource_names[0] for v in vendors if annotations.get(v.register_key, "[]") not in {"", "[]"}]
        listing += bool(counts)
        if any((whole(allocatable.get(count, "0")) or 0) <= 0 for count in counts):
            without.append(str(metadata.get("name")))
    if without:
        fix = f"start the device plugin on {without[0]}, or remove its annotation; no Pod gets a device there"
        what = f"devices are listed that no kubelet offers, so no plugin runs, on {named(sorted(without))}"
        return bad(what, fix)
    if not listing and DRA in map(node_kind, examined.cluster.nodes):
        return good("all Nodes with devices give them by ResourceClaims")
    if not listing:
        return unknown(
            "no Node lists a device", "start the device plugin where devices are; its log says what it finds"
        )
    return good(f"the kubelets offer the devices of {listing} Nodes")


def drivers(examined: Examined) -> Answer:
    """Check that the driver answers on each Node."""
    found = readings(of(examined, DEVICE_PLUGIN), "hami_device_plugin_driver_available")
    without = sorted(service.node for service, _, value in found if not value)
    if without:
        fix = f"run nvidia-smi on {without[0]}; docs/troubleshooting.md has the causes"
        return bad(f"the driver does not answer on {named(without)}", fix)
    return answered(examined, DEVICE_PLUGIN, good(f"the driver answers on {len(found)} Nodes"))


def devices(examined: Examined) -> Answer:
    """Check that all devices are healthy, and still offered where shares are held."""
    if not examined.cluster.nodes:
        return unknown("no Node can be read", _NODES_FIX)
    every = [(node.name, device) for node in state_of(examined.cluster).nodes for device in node.devices]
    gone = [f"{device.id} on {node}" for node, device in every if not device.replicas]
    ill = [f"{device.id} on {node}" for node, device in every if device.replicas and not device.is_healthy]
    if gone:
        return bad(f"shares are held on devices that are no longer offered: {named(gone)}", "delete their Pods")
    if ill:
        fix = f"annotation {keys.DEVICE_FAULTS} of the Node names the fault; docs/when-a-card-fails.md says what to do"
        return bad(f"unhealthy: {named(ill)}", fix)
    over = [f"{device.id} on {node}" for node, device in every if device.granted_memory_mib > device.memory_mib]
    if over:
        return bad(f"more memory is granted than offered on {named(over)}", "report it with `kubectl hami bundle`")
    if not every:
        return unknown(
            "no Node offers a device", "start the device plugin where devices are; its log says what it finds"
        )
    return good(f"{len(every)} devices are healthy")


def cdi(examined: Examined) -> Answer:
    """Check that the runtime of each Node applies what CDI says."""
    found = readings(of(examined, DEVICE_PLUGIN), "hami_device_plugin_cdi_edits_total")
    missing = sorted({service.node for service, labels, value in found if labels.get("result") == "missing" and value})
    if missing:
        fix = "enable CDI in the container runtime's configuration, and restart the runtime"
        return bad(f"containers started without their CDI edits on {named(missing)}", fix)
    found = readings(of(examined, DEVICE_PLUGIN), "hami_device_plugin_allocation_mode")
    modes = {service.node: labels.get("mode") for service, labels, value in found if value}
    locked = sorted(node for node, mode in modes.items() if mode == "lock")
    if locked:
        fix = "enable CDI in the container runtime; until then HAMi's node lock is used, and one Pod starts at a time"
        return doubtful(f"without CDI: {named(locked)}", fix)
    return answered(examined, DEVICE_PLUGIN, good(f"{len(modes)} Nodes find the owner of an allocation by CDI"))


def allocations(examined: Examined) -> Answer:
    """Check that no bound Pod waits long for its allocation, and that none has failed."""
    late, failed = [], []
    for pod in examined.cluster.pods:
        annotations = (pod.get("metadata") or {}).get("annotations") or {}
        if (pod.get("status") or {}).get("phase") != "Pending":
            continue
        phase, since = annotations.get(keys.BIND_PHASE), moment((pod.get("status") or {}).get("startTime"))
        if phase == keys.BIND_PHASE_FAILED:
            failed.append("/".join(name_of(pod)))
        elif phase == keys.BIND_PHASE_ALLOCATING and since and examined.cluster.taken_at - since > _LOCK_AGE:
            late.append("/".join(name_of(pod)))
    if failed or late:
        first = (failed or late)[0]
        what = f"failed: {named(failed)}" if failed else f"bound for more than 5 minutes: {named(late)}"
        return bad(f"Pods without their allocation, {what}", f"kubectl describe pod of {first} says why")
    return good("no bound Pod waits for its allocation")


def locks(examined: Examined) -> Answer:
    """Check that no node lock was forgotten."""
    old = []
    for node in examined.cluster.nodes:
        metadata = node.get("metadata") or {}
        text = (metadata.get("annotations") or {}).get(keys.NODE_LOCK)
        if not text:
            continue
        try:
            age = decode_node_lock(text).time.age(examined.cluster.taken_at)
        except DecodeError:
            age = _LOCK_AGE * 2
        if age > _LOCK_AGE:
            old.append(str(metadata.get("name")))
    if old:
        fix = f"kubectl annotate node {old[0]} {keys.NODE_LOCK}-"
        return doubtful(f"node locks older than 5 minutes, or unreadable, on {named(old)}", fix)
    if not examined.cluster.nodes:
        return unknown("no Node can be read", _NODES_FIX)
    return good("no node lock is older than 5 minutes")


def enforcement(examined: Examined) -> Answer:
    """Check that containers stay within their shares, and that somebody looks."""
    monitors = of(examined, MONITOR)
    active = readings(monitors, "hami_monitor_watchdog_active")
    found = [
        f"{labels.get('namespace')}/{labels.get('pod')} ({labels.get('kind')})"
        for _, labels, value in readings(monitors, "hami_monitor_watchdog_findings")
        if value
    ]
    if found:
        fix = "`kubectl hami grants` shows them; docs/what-holds-a-share.md has each way out of a share"
        return bad(f"used otherwise than granted: {named(sorted(found))}", fix)
    refused = readings(monitors, "hami_monitor_regions_refused")
    unread = sorted({service.node for service, _, value in refused if value})
    if unread:
        return doubtful(f"regions of containers cannot be read on {named(unread)}", "the monitor's log names them")
    blind = sorted(service.node for service, _, value in active if not value)
    if blind:
        fix = "set monitor.watchdog.enabled=true in the chart's values"
        return doubtful(f"nobody compares processes with grants on {named(blind)}", fix)
    return answered(examined, MONITOR, good(f"no container exceeds its share on {len(active)} Nodes"))
