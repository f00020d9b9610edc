"""
What the cluster has once: the services, the webhook's registration, kube-scheduler's configuration, the ledger.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from hamicommon.config import ConfigError, load_device_config
from kubectl_hami.answer.doctor.readings import bad, doubtful, good, is_ready, named, of, readings, unknown
from kubectl_hami.values.diagnosis import Check, Examined

COMPONENTS: Final = ("hami-webhook", "hami-scheduler", "hami-device-plugin", "hami-monitor")
_HOOK: Final = "vgpu.hami.io"
_DAY_SECONDS: Final = 86_400
_LEAST_DAYS: Final = 7
_SCORED_PERCENT: Final = 100
_STALE_SECONDS: Final = 300
_CHART_FIX: Final = "helm upgrade with the chart of the services restores it"


def services_run(examined: Examined) -> Check:
    """Check that each service has a ready Pod, and that every Pod of a service is ready."""
    name = "services"
    missing = [one for one in COMPONENTS if not of(examined, one)]
    if missing:
        return bad(name, f"no Pod of {named(missing)}", "install the chart, or enable the component in its values")
    tired = [service.name for service in examined.services if not is_ready(service)]
    if tired:
        return bad(name, f"not ready: {named(tired)}", f"kubectl describe pod and kubectl logs of {tired[0]} say why")
    return good(name, f"all {len(examined.services)} Pods are ready")


def webhook(examined: Examined) -> Check:
    """Check that the API server asks the webhook about Pods."""
    name = "webhook"
    hooks = [hook for one in examined.webhooks for hook in one.get("webhooks") or () if hook.get("name") == _HOOK]
    if not examined.webhooks:
        return unknown(name, "no MutatingWebhookConfiguration can be read", "ask for the right to list them")
    if not hooks:
        return bad(name, f"no MutatingWebhookConfiguration has the webhook {_HOOK}", _CHART_FIX)
    client = hooks[0].get("clientConfig") or {}
    if not client.get("caBundle"):
        return bad(name, "its registration has no caBundle, so the API server cannot trust it", "restart the webhook")
    if hooks[0].get("failurePolicy") != "Fail":
        fix = "set webhook.failurePolicy to Fail"
        return doubtful(name, "its failurePolicy is Ignore: while it is down, Pods get whole devices unseen", fix)
    passed = readings(of(examined, "hami-webhook"), "hami_webhook_unasked_resources")
    if any(value for _, _, value in passed):
        return bad(name, "its registration lacks resources of the device config, so their Pods pass by", _CHART_FIX)
    silent = [f"{one.name}: {one.why_silent}" for one in of(examined, "hami-webhook") if one.metrics is None]
    if silent:
        return unknown(name, f"it is registered, and does not answer here: {named(silent)}")
    return good(name, f"registered as {_HOOK}, failurePolicy Fail, and it answers")


def certificate(examined: Examined) -> Check:
    """Check that the webhook's certificate stays valid for a week."""
    name = "certificate"
    ends = readings(of(examined, "hami-webhook"), "hami_webhook_certificate_expiry_timestamp_seconds")
    if not ends:
        return unknown(name, "no webhook says when its certificate ends")
    days = (min(end for _, _, end in ends) - examined.seen.taken_at.timestamp()) / _DAY_SECONDS
    if days < _LEAST_DAYS:
        state = f"ends in {days:.1f} days" if days > 0 else "has ended, or none is served"
        return bad(name, f"the webhook's certificate {state}", "the webhook's log says why it is not renewed")
    return good(name, f"the webhook's certificate is valid for {days:.0f} days")


def extender(examined: Examined) -> Check:
    """Check that kube-scheduler asks our extender, for every resource of the device config."""
    name = "extender"
    found = _scheduler_config(examined)
    if found is None:
        return unknown(name, "no ConfigMap with a KubeSchedulerConfiguration can be read beside the scheduler")
    extenders = [one for one in found.get("extenders") or () if one.get("filterVerb") and one.get("bindVerb")]
    if not extenders:
        return bad(name, "kube-scheduler has no extender with filterVerb and bindVerb: it binds without us", _CHART_FIX)
    managed = {one.get("name") for each in extenders for one in each.get("managedResources") or ()}
    missing = sorted(_resources(examined) - managed)
    if missing:
        fix = f"add them to managedResources, with ignoredByScheduler: true; {_CHART_FIX}"
        return bad(name, f"its managedResources lack {named(missing)} of the device config", fix)
    return good(name, f"kube-scheduler asks the extender about {len(managed)} resources")


