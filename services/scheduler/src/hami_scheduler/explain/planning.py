"""
How many new Pods fit, one after the other, and where: on the cluster as it is, or with Nodes that somebody may buy.

Each Pod is placed by the scheduler's own search, on a copy of what is known. The number of Pods that are placed for one
question is bounded. Neighbours: `report` says what stops the next Pod, `search.cache` makes equal Pods cheap.
"""

import copy
import re
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace

from hami_scheduler.explain.kube_filters import KubeView
from hami_scheduler.explain.remedies import Question
from hami_scheduler.explain.report import Place, Report, explain, ruled_out_by
from hami_scheduler.rules.fit import belongs
from hami_scheduler.search.cache import Memo
from hami_scheduler.search.placement import grant_of
from hami_scheduler.state.ledger import Ledger
from hami_scheduler.state.view import ClusterView
from hami_scheduler.values.inventory import NodeInventory
from hamicommon.errors import HamiError
from hamicommon.model import Device

PLACED_LIMIT = 10_000
"""Pods that are placed for one question."""
NODES_LIMIT = 1000
"""Nodes that are imagined for one question. The other limits are for each of them."""
DEVICES_LIMIT = 64
MIB_LIMIT = 2**31 - 1
_ADDITION = re.compile(r"\s*([0-9]{1,9})\s*x\s*([0-9]{1,9})\s+(.{1,100}?)\s*:\s*([0-9]{1,18})\s*", re.DOTALL)
_STEP_NODES = 50
"""Nodes or grants that are copied between two pauses."""
_REPLICAS = 10
"""Of an imagined device, if the cluster has none of its vendor: what device plugins offer by default."""


class AdditionError(HamiError):
    """A text names no Nodes that could be imagined."""


def simulate(
    questions: Sequence[Question],
    view: ClusterView,
    kube: KubeView,
    counts: Sequence[int] = (),
    additions: Sequence[str] = (),
) -> Generator[None, None, tuple[Report, ...]]:
    """
    Return the report of each Pod as if they were created now, one after the other; *view* stays as it is.

    *counts* has how many of each Pod are created, one by default. *additions* are Nodes to imagine, such as
    `2x8 NVIDIA-L40S:49140`.

    Raises:
        AdditionError: one of *additions* cannot be read.
    """
    counts = counts or [1] * len(questions)
    added = [imagined(text, questions, view.ledger) for text in additions]
    if sum(one.nodes for one in added) > NODES_LIMIT:
        raise AdditionError(f"the number of Nodes to add must be at most {NODES_LIMIT}")
    if sum(counts) > 1 or added:
        view, kube = (yield from copied(view)), kube.copy()
    devices_of = (devices for one in added for devices in [one.devices] * one.nodes)
    # No Node of a cluster has a name with a slash.
    inventories = [_inventory(f"added/{number}", devices) for number, devices in enumerate(devices_of, 1)]
    for inventory in inventories:
        view.ledger.put_node(inventory)
        yield
    kube = replace(kube, nodes={**kube.nodes, **dict.fromkeys(inventory.name for inventory in inventories)})
    words = tuple(one.words for one in added)
    left, found = PLACED_LIMIT, []
    for question, count in zip(questions, counts, strict=True):
        report = yield from explain(question, view, kube)
        if report.verdict == "fits" and sum(counts) > 1:
            places = yield from _placed(question, min(count, left), view, kube)
            left -= places.total()
            report = yield from _counted(report, question, count, places, view, kube)
        elif count > 1:
            report = replace(report, count=count, placed=0)
        found.append(replace(report, added=words))
    return tuple(found)


def _counted(
    first: Report, question: Question, count: int, places: Counter[str], view: ClusterView, kube: KubeView
) -> Generator[None, None, Report]:
    """Return the report of *count* Pods of which *places* were found; *first* is that of the first one."""
    placed = places.total()
    if count == 1 and placed:
        return first
    told = tuple(Place(name, number) for name, number in sorted(places.items(), key=lambda item: (-item[1], item[0])))
    if placed == count:
        return replace(first, count=count, placed=placed, places=told)
    following = yield from explain(_one_more(question, placed), view, kube)
    if following.verdict == "fits":
        text = f"{placed} Pods fit, and the search ends there: it places at most {PLACED_LIMIT} Pods for one question"
        following = replace(first, verdict="unfinished", summary=text, node=None, gets=())
    return replace(following, count=count, placed=placed, places=told)


