"""
Decisions as one sentence with numbers, for the log and the Event.

Owns wording only. A sentence here may change with every call, so none of it may reach `FailedNodes`.
Neighbours: `filter` decides, `reasons` owns the stable codes, `extender` tells.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from hami_scheduler.filter import FilterResult
from hami_scheduler.fit import cores_asked
from hami_scheduler.grant import Grant
from hami_scheduler.ledger import Ledger
from hami_scheduler.reasons import Misfit, Reason
from hami_scheduler.request import PodRequest
from hami_scheduler.screening import accepted_kinds
from hamicommon.model import Request

_NODES_NAMED = 5
"""Nodes listed per reason; an Event is cut at 1 KiB."""


def choice(request: PodRequest, result: FilterResult) -> str:
    """
    Return what *request* gets: `default/a fits node n1: app gets GPU-1 (3000 MiB, 25 % compute); ...`.

    Raises:
        ValueError: when *result* chose no Node.
    """
    if result.node is None or result.placement is None:
        raise ValueError(f"{request.namespace}/{request.name}: no Node was chosen")
    parts = []
    for position, container in enumerate(request.containers):
        shares = [share for vendor in result.placement.shares.values() for share in vendor[position]]
        if shares:
            got = ", ".join(f"{s.uuid} ({s.memory_mib} MiB, {s.core_percent} % compute)" for s in shares)
            parts.append(f"{container.name} gets {got}")
    return (
        f"{request.namespace}/{request.name} fits node {result.node} "
        f"({request.node_policy}, score {result.score:.2f}): {'; '.join(parts)}"
    )


def refusal(request: PodRequest, candidates: Sequence[str], misfits: Mapping[str, Misfit], ledger: Ledger) -> str:
    """
    Return why no Node can take *request*, most common reasons first, with what is asked and the best there is.

    Begins with HAMi's own words, which people and alerts search for.
    """
    parts = [f"no available node, {len(misfits)} nodes do not meet", *_by_reason(misfits)]
    asked = _largest_request(request)
    if asked is not None:
        parts.append(f"asked: {describe(asked)}; {_best_device(asked, request, candidates, ledger)}")
    return "; ".join(parts)


def reason_key(misfits: Mapping[str, Misfit]) -> str:
    """Return a text that is equal for refusals of the same kind, whatever the numbers."""
    return ",".join(sorted({reason for misfit in misfits.values() for reason in misfit.reasons}))


def describe(asked: Request) -> str:
    """
    Return *asked* in words.

    >>> describe(Request("NVIDIA", 2, 3000, None, 25))
    '2 NVIDIA devices with 3000 MiB and 25 % compute each'
    """
    memory = f"{asked.memory_mib} MiB" if asked.memory_mib else f"{asked.memory_percent} % of the memory"
    plural, each = ("s", " each") if asked.count > 1 else ("", "")
    return f"{asked.count} {asked.vendor} device{plural} with {memory} and {cores_asked(asked)} % compute{each}"


def short_by(grant: Grant, problems: Mapping[str, str]) -> str:
    """Return why *grant* can no longer be kept, from what `ledger.shortfall` found."""
    listed = ", ".join(f"device {uuid} {problem}" for uuid, problem in sorted(problems.items()))
    return f"node {grant.node} can no longer take {grant.namespace}/{grant.name}: {listed}"


def _by_reason(misfits: Mapping[str, Misfit]) -> list[str]:
    nodes: defaultdict[Reason, list[str]] = defaultdict(list)
    for name, misfit in misfits.items():
        for reason in misfit.reasons:
            nodes[reason].append(name)
    counts = Counter({reason: len(names) for reason, names in nodes.items()})
    parts = []
    for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        names = sorted(nodes[reason])
        more = ",..." if count > _NODES_NAMED else ""
        parts.append(f"{count} nodes {reason}({','.join(names[:_NODES_NAMED])}{more})")
    return parts


def _largest_request(request: PodRequest) -> Request | None:
    requests = [asked for container in request.containers for asked in container.requests]
    return max(requests, key=lambda r: (r.memory_mib, r.memory_percent or 0, r.count, r.core_percent), default=None)


def _best_device(asked: Request, request: PodRequest, candidates: Sequence[str], ledger: Ledger) -> str:
    """Return the acceptable device with the most memory left among *candidates*, in words."""
    rows = slice(0, ledger.row_count)
    wanted = np.zeros(ledger.node_count + 1, np.bool_)
    wanted[ledger.indexes(candidates)] = True
    accepted = accepted_kinds(ledger, asked.vendor, request.rules[asked.vendor])
    left = (ledger.capacity[rows] - ledger.promised[rows]).clip(0)
    memory = np.where(ledger.is_open[rows] & accepted & wanted[ledger.node_of_row[rows]], left[:, 1], -1)
    if not memory.size or memory.max() < 0:
        return "no candidate has an open device of a kind the Pod accepts"
    row = int(memory.argmax())
    replicas, memory_mib, core_percent = left[row].tolist()
    node, uuid = ledger.device_at(row)
    return f"{uuid} on {node} has {memory_mib} MiB, {core_percent} % compute, {replicas} replicas left"
