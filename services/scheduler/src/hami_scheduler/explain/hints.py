"""
What is odd about a Pod as it is written: policies that do not exist, amounts that ask for nothing, claims beside them.

Neighbours: `report` shows it, `remedies` reads the same question.
"""

from collections.abc import Iterator
from typing import Any

from hami_scheduler.explain.remedies import Question
from hami_scheduler.values.policies import device_policy_problem, node_policy_problem
from hami_scheduler.values.vendor import VendorRules
from hamicommon.vendors.amounts import TEXT_SHOWN, unit_advice
from hamicommon.wire import keys
from hamicommon.wire.go.strings import BLANKS
from hamicommon.wire.quantity import INT32_MAX, whole

_MIB = 2**20


def policy_hints(question: Question) -> Iterator[str]:
    """Yield each policy annotation that names no policy, and what counts instead, as in HAMi."""
    annotations = (question.pod.get("metadata") or {}).get("annotations") or {}
    node, device = annotations.get(keys.NODE_SCHEDULER_POLICY), annotations.get(keys.GPU_SCHEDULER_POLICY)
    problem = None if node is None else node_policy_problem(node.strip(BLANKS))
    if problem:
        yield f"{keys.NODE_SCHEDULER_POLICY}: {problem}; the annotation counts as binpack"
    problem = None if device is None else device_policy_problem(device.strip(BLANKS))
    if problem:
        words = ", ".join(question.request.device_policy.words)
        yield f"{keys.GPU_SCHEDULER_POLICY}: {problem}; the annotation counts as {words}"


def amount_hints(question: Question) -> Iterator[str]:
    """Yield the resources that a container names without asking for a device, and why."""
    for position, container in enumerate(question.request.containers):
        amounts = question.amounts(position)
        asked = {each.vendor: each for each in container.requests}
        for rules in question.vendors:
            named = [name for name in rules.vendor.resource_names if name in amounts]
            if named and rules.key not in asked:
                problems = [problem for name in named if (problem := _problem(rules, name, amounts[name]))]
                missing = (
                    f"{rules.count_resource} must be above 0. The webhook completes requests; "
                    "`kubectl create --dry-run=server -o json` shows the Pod as it does"
                )
                yield (
                    f"container {container.name} names {', '.join(named)} and asks for no {rules.key} device: "
                    f"{'; '.join(problems) or missing}"
                )
            elif named and asked[rules.key].memory_mib >= _MIB:
                memory = rules.vendor.memory_resource_name
                advice = _advice(rules, memory, amounts.get(memory, ""))
                if advice:
                    yield f"container {container.name} asks for more memory than any device has{advice}"
        for name in sorted(amounts.keys() & question.left_out.keys()):
            yield (
                f"container {container.name} names {name}, which this scheduler leaves alone: it runs without "
                f"{question.left_out[name]}"
            )


def claim_hints(question: Question) -> Iterator[str]:
    """
    Yield what ResourceClaims of the Pod's own mean for where it can run.

    Source: https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go
    """
    if not (question.pod.get("spec") or {}).get("resourceClaims"):
        return
    if not question.request.asks_for_devices:
        yield "kube-scheduler allocates its ResourceClaims; `kubectl describe` of the Pod and of the claims says more"
        return
    asked = {request.vendor for container in question.request.containers for request in container.requests}
    counts = ", ".join(rules.count_resource for rules in question.vendors if rules.key in asked)
    yield (
        f"it has a ResourceClaim beside {counts}: as long as a DeviceClass maps that name, kube-scheduler 1.36 and "
        "1.37 let it run on no Node with a device plugin; `kubectl get deviceclasses -o "
        "custom-columns=NAME:.metadata.name,MAPS:.spec.extendedResourceName` shows what is mapped"
    )


def _problem(rules: VendorRules, name: str, text: Any) -> str | None:
    """Return what is wrong with one amount, as the webhook words it; 0 is valid here."""
    most, value = INT32_MAX // (_unit_mib(rules, name) or 1), whole(text)
    if value is not None and 0 <= value <= most:
        return None
    advice = _advice(rules, name, text)
    return f"{name} value {str(text)[:TEXT_SHOWN]} must be an integer between 0 and {most}{advice}"


def _advice(rules: VendorRules, name: str, text: Any) -> str:
    """Return what to write instead of an amount of memory, empty for other resources."""
    unit_mib = _unit_mib(rules, name)
    return unit_advice(text, unit_mib) if unit_mib else ""


def _unit_mib(rules: VendorRules, name: str) -> int:
    """Return how many MiB 1 of resource *name* is, 0 if it is not memory or the unit depends on the amount."""
    is_plain = name == rules.vendor.memory_resource_name and rules.vendor.read_memory_limit is None
    return max(1, rules.vendor.memory_factor) if is_plain else 0
