"""
The page that lists the behaviours of both clusters.

Owns the form of the page and the files of results. A behaviour is the first sentence of a test's docstring. Must never
decide whether a behaviour holds. Neighbours: `conftest` runs the tests, `kinds` has the other part of the page.
"""

import ast
import fcntl
import hashlib
import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane.programs.build import DEFAULT_KUBERNETES, KUBERNETES

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/conformance.md"
RESULTS = ROOT / "build/conformance"
"""A file for each cluster."""
EMBEDDED = "embedded"
REQUIRED = (EMBEDDED, KUBERNETES[DEFAULT_KUBERNETES])
"""The page needs the results of these clusters. Every change is tested on them."""
MODULES = (
    *("control/test_objects", "control/test_patches", "control/test_watches", "control/test_pods"),
    *("control/test_admission", "control/test_kubectl", "control/test_scheduler"),
    *("node/test_kubelet", "node/test_devices", "node/test_cdi", "node/test_restarts"),
)
"""In the order of the page, as paths in e2e/conformance without an ending."""
HEAD = """# Conformance of the embedded cluster

Most tests run on the embedded cluster, `e2e/minicluster`. Each sentence below is a test that passed, unchanged, on it
and on a real Kubernetes (etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, containerd). So a
result of the embedded cluster also holds for the real one. A cell without ✓ says what that minor of Kubernetes does
instead. [Decision 12](decisions/0012-embedded-cluster.md) says what the embedded cluster leaves out.

These commands write this page from the results of the runs:

    pytest e2e/conformance --cluster embedded
    pytest e2e/conformance --cluster real    # and again for each --kubernetes
    python -m conformance
"""


class IncompleteError(Exception):
    """The page cannot be written, because a result is missing. The message says which."""


@dataclass(frozen=True)
class Behaviour:
    """One test. Its digest changes with its source, which makes earlier results invalid."""

    name: str
    """`module::function`."""
    sentence: str
    digest: str


@dataclass(frozen=True)
class Section:
    """One module of tests."""

    module: str
    """One of MODULES."""
    title: str
    behaviours: tuple[Behaviour, ...]


@dataclass(frozen=True)
class Run:
    """The results of one cluster, by name of the behaviour."""

    held: Mapping[str, str]
    """The digest of the test that passed; empty for one that failed."""
    otherwise: Mapping[str, str]
    """What this version of Kubernetes does instead."""

    def cell(self, behaviour: Behaviour) -> str | None:
        """Return the cell of a behaviour, or None without a valid result."""
        if self.held.get(behaviour.name) == behaviour.digest:
            return "✓"
        return self.otherwise.get(behaviour.name)


def sections() -> list[Section]:
    """Return all sections in the order of the page. Raises: IncompleteError if MODULES does not list every module."""
    folder = Path(__file__).parent
    found = {path.relative_to(folder).with_suffix("").as_posix() for path in folder.glob("*/test_*.py")}
    unknown = found.symmetric_difference(MODULES)
    if unknown:
        raise IncompleteError(f"page.MODULES and the files of e2e/conformance differ in {', '.join(sorted(unknown))}")
    return [_section(folder, module) for module in MODULES]


def _section(folder: Path, module: str) -> Section:
    path = folder / f"{module}.py"
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    return Section(module, _first_sentence(tree).rstrip("."), tuple(_behaviours(path.stem, tree, text)))


def _behaviours(module: str, tree: ast.Module, text: str) -> Iterator[Behaviour]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            source = "".join(ast.get_source_segment(text, part) or "" for part in (*node.decorator_list, node))
            digest = hashlib.sha256(source.encode()).hexdigest()[:12]
            yield Behaviour(f"{module}::{node.name}", _first_sentence(node), digest)


def behaviours(path: Path, names: Container[str]) -> list[Behaviour]:
    """Return the behaviours of the module *path* that are among *names*."""
    text = path.read_text(encoding="utf-8")
    found = _behaviours(path.stem, ast.parse(text), text)
    return [behaviour for behaviour in found if behaviour.name.partition("::")[2] in names]


def _first_sentence(node: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    text = " ".join((ast.get_docstring(node) or "").split())
    sentence, stop, _ = text.partition(". ")
    return sentence + stop.strip()


def page(found: Mapping[str, Run]) -> str:
    """
    Return the page for the results *found*.

    Raises: IncompleteError with every behaviour that has no valid result.
    """
    claimed = sections()
    lacking = [
        f"{cluster}: {behaviour.name}"
        for cluster, run in found.items()
        for section in claimed
        for behaviour in section.behaviours
        if run.cell(behaviour) is None
    ]
    if lacking:
        raise IncompleteError("no valid result of:\n" + "\n".join(lacking))
    titles = [cluster if cluster == EMBEDDED else f"Kubernetes {cluster}" for cluster in found]
    lines = [HEAD]
    for section in claimed:
        lines += [f"## {section.title}", "", _link(section.module), ""]
        lines += [row(["behaviour", *titles]), "|---" * (1 + len(titles)) + "|"]
        for behaviour in section.behaviours:
            lines.append(row([cell(behaviour), *(run.cell(behaviour) or "" for run in found.values())]))
        lines.append("")
    return "\n".join(lines)


def _link(module: str) -> str:
    return f"[{Path(module).name}.py](../e2e/conformance/{module}.py)"


def row(cells: Sequence[str]) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cells)} |"


def cell(behaviour: Behaviour) -> str:
    """Return the first cell of a behaviour's row."""
    return behaviour.sentence.replace("|", "\\|")


def record(cluster: str, outcomes: Mapping[str, bool], otherwise: Mapping[str, str]) -> None:
    """Merge *outcomes*, by behaviour, into the results of *cluster*."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / ".lock").open("w") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        earlier = _read(cluster)
        held = dict(earlier.held)
        for section in sections():
            for behaviour in section.behaviours:
                if behaviour.name in outcomes:
                    held[behaviour.name] = behaviour.digest if outcomes[behaviour.name] else ""
        others = {name: why for name, why in earlier.otherwise.items() if name not in outcomes}
        found = {"held": held, "otherwise": others | dict(otherwise)}
        (RESULTS / f"{cluster}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def results() -> dict[str, Run]:
    """Return the results of each cluster. Raises: IncompleteError if a required cluster has none."""
    clusters = {path.stem for path in RESULTS.glob("*.json")}
    missing = [cluster for cluster in REQUIRED if cluster not in clusters]
    if missing:
        raise IncompleteError(f"{RESULTS.relative_to(ROOT)} has no run on {' nor on '.join(missing)}")
    return {cluster: _read(cluster) for cluster in (EMBEDDED, *sorted(clusters - {EMBEDDED}))}


def _read(cluster: str) -> Run:
    path = RESULTS / f"{cluster}.json"
    return Run(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else Run({}, {})
