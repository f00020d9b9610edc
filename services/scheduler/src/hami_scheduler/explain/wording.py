"""
Decisions as one sentence with numbers, for the log and the Event.

Owns wording only. A sentence here may change with every call, so none of it may reach `FailedNodes`.
Neighbours: `filter` decides, `reasons` owns the stable codes, `extender` tells.
"""

from collections import defaultdict
from collections.abc import Mapping

from hami_scheduler.decide.filter import FilterResult
from hami_scheduler.explain.phrases import Lexicon, of_devices, of_node, of_nodes, share_words
from hami_scheduler.state.ledger import Ledger
from hami_scheduler.state.quota import Allowance
from hami_scheduler.values.grant import Grant
from hami_scheduler.values.reasons import Misfit, Reason
from hami_scheduler.values.request import PodRequest
from hami_scheduler.values.vendor import VendorFrame
from hamicommon.model import Request

EVENT_LIMIT_BYTES = 1024
"""What an Event's message may have; `hamicommon.runtime.kube` cuts there."""
_NODES_NAMED = (5, 2, 1, 0)
"""Nodes listed per code, as many as there is room for."""
_CAUSES_NAMED = 6


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


def refusal(
    request: PodRequest,
    misfits: Mapping[str, Misfit],
    ledger: Ledger,
    allowances: Mapping[str, Allowance],
) -> str:
    """
    Return why no Node can take *request*, for an Event: causes in order, what is asked, and HAMi's words and codes.

    Never longer than an Event's message may be, as long as names of Nodes are left out for it.
    """
    parts = [summary(request, misfits, Lexicon(request, ledger, allowances))]
    asked = [
        describe(each, request.vendors[each.vendor]) for container in request.containers for each in container.requests
    ]
    if asked:
        parts.append(f"asked: {'; '.join(dict.fromkeys(asked))}")
    parts.append(f"no available node, {len(misfits)} nodes do not meet")
    text = ""
    for named in _NODES_NAMED:
        text = "; ".join((*parts, *_by_code(misfits, named)))
        if len(text.encode()) <= EVENT_LIMIT_BYTES:
            break
    return text


def summary(request: PodRequest, misfits: Mapping[str, Misfit], lexicon: Lexicon) -> str:
    """
    Return the causes, most common first, each Node counted once: `0 of 3 nodes: 2 have no free replica, 1 is cordoned`.

    A Node counts for the reason that comes closest to fitting.
    """
    nodes: defaultdict[Reason, list[str]] = defaultdict(list)
    for name, misfit in misfits.items():
        nodes[misfit.cause].append(name)
    ranked = sorted(nodes.items(), key=lambda item: (-len(item[1]), item[0]))
    parts = [
        of_nodes(cause, len(names), lexicon.details(cause, names, [misfits[name] for name in names]))
        for cause, names in ranked[:_CAUSES_NAMED]
    ]
    others = sum(len(names) for _, names in ranked[_CAUSES_NAMED:])
    if others:
        parts.append(f"{others} for other reasons")
    return f"0 of {len(misfits)} nodes: {', '.join(parts)}" if parts else "0 of 0 nodes: no node was to be looked at"


def node_sentence(name: str, misfit: Misfit, lexicon: Lexicon) -> str:
    """Return why the Node *name* refuses: `2 of 4 NVIDIA devices lack 3000 MiB (best has 2048), 2 are cordoned`."""
    if not misfit.device_count:
        return of_node(misfit.cause, lexicon.details(misfit.cause, [name], [misfit]))
    parts: list[str] = []
    for reason, count in sorted(misfit.counts, key=lambda item: (-item[1], item[0])):
        details = lexicon.details(reason, [name], [misfit])
        plural = "s" if misfit.device_count > 1 else ""
        among = "" if parts else f" of {misfit.device_count} {details.vendor} device{plural}"
        parts.append(of_devices(reason, count, details, among))
    return ", ".join(parts)


def describe(asked: Request, frame: VendorFrame) -> str:
    """Return *asked* of the vendor *frame* in words: `2 NVIDIA devices with 3000 MiB and 25 % compute each`."""
    plural, each = ("s", " each") if asked.count > 1 else ("", "")
    share = share_words(asked, frame)
    return f"{asked.count} {asked.vendor} device{plural}" + (f" with {share}{each}" if share else "")


def short_by(grant: Grant, problems: Mapping[str, str]) -> str:
    """Return why *grant* can no longer be kept, from what `ledger.shortfall` found."""
    listed = ", ".join(f"device {uuid} {problem}" for uuid, problem in sorted(problems.items()))
    return f"node {grant.node} can no longer take {grant.namespace}/{grant.name}: {listed}"


def _by_code(misfits: Mapping[str, Misfit], named: int) -> list[str]:
    """Return per code how many Nodes have it, most first, and the first *named* of them by name."""
    nodes: defaultdict[Reason, list[str]] = defaultdict(list)
    for name, misfit in misfits.items():
        for reason in misfit.reasons:
            nodes[reason].append(name)
    parts = []
    for reason, names in sorted(nodes.items(), key=lambda item: (-len(item[1]), item[0])):
        listed = ",".join(sorted(names)[:named]) + (",..." if len(names) > named else "")
        parts.append(f"{len(names)} nodes {reason}" + (f"({listed})" if named else ""))
    return parts
