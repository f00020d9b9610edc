"""
Lay the scheduler's report about a Pod out for a terminal: aligned, no wider than the screen, no longer than a page.

Turns the JSON of `explain`, `simulate` and `fits` into text, so that every command has the same words. Neighbours: the
scheduler's `report` owns the contents.
"""

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hamicommon.cli.terminal import cleaned

_ROWS = 20
"""Nodes that get a row each; with more Nodes, equal answers share a row."""
_CELL_COLUMNS = 44
"""Widest cell, except in the last column, which wraps."""
_LEAST_COLUMNS = 24
"""Least width of the last column."""
_BOLD, _DIM, _GREEN, _RED, _PLAIN = "\033[1m", "\033[2m", "\033[32m", "\033[31m", "\033[0m"
_VERDICTS = {"bound": _GREEN, "reserved": _GREEN, "fits": _GREEN, "refused": _RED, "gang": _RED}
_WELL = frozenset(("bound", "reserved", "fits", "nothing-asked", "ended"))
"""The verdicts about a Pod that has or would get a Node, or needs none of this scheduler."""
_OFFERED = ("devices", "memoryMib", "corePercent")
_FREE = ("freeDevices", "freeMemoryMib", "freeCorePercent")
_SHARES = re.compile(r"\d+/\d+ ")

Shape = Mapping[str, Any]
Rows = Sequence[Sequence[str]]
Paint = Callable[[str, str], str]


def is_well(report: Shape) -> bool:
    """Return whether every Pod of the JSON shape *report* has or would get a Node, or needs none of this scheduler."""
    return report.get("verdict") in _WELL


def does_fit(report: Shape) -> bool:
    """Return whether at least one Pod of the JSON shape *report*, an answer to `fits`, would get a Node."""
    return bool(report.get("placed"))


def headline(report: Shape, *, asks_how_many: bool = False) -> str:
    """Return in one line what the JSON shape *report* says; with *asks_how_many* it is the answer to `fits`."""
    placed = report.get("placed")
    return _headline(report) if placed is None else _count_headline(report, placed, asks_how_many=asks_how_many)


def page(report: Shape, *, columns: int, is_coloured: bool, is_whole: bool = False, asks_how_many: bool = False) -> str:
    """
    Return the JSON shape *report* as text *columns* wide; with *is_whole* every Node has its row.

    With *asks_how_many* it is the answer to `fits`, which wants as many Pods as there is room for.
    """
    report, paint = cleaned(report), _paint if is_coloured else _leave
    colour = _BOLD + _VERDICTS.get(report["verdict"], "")
    placed = report.get("placed")
    head = [paint(line, colour) for line in _wrapped(headline(report, asks_how_many=asks_how_many), columns)]
    if report["verdict"] in {"refused", "unfinished"} or placed is not None:
        head += _wrapped(f"{_whose(report)}{report['summary']}", columns)
    blocks = ["\n".join(head)]
    tables: tuple[tuple[Sequence[str], Rows], ...] = (
        (("NODE", "PODS"), _places(report.get("places") or (), is_whole=is_whole)),
        (("CONTAINER", "ASKS"), [(asked["container"], asked["text"]) for asked in report["asks"]]),
        (("CONTAINER", "DEVICE", "MEMORY", "COMPUTE", "MODEL"), [_given(given) for given in report["gets"]]),
        *(_supply(supply, report["asks"]) for supply in report.get("supplies") or ()),
        _nodes(report["nodes"], is_whole=is_whole),
        (("IT WOULD FIT ON", "IF CHANGED"), [(change["node"], change["what"]) for change in report["changes"]]),
    )
    blocks += [table(heads, rows, columns=columns, paint=paint) for heads, rows in tables if rows]
    if report["verdict"] == "refused" and not report["changes"]:
        blocks.append(
            "\n".join(_wrapped("No change of what it asks of devices was found after which it would fit.", columns))
        )
    notes = [*_others(report), *(f"note: {note}" for note in report["notes"])]
    notes += [f"added: {added}" for added in report.get("added") or ()]
    blocks += ["\n".join(_wrapped(note, columns)) for note in notes]
    return "\n\n".join(blocks) + "\n"


def table(heads: Sequence[str], rows: Rows, *, columns: int, paint: Paint | None = None) -> str:
    """
    Return *rows* under *heads*, every column as wide as its widest cell; the last one wraps.

    >>> print(table(("NODE", "WHY"), [("a", "too small"), ("node-b", "full")], columns=80))
    NODE    WHY
    a       too small
    node-b  full
    """
    paint = paint or _leave
    cells = [[_cut(cell) for cell in row[:-1]] for row in rows]
    widths = [max(len(row[place]) for row in [list(heads), *cells]) for place in range(len(heads) - 1)]
    last = max(_LEAST_COLUMNS, columns - sum(widths) - 2 * len(widths))
    lines = [paint(_line([*heads], widths), _DIM)]
    for row, text in zip(cells, (row[-1] for row in rows), strict=True):
        first, *rest = textwrap.wrap(text, last, break_long_words=False, break_on_hyphens=False) or [""]
        lines.append(_line([*row, first], widths))
        lines += [_line([*("" for _ in row), more], widths) for more in rest]
    return "\n".join(lines)


def _headline(report: Shape) -> str:
    if report["verdict"] == "refused":
        return f"{report['pod']} fits nowhere ({report['policy']})"
    if report["verdict"] == "fits":
        condition = ", if what is not judged here allows it" if report.get("notJudged") else ""
        return f"{report['pod']} fits node {report['node']} ({report['policy']}){condition}"
    return str(report["summary"])