def _placed(question: Question, most: int, view: ClusterView, kube: KubeView) -> Generator[None, None, Counter[str]]:
    """Place up to *most* of the Pod until no Node takes one more, and return how many each Node takes."""
    ledger, pod, memo = view.ledger, question.kube_pod, Memo()
    ruled_out = yield from ruled_out_by(kube, question, list(ledger.names))
    candidates = dict.fromkeys(name for name in ledger.names if name not in ruled_out)
    places: Counter[str] = Counter()
    for number in range(most):
        request = replace(question.request, uid=_uid(question, number))
        choice = memo.search(request, view).choose(candidates)
        if choice is None:
            break
        grant = grant_of(request, view.inventory(choice.node), choice.placement, unix_nanoseconds=0)
        ledger.put(grant)
        view.quotas.count(grant, 1)
        kube.take(pod, choice.node)
        if kube.misfits(pod, choice.node):
            del candidates[choice.node]
        places[choice.node] += 1
        yield
    return places


def _one_more(question: Question, number: int) -> Question:
    """Return the question of another such Pod."""
    metadata = {**question.pod["metadata"], "uid": _uid(question, number)}
    return replace(question, pod={**question.pod, "metadata": metadata})


def _uid(question: Question, number: int) -> str:
    return f"{question.request.uid}-{number}"


def copied(view: ClusterView) -> Generator[None, None, ClusterView]:
    """Return a copy of *view* that may be changed."""
    ledger = Ledger()
    inventories = (*(entry.inventory for entry in view.ledger.nodes()), *view.ledger.silent.values())
    for number, inventory in enumerate(inventories):
        ledger.put_node(inventory)
        if number % _STEP_NODES == 0:
            yield
    for number, grant in enumerate(list(view.ledger.grants())):
        ledger.put(grant)
        if number % _STEP_NODES == 0:
            yield
    return ClusterView(ledger, copy.deepcopy(view.quotas))


# Nodes that somebody may buy


@dataclass(frozen=True, slots=True)
class Imagined:
    """Equal Nodes that somebody may buy."""

    nodes: int
    devices: tuple[Device, ...]
    """Of each Node, without UUIDs."""
    words: str


def imagined(text: str, questions: Iterable[Question], ledger: Ledger) -> Imagined:
    """
    Return the Nodes that *text* names.

    Of what *text* does not say, their devices are like those of the same model, else of the same vendor, in *ledger*.

    Raises:
        AdditionError: *text* cannot be read, or its model is of no vendor that *questions* ask.
    """
    match = _ADDITION.fullmatch(text)
    if match is None:
        raise AdditionError(f"{text[:80]!r} must be NODESxDEVICES MODEL:MIB, such as '2x8 NVIDIA-L40S:49140'")
    nodes, devices, model, memory_mib = int(match[1]), int(match[2]), match[3], int(match[4])
    for what, number, most in (
        ("Nodes", nodes, NODES_LIMIT),
        ("devices", devices, DEVICES_LIMIT),
        ("MiB", memory_mib, MIB_LIMIT),
    ):
        if not 1 <= number <= most:
            raise AdditionError(f"{text[:80]!r}: the number of {what} must be between 1 and {most}")
    like = _like(model, questions, ledger)
    device = replace(like, type=model, memory_mib=memory_mib, healthy=True, numa=0)
    if memory_mib != like.memory_mib:
        device = replace(device, mig_profiles=())
    mode = f", mode {device.mode}" if device.mode else ""
    words = (
        f"{nodes} Nodes with {devices} {model} of {memory_mib} MiB each, {device.count} replicas, "
        f"{device.core_percent} % compute{mode}; only devices are judged there"
    )
    return Imagined(nodes, tuple(replace(device, index=index) for index in range(devices)), words)


def _inventory(name: str, devices: Iterable[Device]) -> NodeInventory:
    return NodeInventory(name, tuple(replace(device, id=f"{name}/{device.index}") for device in devices))


def _like(model: str, questions: Iterable[Question], ledger: Ledger) -> Device:
    """Return a device like the imagined ones of *model*."""
    asked = {key: constraints for one in questions for key, constraints in one.request.constraints.items()}
    of_vendor = [device for entry in ledger.nodes() for device in entry.inventory.devices if device.vendor in asked]
    same = next((device for device in of_vendor if device.type == model), None)
    if same is not None:
        return same
    for vendor, constraints in asked.items():
        found = Device("", _REPLICAS, 0, 100, model, mode="hami-core" if vendor == "NVIDIA" else "", vendor=vendor)
        if belongs(found, vendor, constraints):
            another = next((device for device in of_vendor if device.vendor == vendor), found)
            return replace(another, mig_profiles=()) if another.mode != "mig" else found
    words = sorted({constraints.type_word for constraints in asked.values() if constraints.type_word})
    why = f"its models have {' or '.join(words)} in their name" if words else "it asks for no device"
    raise AdditionError(f"{model!r} is no model of a vendor that the Pod asks: {why}")
