"""
How a plan of moves is carried out: the commands, in order.

The devices that the Pods leave are closed first, because the scheduler would put a Pod back there before the one that
waits gets it. A label marks the Pods for the descheduler. A Pod that is created again has the labels of its template,
so none is evicted twice. Neighbours: the command `defragment` prints this, the scheduler makes the plan.
"""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hamicommon.wire import keys

EVICTED: Final = "defragment"
"""The value of the label that marks the Pods of a plan."""


def commands(plan: Mapping[str, Any]) -> tuple[str, ...]:
    """Return lines for a shell that carry out *plan*, as the scheduler answers it; none if it moves nothing."""
    return (*_closed(plan), *_marked(plan), *_opened(plan))


def _closed(plan: Mapping[str, Any]) -> Iterator[str]:
    for cordon in plan["cordons"]:
        yield _annotate(cordon["node"], f"={','.join(sorted({*cordon['devices'], *cordon['before']}))}")


def _opened(plan: Mapping[str, Any]) -> Iterator[str]:
    for number, cordon in enumerate(plan["cordons"]):
        before = ",".join(cordon["before"])
        yield _annotate(cordon["node"], f"={before}" if before else "-") + (
            "" if number else "  # once all of them run again"
        )


def _marked(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield a command for each namespace that marks its Pods."""
    of_namespace: dict[str, list[str]] = {}
    for move in plan["moves"]:
        of_namespace.setdefault(move["namespace"], []).append(move["pod"])
    mark = f"{keys.EVICTION_PLAN}={EVICTED}"
    for namespace, pods in of_namespace.items():
        line = shlex.join(("kubectl", "label", "--overwrite", "pods", "--namespace", namespace, *pods, mark))
        yield f"{line}  # the descheduler evicts them"


def _annotate(node: str, value: str) -> str:
    return shlex.join(("kubectl", "annotate", "--overwrite", "node", node, f"{keys.NODE_CORDON}{value}"))
