"""
Decide on a Pod that is being created: how to change it, or why to reject it.

One pure function, in HAMi's order and with HAMi's codes and messages. Two rules go beyond HAMi's. A Pod that names no
managed resource is never changed. A Pod that requests a device loses the grant in its annotations, which it has when it
was created from a running Pod's YAML.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/scheduler/webhook.go
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from hami_webhook.decide import quota
from hami_webhook.decide.advice import Vocabulary, misspelled, unknown_demand
from hami_webhook.decide.amounts import AmountError
from hami_webhook.decide.patch import Operation, diff
from hami_webhook.decide.pod import Container, Pod, PodError, read_pod
from hami_webhook.decide.rules import Rules
from hami_webhook.decide.vendors import all_rules
from hamicommon.config.device_config import DeviceConfig
from hamicommon.vendors import nvidia
from hamicommon.vendors.description import Vendor

DEFAULT_SCHEDULER = "default-scheduler"


class Outcome(Enum):
    """The decision on a Pod; the text is the metric's label."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    """It requests a device and is complete already."""
    NOT_ASKING = "not_asking"
    OTHER_SCHEDULER = "other_scheduler"
    MALFORMED = "malformed"
    NO_CONTAINERS = "no_containers"
    BAD_AMOUNT = "bad_amount"
    PRIVILEGED = "privileged"
    NODE_ASSIGNED = "node_assigned"
    OVER_QUOTA = "over_quota"


@dataclass(frozen=True, slots=True)
class Policy:
    """The operator's settings."""

    rules: tuple[Rules, ...]
    """The rules of every vendor."""
    vocabulary: Vocabulary
    """The names of resources and annotations that mean something."""
    granted_keys: frozenset[str]
    """The annotations with a Pod's grants, of every vendor, and with what is left to hand out."""
    scheduler_name: str
    """The scheduler of Pods that request devices; empty: they keep theirs."""
    overwrite_default_scheduler: bool
    moved: frozenset[str] = frozenset()
    """The resources whose amounts are moved into an annotation."""

    @classmethod
    def of(
        cls,
        devices: DeviceConfig,
        scheduler_name: str,
        overwrite_default_scheduler: bool = True,
        has_tokens: bool = False,
    ) -> "Policy":
        """Return the policy that follows from the device config and three flags."""
        rules = all_rules(devices)
        written = ((rule.vendor.allocated_key, rule.vendor.to_allocate_key) for rule in rules)
        keys = frozenset({*(key for of_vendor in written for key in of_vendor if key), *nvidia.PLUGIN_POD_KEYS})
        vocabulary = Vocabulary.of([rule.vendor for rule in rules])
        of_nvidia = next((rule.vendor.resource_names for rule in rules if rule.vendor.key == nvidia.KEY), ())
        moved = frozenset(of_nvidia[1:] if has_tokens else ())
        return cls(rules, vocabulary, keys, scheduler_name, overwrite_default_scheduler, moved)

    @property
    def resource_names(self) -> frozenset[str]:
        """The managed resources of every vendor."""
        return self.vocabulary.resources

    @property
    def vendors(self) -> tuple[Vendor, ...]:
        """Every vendor."""
        return tuple(rule.vendor for rule in self.rules)


@dataclass(frozen=True, slots=True)
class Admission:
    """The decision; code 0 and no message mean plain approval."""

    outcome: Outcome
    allowed: bool = True
    code: int = 0
    reason: str = ""
    message: str = ""
    patch: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    """Shown to the creator of the Pod."""


