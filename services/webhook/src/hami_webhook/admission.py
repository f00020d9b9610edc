"""
Decide on a Pod that is being created: what it needs changed to be scheduled here, or why it may not be.

One pure function, in HAMi's order and with HAMi's codes and messages. Knows nothing of HTTP, clocks or logs.
A Pod that names no managed resource is never changed, whatever the device config says; that is the one rule HAMi lacks.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/scheduler/webhook.go
"""

from dataclasses import dataclass
from enum import Enum

from hami_webhook import nvidia, quota
from hami_webhook.patch import Operation, diff
from hami_webhook.pod import Container, Pod, PodError, read_pod
from hamicommon import vendors
from hamicommon.config import DeviceConfig
from hamicommon.vendors import Vendor

DEFAULT_SCHEDULER = "default-scheduler"
_COUNTED_ONLY = (vendors.cambricon.KEY, vendors.hygon.KEY, vendors.metax.GPU_KEY)
"""Vendors whose containers need no change: a limit on the counting resource is all there is to see."""


class Outcome(Enum):
    """What became of a Pod; the text is the metric's label."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    """It asks, and has all it needs already."""
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
    """What the operator decided."""

    devices: DeviceConfig
    vendors: tuple[Vendor, ...]
    resource_names: frozenset[str]
    """Every resource any vendor manages."""
    scheduler_name: str
    """What Pods that ask are given as scheduler; empty leaves them theirs."""
    overwrite_default_scheduler: bool

    @classmethod
    def of(cls, devices: DeviceConfig, scheduler_name: str, overwrite_default_scheduler: bool = True) -> "Policy":
        """Return the policy that follows from the device config and two flags."""
        known = vendors.all_vendors(devices)
        names = frozenset(name for vendor in known for name in vendor.resource_names)
        return cls(devices, known, names, scheduler_name, overwrite_default_scheduler)


@dataclass(frozen=True, slots=True)
class Admission:
    """The decision; an empty message with code 0 stands for a plain yes."""

    outcome: Outcome
    allowed: bool = True
    code: int = 0
    reason: str = ""
    message: str = ""
    patch: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    """Shown to whoever creates the Pod."""


def admit(
    value: object, policy: Policy, namespace: str = "", namespace_quota: quota.NamespaceQuota | None = None
) -> Admission:
    """
    Return the decision on the Pod in *value*, which is left as it is; *namespace* is where it will live.

    Deciding again on the patched Pod changes nothing more.
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
    patch = tuple(diff(value, pod.rewritten()))
    warnings = [
        warning for container in pod.all_containers() for warning in nvidia.warnings(container, policy.devices.nvidia)
    ]
    return Admission(Outcome.CHANGED if patch else Outcome.UNCHANGED, patch=patch, warnings=tuple(warnings))


def _has_other_scheduler(pod: Pod, policy: Policy) -> bool:
    """Return whether the Pod was given a scheduler that is not for us to replace."""
    name = pod.scheduler_name
    if not name or (policy.scheduler_name and name == policy.scheduler_name):
        return False
    return name != DEFAULT_SCHEDULER or not policy.overwrite_default_scheduler


def _mutate(pod: Pod, policy: Policy) -> Admission | None:
    """Change what vendors and scheduling need changed; return why the Pod may not be created."""
    try:
        managed = [_mutate_container(container, pod, policy) for container in pod.all_containers()]
    except nvidia.AmountError as error:
        return Admission(Outcome.BAD_AMOUNT, allowed=False, code=500, message=str(error))
    if not any(managed):
        return None
    privileged = next((container for container in pod.all_containers() if container.is_privileged), None)
    if privileged is not None:
        return _denied(Outcome.PRIVILEGED, f"container {privileged.name} is privileged")
    if policy.scheduler_name:
        pod.set_scheduler_name(policy.scheduler_name)
        if pod.node_name:
            return _denied(Outcome.NODE_ASSIGNED, "pod has node assigned")
    return None


def _mutate_container(container: Container, pod: Pod, policy: Policy) -> bool:
    """Return whether *container* asks any vendor, after that vendor changed what it needs."""
    is_nvidia = nvidia.mutate(container, pod, policy.devices.nvidia)
    is_counted = any(
        vendor.key in _COUNTED_ONLY and vendor.resource_names and vendor.resource_names[0] in container.limits
        for vendor in policy.vendors
    )
    return is_nvidia or is_counted


def _refuse_quota(pod: Pod, policy: Policy, namespace_quota: quota.NamespaceQuota) -> Admission | None:
    config = policy.devices.nvidia

    def amount(container: Container) -> quota.Amount:
        return quota.demanded(vendors.nvidia.parse_request(container.resources, config))

    asked = quota.peak(
        [(container.is_sidecar, amount(container)) for container in pod.init_containers],
        [amount(container) for container in pod.containers],
    )
    excess = namespace_quota.excess(vendors.nvidia.vendor(config), asked)
    if excess is None:
        return None
    return _denied(Outcome.OVER_QUOTA, "exceeding resource quota", f"namespace {pod.namespace}: {excess}")


def _denied(outcome: Outcome, message: str, *warnings: str) -> Admission:
    return Admission(outcome, allowed=False, code=403, reason="Forbidden", message=message, warnings=warnings)