def _count_headline(report: Shape, placed: int, *, asks_how_many: bool) -> str:
    """Return how many of several simulated Pods fit."""
    condition = ", if what is not judged here allows it" if placed and report.get("notJudged") else ""
    if asks_how_many:
        at_least = "at least " if report["verdict"] in {"unfinished", "fits"} else ""
        return f"{at_least}{placed} more Pods like {report['pod']} fit ({report['policy']}){condition}"
    which = "all" if placed == report["count"] else f"{placed} of"
    return f"{which} {report['count']} Pods of {report['pod']} fit ({report['policy']}){condition}"


def _whose(report: Shape) -> str:
    """Return which of several simulated Pods *report* is about, empty if it is about all."""
    which = {"refused": "the next one: ", "fits": "the first one: "} if report.get("placed") else {}
    return which.get(report["verdict"], "")


def _places(places: Sequence[Shape], *, is_whole: bool) -> Rows:
    """Return a row for each Node that gets Pods, and one for all beyond a page."""
    shown = places if is_whole or len(places) <= _ROWS else places[: _ROWS - 1]
    rows = [(place["node"], str(place["count"])) for place in shown]
    others = places[len(shown) :]
    more = (f"{len(others)} more Nodes", str(sum(place["count"] for place in others)))
    return [*rows, more] if others else rows


def _others(report: Shape) -> list[str]:
    """Return the words on its gang, of a queue and of kube-scheduler, and what only that judges, as far as given."""
    found = [str(report[key]) for key in ("gang", "queue") if report.get(key)]
    if report.get("kubeScheduler"):
        found.append(f"kube-scheduler says: {report['kubeScheduler']}")
    if report.get("notJudged"):
        found.append(f"not judged here, and the Pod uses it: {', '.join(report['notJudged'])}")
    return found


def _given(given: Shape) -> tuple[str, ...]:
    compute = f"{given['corePercent']} %" if given["corePercent"] else "-"
    index = f"#{given['index']}" if given["index"] is not None else "gone"
    model = " ".join(part for part in (index, given["model"], given["migProfile"]) if part)
    return given["container"], given["device"], f"{given['memoryMib']} MiB", compute, model


def _supply(supply: Shape, asks: Sequence[Shape]) -> tuple[Sequence[str], Rows]:
    """Return what is asked, offered and free of one vendor; amounts are of one device, the largest."""
    rows = [
        (f"asked by {asked['container']}", str(asked["count"]), _memory(asked), _compute(asked["corePercent"]))
        for asked in asks
        if asked["vendor"] == supply["vendor"]
    ]
    for name, keys in (("offered", _OFFERED), ("free", _FREE)):
        devices, memory_mib, core_percent = (supply[key] for key in keys)
        rows.append((name, str(devices), f"{memory_mib} MiB" if memory_mib else "-", _compute(core_percent)))
    return (supply["vendor"], "DEVICES", "MEMORY OF ONE", "COMPUTE OF ONE"), rows


def _memory(asked: Shape) -> str:
    if asked["memoryMib"]:
        return f"{asked['memoryMib']} MiB"
    return f"{asked['memoryPercent']} %" if asked["memoryPercent"] else "-"


def _compute(percent: int) -> str:
    return f"{percent} %" if percent else "-"


def _nodes(nodes: Sequence[Shape], *, is_whole: bool) -> tuple[Sequence[str], Rows]:
    if not any(node["fits"] for node in nodes):
        heads, rows = _node_rows(nodes, is_whole=is_whole)
        return [head for head in heads if head != "SCORE"], [(*row[:-2], row[-1]) for row in rows]
    return _node_rows(nodes, is_whole=is_whole)


def _node_rows(nodes: Sequence[Shape], *, is_whole: bool) -> tuple[Sequence[str], Rows]:
    """Return a row for each Node, or one for all with the same answer; the score is the last column but one."""
    if is_whole or len(nodes) <= _ROWS:
        return ("NODE", "SCORE", "ANSWER"), [(node["name"], _score(node), node["why"]) for node in nodes]
    groups: dict[str, list[Shape]] = {}
    for node in nodes:
        key = node["why"] if node["fits"] else _SHARES.sub("", node["code"])
        groups.setdefault(key, []).append(node)
    rows = [
        (str(len(group)), group[0]["name"], _score(group[0]), group[0]["why"])
        for group in sorted(groups.values(), key=lambda group: (not group[0]["fits"], -len(group)))
    ]
    return ("NODES", "SUCH AS", "SCORE", "ANSWER THERE"), rows


def _score(node: Shape) -> str:
    return "-" if node["score"] is None else f"{node['score']:.2f}"


def _wrapped(text: str, columns: int) -> list[str]:
    return textwrap.wrap(text, columns, break_long_words=False, break_on_hyphens=False)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
    return "  ".join((*padded, cells[-1])).rstrip()


def _cut(cell: str) -> str:
    """Return *cell*, shortened in the middle if it is too long: the ends of names differ most."""
    if len(cell) <= _CELL_COLUMNS:
        return cell
    half = (_CELL_COLUMNS - 1) // 2
    return f"{cell[:half]}…{cell[-half:]}"


def _paint(text: str, colour: str) -> str:
    return f"{colour}{text}{_PLAIN}" if colour else text


def _leave(text: str, _colour: str) -> str:
    return text
