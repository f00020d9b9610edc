"""
The part of the page that lists the promises of a share on each kind of node.

Owns the form of this part, and the results of each kind. A promise is a test that `test_node_kinds` imports.
Neighbours: `page` has the rest of the page, `e2e/conftest.py` records the results.
"""

import ast
import fcntl
import json
import re
from collections.abc import Mapping
from functools import cache

from conformance.page import RESULTS, ROOT, Behaviour, IncompleteError, behaviours, row
from controlplane.nvidia import KINDS

TESTS = ROOT / "e2e/promises/shares/test_node_kinds.py"
FOLDER = RESULTS / "kinds"
"""A file for each kind: by promise, the digest of the test that passed, or nothing for one that failed."""
TITLE = "## Kinds of nodes"
HEAD = f"""{TITLE}

Each sentence is a test that passed on a node of each kind: a real kubelet and containerd, NVIDIA's own container
toolkit where the kind has one, and the fake driver. These commands write this table:

    pytest e2e/promises/shares/test_node_kinds.py --cluster real
    python -m conformance

"""


@cache
def promises() -> tuple[Behaviour, ...]:
    """Return the tests that run on each kind, in the order of their modules."""
    tree = ast.parse(TESTS.read_text(encoding="utf-8"))
    found = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("promises."):
            names = {alias.name for alias in node.names}
            found += behaviours((ROOT / "e2e" / node.module.replace(".", "/")).with_suffix(".py"), names)
    return tuple(found)


def record(test: str, *, has_passed: bool) -> None:
    """Record a phase of the test with the node ID *test*, if it ran on a node of a kind. A failed phase counts."""
    match = re.search(r"test_node_kinds\.py::(\w+)\[([\w-]+)\]", test)
    if match is None:
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / ".lock").open("w") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        results = _results(match[2])
        for promise in promises():
            if promise.name.endswith(f"::{match[1]}"):
                results[promise.name] = promise.digest if has_passed else ""
        (FOLDER / f"{match[2]}.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def part() -> str:
    """Return this part of the page. Raises: IncompleteError with each promise that has no valid result."""
    held = {kind: _results(kind) for kind in KINDS}
    lacking = [
        f"{kind}: {promise.name}"
        for kind, results in held.items()
        for promise in promises()
        if results.get(promise.name) != promise.digest
    ]
    if lacking:
        raise IncompleteError("no valid result of:\n" + "\n".join(lacking))
    return HEAD + "\n".join([*_kinds(), "", *_table(held), ""])


def _kinds() -> list[str]:
    return [row(["kind", "what it is"]), "|---|---|", *(row([kind.name, kind.meaning]) for kind in KINDS.values())]


def _table(held: Mapping[str, object]) -> list[str]:
    lines = [row(["promise", *held]), "|---" * (1 + len(held)) + "|"]
    return [*lines, *(row([_sentence(promise), *("\N{CHECK MARK}" for _ in held)]) for promise in promises())]


def _sentence(promise: Behaviour) -> str:
    """Return the promise, which is the name of its test."""
    return promise.name.partition("::test_")[2].replace("_", " ").capitalize() + "."


def _results(kind: str) -> dict[str, str]:
    path = FOLDER / f"{kind}.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
