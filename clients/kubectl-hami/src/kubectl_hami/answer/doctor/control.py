"""
What the cluster has once: the services, the webhook's registration, kube-scheduler's configuration, the ledger.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from hamicommon.model import Object
from hamicommon.wire.go.yaml_nodes import YamlError, plain
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
from kubectl_hami.answer.shares import is_ready
from kubectl_hami.values.diagnosis import COMPONENTS, SCHEDULER, WEBHOOK, Examined

_HOOK: Final = "vgpu.hami.io"
_DAY_SECONDS: Final = 86_400
_LEAST_DAYS: Final = 7
_SCORED_PERCENT: Final = 100
_STALE_SECONDS: Final = 300
_LABEL: Final = "app.kubernetes.io/component"
_VERSION_FIX: Final = "upgrade it to the version of this client"
_CONFIG_FIX: Final = "ask for list on configmaps in the namespace of the services"
_CHART_FIX: Final = "helm upgrade with the chart of the services restores it"


def services_run(examined: Examined) -> Answer:
    """Check that each service has as many Pods as it should, and that every Pod of a service is ready."""
    missing = [one for one in COMPONENTS if not of(examined, one)]
    if missing:
        return bad(f"no Pod of {named(missing)}", "install the chart, or enable the component in its values")
    for component, wanted in _wanted(examined.workloads).items():
        count = len(of(examined, component))
        if count < wanted:
            fix = f"kubectl get pods -A -l {_LABEL}={component}, and kubectl describe of its Deployment or DaemonSet"
            return bad(f"{count} of {wanted} Pods of {component} are there", fix)
    tired = [service.name for service in examined.services if not is_ready(service.pod)]
    if tired:
        return bad(f"not ready: {named(tired)}", f"kubectl describe pod and kubectl logs of {tired[0]} say why")
    silent = [service.name for service in examined.services if service.metrics is None and not service.is_forbidden]
    if silent:
        fix = f"kubectl -n {silent[0].replace('/', ' logs ')}; a Pod counts as ready until its kubelet has noticed"
        return bad(f"ready by their kubelets, and do not answer: {named(silent)}", fix)
    return good(f"all {len(examined.services)} Pods are ready")


def _wanted(workloads: Iterable[Object]) -> Counter[str]:
    """Return how many Pods each component should have, by its Deployments and DaemonSets."""
    found = Counter[str]()
    for one in workloads:
        component = str(((one.get("metadata") or {}).get("labels") or {}).get(_LABEL) or "")
        of_nodes = (one.get("status") or {}).get("desiredNumberScheduled")
        found[component] += (one.get("spec") or {}).get("replicas", 1) if of_nodes is None else of_nodes
    return found


def webhook(examined: Examined) -> Answer:
    """Check that the API server asks the webhook about Pods."""
    hooks = [hook for one in examined.webhooks for hook in one.get("webhooks") or () if hook.get("name") == _HOOK]
    if not examined.webhooks:
        return unknown("no MutatingWebhookConfiguration can be read", "ask for the right to list them")
    if not hooks:
        return bad(f"no MutatingWebhookConfiguration has the webhook {_HOOK}", _CHART_FIX)
    client = hooks[0].get("clientConfig") or {}
    if not client.get("caBundle"):
        return bad("its registration has no caBundle, so the API server cannot trust it", "restart the webhook")
    if hooks[0].get("failurePolicy") != "Fail":
        fix = "set webhook.failurePolicy to Fail"
        return doubtful("its failurePolicy is Ignore: while it is down, Pods get whole devices unseen", fix)
    passed = readings(of(examined, WEBHOOK), "hami_webhook_unasked_resources")
    if any(value for _, _, value in passed):
        return bad("its registration lacks resources of the device config, so their Pods pass by", _CHART_FIX)
    return answered(examined, WEBHOOK, good(f"registered as {_HOOK}, failurePolicy Fail, and it answers"))


def certificate(examined: Examined) -> Answer:
    """Check that the webhook's certificate stays valid for a week."""
    ends = readings(of(examined, WEBHOOK), "hami_webhook_certificate_expiry_timestamp_seconds")
    if not ends:
        return answered(examined, WEBHOOK, unknown("no webhook says when its certificate ends", _VERSION_FIX))
    days = (min(end for _, _, end in ends) - examined.cluster.taken_at.timestamp()) / _DAY_SECONDS
    if days < _LEAST_DAYS:
        state = f"ends in {days:.1f} days" if days > 0 else "has ended, or none is served"
        return bad(f"the webhook's certificate {state}", "the webhook's log says why it is not renewed")
    return answered(examined, WEBHOOK, good(f"the webhook's certificate is valid for {days:.0f} days"))


