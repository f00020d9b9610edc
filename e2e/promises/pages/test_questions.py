"""
The commands of the pages for operating and asking work as written.
"""

import json
import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.client import PROGRAM, asked, until_explained
from harness.cluster import ROOT, Cluster
from harness.documents.commands import Document
from harness.manifests import a_pod

DOCS = ROOT / "docs"
ASKED = re.compile(r"^\$ kubectl hami (.+)$", re.MULTILINE)
UNTIL_CTRL_C = {"ui", "ui --from ARCHIVE"}
"""Commands that `test_page` runs, because they serve a page until they are interrupted."""
ARCHIVE = re.compile(r"hami-[\w-]+\.tar\.gz")

BLOCKS = {
    "troubleshooting": ("look", "explain", "config", "decode"),
    "when-a-card-fails": ("faults", "pause", "resume", "restore"),
    "what-holds-a-share": ("enforcement",),
}
ON_REAL_CLUSTERS = {"troubleshooting": ("metrics",)}
"""Blocks that ask Services, which have no proxy on the embedded cluster."""


def cases(blocks: Mapping[str, tuple[str, ...]], *marks: pytest.MarkDecorator) -> list[Any]:
    """Return a case for each page."""
    return [pytest.param(page, names, marks=marks, id=f"{page}: {', '.join(names)}") for page, names in blocks.items()]


@pytest.mark.usefixtures("kubectl")
@pytest.mark.parametrize(("page", "names"), [*cases(BLOCKS), *cases(ON_REAL_CLUSTERS, pytest.mark.real_only)])
async def test_blocks_of_a_page_work_as_written(cluster: Cluster, page: str, names: tuple[str, ...]) -> None:
    """Only the documented variables differ."""
    await cluster.create(a_pod("p", gpu=1, gpumem=3000))
    await cluster.pod_in_phase("p", "Running")
    node = cluster.nodes[0]
    values = {"NODE": node.name, "NAMESPACE": cluster.namespace, "POD": "p", "DEVICE": node.gpus[0].uuid}
    document = Document(DOCS / f"{page}.md")
    given = {variable: values[variable] for variable in document.variables}
    path = f"{PROGRAM.parent}:{cluster.search_path}"

    for name in names:
        document.run(name, {**given, "KUBECONFIG": str(cluster.kubeconfig), "PATH": path}, folder=ROOT)


def test_every_block_that_is_marked_is_run() -> None:
    """A page with a new one names it here."""
    for page, names in BLOCKS.items():
        expected = {*names, *ON_REAL_CLUSTERS.get(page, ()), "variables"}
        assert set(Document(DOCS / f"{page}.md").blocks) | {"variables"} == expected


@pytest.mark.parametrize("page", ["kubectl-hami", "page"])
async def test_command_of_a_page_is_answered(
    cluster: Cluster, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of the page: an archive is read after it was taken. 1 is an answer too: it is bad news."""
    monkeypatch.chdir(tmp_path)
    await cluster.create(a_pod("large", gpu=1, gpumem=50_000))
    await until_explained(cluster, "large")
    shutil.copy(ROOT / "examples/share/share-a-gpu/pods.yaml", tmp_path / "deployment.yaml")
    (tmp_path / "pod.yaml").write_text(json.dumps(a_pod("one", gpu=1, gpumem=9000)))
    commands = ASKED.findall((DOCS / f"{page}.md").read_text())
    assert commands
    for command in commands:
        if ARCHIVE.sub("ARCHIVE", command) in UNTIL_CTRL_C:
            continue
        taken = next((file.name for file in tmp_path.glob("*.tar.gz")), "")
        arguments = shlex.split(ARCHIVE.sub(taken, command))
        namespace = ("-n", cluster.namespace) if arguments[0] in {"explain", "simulate", "fits", "defragment"} else ()
        answer = await asked(cluster, *arguments, *namespace)
        assert answer.code in {0, 1}, answer
        assert answer.output