def admit(
    value: object, policy: Policy, namespace: str = "", namespace_quota: quota.NamespaceQuota | None = None
) -> Admission:
    """
    Return the decision on the Pod in *value* for *namespace*; *value* is not changed.

    A second decision on the patched Pod changes nothing.
    """
    try:
        pod = read_pod(value, namespace)
    except PodError as error:
        return Admission(Outcome.MALFORMED, allowed=False, code=400, message=str(error))
    if not pod.containers:
        return _denied(Outcome.NO_CONTAINERS, "pod has no containers")
    if _has_other_scheduler(pod, policy):
        return Admission(Outcome.OTHER_SCHEDULER, code=200, message="pod already has different scheduler assigned")
    if not any(container.names_any(policy.resource_names) for container in pod.all_containers()):
        return Admission(Outcome.NOT_ASKING)
    refusal = _mutate(pod, policy) or _refuse_quota(pod, policy, namespace_quota or quota.NamespaceQuota())
    if refusal is not None:
        return refusal
    amounts = (text for each in pod.all_containers() for rule in policy.rules for text in rule.warnings(each))
    advice = (*misspelled(pod, policy.vocabulary), *unknown_demand(pod))
    warnings = (*amounts, *_removals(pod), *advice)
    if policy.moved:
        pod.move_amounts(policy.moved)
    patch = tuple(diff(value, pod.rewritten()))
    return Admission(Outcome.CHANGED if patch else Outcome.UNCHANGED, patch=patch, warnings=warnings)


def _has_other_scheduler(pod: Pod, policy: Policy) -> bool:
    """Return whether the Pod names a scheduler that must not be replaced."""
    name = pod.scheduler_name
    if not name or (policy.scheduler_name and name == policy.scheduler_name):
        return False
    return name != DEFAULT_SCHEDULER or not policy.overwrite_default_scheduler


def _mutate(pod: Pod, policy: Policy) -> Admission | None:
    """Apply the changes of vendors and scheduling; return the rejection, or None."""
    pod.has_our_scheduler = policy.scheduler_name in {"", pod.scheduler_name}
    try:
        asking = [_mutate_container(container, pod, policy) for container in pod.all_containers()]
    except AmountError as error:
        return Admission(Outcome.BAD_AMOUNT, allowed=False, code=500, message=str(error))
    if not any(asking):
        return None
    pod.remove_annotations(policy.granted_keys)
    privileged = next((container for container in pod.all_containers() if container.is_privileged), None)
    if privileged is not None:
        return _denied(Outcome.PRIVILEGED, f"container {privileged.name} is privileged")
    if policy.scheduler_name:
        pod.set_scheduler_name(policy.scheduler_name)
        if pod.node_name:
            return _denied(Outcome.NODE_ASSIGNED, "pod has node assigned")
    return None


def _mutate_container(container: Container, pod: Pod, policy: Policy) -> bool:
    """Apply each vendor's changes to *container*; return whether it requests a device."""
    named = [rule for rule in policy.rules if container.names_any(rule.vendor.resource_names)]
    asked = [rule for rule in named if rule.admit(container, pod)]
    for name in (name for rule in asked for name in rule.of_the_plugin):
        container.remove_env(name)
    shown = {rule.hidden for rule in asked}
    for rule in policy.rules:
        for variable in rule.everywhere:
            container.set_env(*variable)
        if rule.is_hiding and rule.hidden and rule.hidden not in shown:
            container.set_env(*rule.hidden)
    return bool(asked)


def _refuse_quota(pod: Pod, policy: Policy, namespace_quota: quota.NamespaceQuota) -> Admission | None:
    if not namespace_quota.limits:
        return None
    for vendor in policy.vendors:
        asked = quota.demanded_by_pod([(each.kind, each.resources) for each in pod.all_containers()], vendor)
        excess = namespace_quota.excess(vendor, asked)
        if excess is not None:
            return _denied(Outcome.OVER_QUOTA, f"exceeding resource quota: namespace {pod.namespace}: {excess}")
    return None


def _removals(pod: Pod) -> Iterator[str]:
    for key in pod.removed_annotations:
        yield f"annotation {key} removed: the scheduler writes it when it grants the Pod devices"
    for container in pod.all_containers():
        for name in container.removed_env:
            yield f"container {container.name}: variable {name} removed: the device plugin sets it"


def _denied(outcome: Outcome, message: str) -> Admission:
    return Admission(outcome, allowed=False, code=403, reason="Forbidden", message=message)