def nodes_scored(examined: Examined) -> Check:
    """Check that kube-scheduler offers all Nodes, not a sample of them."""
    name = "percentageOfNodesToScore"
    found = _scheduler_config(examined)
    if found is None:
        return unknown(name, "no ConfigMap with a KubeSchedulerConfiguration can be read beside the scheduler")
    percent = found.get("percentageOfNodesToScore")
    if percent != _SCORED_PERCENT:
        what = "is not set" if percent is None else f"is {percent}"
        fix = "set percentageOfNodesToScore: 100 in kube-scheduler's configuration"
        return doubtful(name, f"it {what}: in a large cluster we choose from a sample of the Nodes", fix)
    return good(name, "it is 100: the scheduler chooses from all Nodes")


def leader(examined: Examined) -> Check:
    """Check that exactly one scheduler decides."""
    name = "leader"
    found = readings(of(examined, "hami-scheduler"), "hami_scheduler_leader")
    if not found:
        return unknown(name, "no scheduler says whether it leads")
    leaders = [service.name for service, _, value in found if value]
    if not leaders:
        fix = "the log of kube-scheduler in the scheduler's Pods says why it does not get the Lease"
        return bad(name, f"none of {len(found)} schedulers leads, so no Pod gets a Node", fix)
    if len(leaders) > 1:
        return bad(name, f"{named(leaders)} lead at once", "give both the same Lease in their flags")
    return good(name, f"{leaders[0]} leads")


def drift(examined: Examined) -> Check:
    """Check that the scheduler's ledger was never wrong, and that its watches are alive."""
    name = "drift"
    schedulers = of(examined, "hami-scheduler")
    wrong = sum(value for _, _, value in readings(schedulers, "hami_scheduler_ledger_drift_total"))
    ages = readings(schedulers, "hami_scheduler_watch_age_seconds")
    if not ages:
        return unknown(name, "no scheduler answers")
    if wrong:
        fix = "save the scheduler's log and `kubectl hami bundle`, and report it; Pods bound before may exceed devices"
        return bad(name, f"a recount of the ledger has corrected {wrong:.0f} numbers", fix)
    oldest = max(value for _, _, value in ages)
    if oldest > _STALE_SECONDS:
        return bad(name, f"a watch of the scheduler is {oldest:.0f} s old", "restart the scheduler; its log says why")
    edited = sum(value for _, _, value in readings(schedulers, "hami_scheduler_edited_pods_total"))
    if edited:
        fix = "the scheduler's log names them; check scheduler.reservedAnnotations in the chart's values"
        return doubtful(name, f"the allocation of {edited:.0f} bound Pods was edited", fix)
    return good(name, "the ledger was never wrong, and all watches are alive")


def _scheduler_config(examined: Examined) -> Mapping[str, Any] | None:
    """Return kube-scheduler's configuration, None without one."""
    for text in _data(examined):
        if "KubeSchedulerConfiguration" in text:
            try:
                found = yaml.safe_load(text)
            except yaml.YAMLError:
                continue
            if isinstance(found, dict) and found.get("kind") == "KubeSchedulerConfiguration":
                return found
    return None


def _resources(examined: Examined) -> set[str]:
    """Return every resource of the device config, none if it cannot be read."""
    for one in examined.config_maps:
        text = (one.get("data") or {}).get("device-config.yaml")
        if text:
            try:
                # The chart leaves these two out unless they are enabled.
                vendors = load_device_config(text).enabled(has_ascend=False, has_iluvatar=False).vendors()
            except ConfigError:
                return set()
            return {name for vendor in vendors for name in vendor.resource_names}
    return set()


def _data(examined: Examined) -> Iterator[str]:
    for one in examined.config_maps:
        yield from (one.get("data") or {}).values()
