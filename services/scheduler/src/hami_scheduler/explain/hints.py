"""
What is odd about a Pod as it is written: a misspelt policy, an amount in another unit, a vendor that is not placed.

Owns these sentences only. Neighbours: `report` shows them, `remedies` has the question, the webhook says the same of
amounts before a Pod is there.
"""

from collections.abc import Iterator
from typing import Any

from hami_scheduler.explain.remedies import Question, amounts_in, container_at
from hami_scheduler.values.rules import device_policy_problem, node_policy_problem
from hami_scheduler.values.vendor import VendorFrame
from hamicommon.quantity import INT32_MAX, whole
from hamicommon.vendors.amounts import TEXT_SHOWN, unit_advice
from hamicommon.wire import keys

_MIB = 2**20


def policy_hints(question: Question) -> Iterator[str]:
    """Yield each policy annotation that is none, and what is used in its place, which is what HAMi uses."""
    annotations = (question.pod.get("metadata") or {}).get("annotations") or {}
    node, device = annotations.get(keys.NODE_SCHEDULER_POLICY), annotations.get(keys.GPU_SCHEDULER_POLICY)
    fault = None if node is None else node_policy_problem(node)
    if fault:
        yield f"{keys.NODE_SCHEDULER_POLICY}: {fault}; the annotation counts as binpack"
    fault = None if device is None else device_policy_problem(device)
    if fault:
        words = ", ".join(question.request.device_policy.words)
        yield f"{keys.GPU_SCHEDULER_POLICY}: {fault}; the annotation counts as {words}"


def amount_hints(question: Question) -> Iterator[str]:
    """Yield what each container names and is not understood to ask, and why."""
    for position, container in enumerate(question.request.containers):
        amounts = amounts_in(container_at(question.pod, position))
        asked = {each.vendor: each for each in container.requests}
        for frame in question.vendors:
            named = [name for name in frame.vendor.resource_names if name in amounts]
            if named and frame.key not in asked:
                faults = [fault for name in named if (fault := _fault(frame, name, amounts[name]))]
                yield (
                    f"container {container.name} names {', '.join(named)} and asks for no {frame.key} device: "
                    f"{'; '.join(faults) or _incomplete(frame)}"
                )
            elif named and asked[frame.key].memory_mib >= _MIB:
                memory = frame.vendor.memory_resource_name
                advice = _advice(frame, memory, amounts.get(memory, ""))
                if advice:
                    yield f"container {container.name} asks for more memory than any device has{advice}"
        for name in sorted(amounts.keys() & question.left_out.keys()):
            yield (
                f"container {container.name} names {name}, which this scheduler leaves alone: it runs without "
                f"{question.left_out[name]}"
            )


def _incomplete(frame: VendorFrame) -> str:
    return (
        f"{frame.count_resource} must be above 0. The webhook completes requests; "
        "`kubectl create --dry-run=server -o json` shows the Pod as it does"
    )


def _fault(frame: VendorFrame, name: str, text: Any) -> str | None:
    """Return what is wrong with one amount, as the webhook says it; that it is 0 is another matter."""
    most, value = INT32_MAX // (_unit_mib(frame, name) or 1), whole(text)
    if value is not None and 0 <= value <= most:
        return None
    advice = _advice(frame, name, text)
    return f"{name} value {str(text)[:TEXT_SHOWN]} must be an integer between 0 and {most}{advice}"


def _advice(frame: VendorFrame, name: str, text: Any) -> str:
    """Return what to write in place of an amount of memory, empty for others."""
    unit_mib = _unit_mib(frame, name)
    return unit_advice(text, unit_mib) if unit_mib else ""


def _unit_mib(frame: VendorFrame, name: str) -> int:
    """Return what 1 of resource *name* stands for, 0 where that is no memory or not the same for every amount."""
    is_plain = name == frame.vendor.memory_resource_name and frame.vendor.read_memory_limit is None
    return max(1, frame.vendor.memory_factor) if is_plain else 0