def extender(examined: Examined) -> Answer:
    """Check that kube-scheduler asks our extender, for every resource of the device config."""
    found = _scheduler_config(examined)
    if found is None:
        return unknown("no ConfigMap with a KubeSchedulerConfiguration can be read beside the scheduler", _CONFIG_FIX)
    extenders = [one for one in found.get("extenders") or () if one.get("filterVerb") and one.get("bindVerb")]
    if not extenders:
        return bad("kube-scheduler has no extender with filterVerb and bindVerb: it binds without us", _CHART_FIX)
    managed = {one.get("name") for each in extenders for one in each.get("managedResources") or ()}
    missing = sorted(_resources(examined) - managed)
    if missing:
        fix = f"add them to managedResources, with ignoredByScheduler: true; {_CHART_FIX}"
        return bad(f"its managedResources lack {named(missing)} of the device config", fix)
    return good(f"kube-scheduler asks the extender about {len(managed)} resources")


def nodes_scored(examined: Examined) -> Answer:
    """Check that kube-scheduler offers all Nodes, not a sample of them."""
    found = _scheduler_config(examined)
    if found is None:
        return unknown("no ConfigMap with a KubeSchedulerConfiguration can be read beside the scheduler", _CONFIG_FIX)
    percent = found.get("percentageOfNodesToScore")
    if percent != _SCORED_PERCENT:
        what = "is not set" if percent is None else f"is {percent}"
        fix = "set percentageOfNodesToScore: 100 in kube-scheduler's configuration"
        return doubtful(f"it {what}: in a large cluster we choose from a sample of the Nodes", fix)
    return good("it is 100: the scheduler chooses from all Nodes")


def leader(examined: Examined) -> Answer:
    """Check that exactly one scheduler decides."""
    found = readings(of(examined, SCHEDULER), "hami_scheduler_leader")
    if not found:
        return answered(examined, SCHEDULER, unknown("no scheduler says whether it leads", _VERSION_FIX))
    leaders = [service.name for service, _, value in found if value]
    if not leaders:
        fix = "the log of kube-scheduler in the scheduler's Pods says why it does not get the Lease"
        none = bad(f"none of {len(found)} schedulers leads, so no Pod gets a Node", fix)
        return answered(examined, SCHEDULER, none)
    if len(leaders) > 1:
        return bad(f"{named(leaders)} lead at once", "give both the same Lease in their flags")
    return answered(examined, SCHEDULER, good(f"{leaders[0]} leads"))


def drift(examined: Examined) -> Answer:
    """Check that the scheduler's ledger was never wrong, and that its watches are alive."""
    schedulers = of(examined, SCHEDULER)
    wrong = sum(value for _, _, value in readings(schedulers, "hami_scheduler_ledger_drift_total"))
    ages = readings(schedulers, "hami_scheduler_watch_age_seconds")
    if not ages:
        return answered(examined, SCHEDULER, unknown("no scheduler says how old its watches are", _VERSION_FIX))
    if wrong:
        fix = "save the scheduler's log and `kubectl hami bundle`, and report it; Pods bound before may exceed devices"
        return bad(f"a recount of the ledger has corrected {wrong:.0f} numbers", fix)
    oldest = max(value for _, _, value in ages)
    if oldest > _STALE_SECONDS:
        return bad(f"a watch of the scheduler is {oldest:.0f} s old", "restart the scheduler; its log says why")
    edited = sum(value for _, _, value in readings(schedulers, "hami_scheduler_edited_pods_total"))
    if edited:
        fix = "the scheduler's log names them; check scheduler.reservedAnnotations in the chart's values"
        return doubtful(f"the allocation of {edited:.0f} bound Pods was edited", fix)
    return answered(examined, SCHEDULER, good("the ledger was never wrong, and all watches are alive"))


def _scheduler_config(examined: Examined) -> Mapping[str, Any] | None:
    """Return kube-scheduler's configuration, None without one."""
    for text in (text for one in examined.config_maps for text in (one.get("data") or {}).values()):
        if "KubeSchedulerConfiguration" in text:
            try:
                found = plain(text)
            except YamlError:
                continue
            if isinstance(found, dict) and found.get("kind") == "KubeSchedulerConfiguration":
                return found
    return None


def _resources(examined: Examined) -> set[str]:
    """Return every resource of the device config, none if it cannot be read."""
    # The chart leaves these two out unless they are enabled.
    config = device_config(examined.config_maps)
    vendors = config.enabled(has_ascend=False, has_iluvatar=False).vendors() if config else ()
    return {name for vendor in vendors for name in vendor.resource_names}
