"""
Text of others, in every field of every command: a terminal gets nothing that it would obey.
"""

import io
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from kubectl_hami import main as program
from kubectl_hami.read.archive import FORMAT, INDEX, ask_question
from kubectl_hami.read.collect import collect, collect_pods, events, examine
from kubectl_hami.read.scheduler import explanation
from kubectl_hami.read.source import Endpoint, ReadError

from .builders import NOW, a_device, a_node, a_pod, a_refusal, a_scrape, a_share
from .fakes import FakeSource, a_service

HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m\r\nforged"
OBEYED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
KEPT = frozenset(("True", "Running", "Pending", "FilteringFailed", "refused", "kind"))
"""Words without which nothing is shown at all."""
REPORT: dict[str, Any] = {
    "pod": "default/waits",
    "policy": "binpack",
    "verdict": "refused",
    "summary": "0 of 1 nodes",
    "node": None,
    "asks": [{"container": "main", "text": "1 device"}],
    "gets": [
        {
            "container": "main",
            "device": "GPU-a",
            "memoryMib": 1,
            "corePercent": 1,
            "model": "T4",
            "index": 0,
            "migProfile": "",
        }
    ],
    "nodes": [
        {
            "name": "n1",
            "fits": False,
            "score": None,
            "why": "is full",
            "codes": ["CardInsufficientMemory"],
            "devices": [],
        }
    ],
    "changes": [{"kind": "amount", "what": "with less", "node": "n1"}],
    "notes": ["a note"],
    "queue": "Kueue, queue team-a: no quota",
    "kubeScheduler": "0/1 nodes are available",
    "notJudged": ["volumes"],
}


def poisoned(value: Any, path: tuple[str, ...] = ()) -> Any:
    """Return *value* with hostile text behind every text that people could have written."""
    if isinstance(value, dict):
        return {key: poisoned(item, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [poisoned(item, path) for item in value]
    is_fixed = value in KEPT or path[-1:] in {("uid",), ("creationTimestamp",), ("lastTimestamp",), ("verdict",)}
    if (
        not isinstance(value, str)
        or is_fixed
        or "labels" in path
        or "ports" in path
        or "allocatable" in path
        or "limits" in path
    ):
        return value
    if "annotations" in path:
        return value.replace("Tesla", f"Tesla{HOSTILE}") if "register" in path[-1] else value
    return value if path[-1] in {"namespace", "nodeName", "cpu", "schedulerName"} else value + HOSTILE


class Poisoned(FakeSource):
    """A cluster in which tenants wrote all that they can, remembering what was asked."""

    def __init__(self) -> None:
        pods = [a_service("scheduler", "s", explain=9396), a_service("monitor", "m", metrics=9394)]
        hostile = poisoned([a_pod("p", a_share()), a_pod("waits")])
        node = a_node("n1", a_device())
        metric = "hami_vgpu_memory_used_bytes"
        super().__init__(
            {
                "/api/v1/nodes": {"items": [poisoned(node)]},
                "/api/v1/pods": {"items": [*pods, *hostile]},
                "/api/v1/events": {"items": [poisoned(a_refusal("waits"))]},
                "/api/v1/namespaces/default/events": {"items": [poisoned(a_refusal("waits"))]},
                "/api/v1/namespaces/hami/pods/m:9394/proxy/metrics": a_scrape({metric: 2**20}),
                "/apis/coordination.k8s.io/v1/namespaces/hami/leases": ReadError("leases", HOSTILE),
                "/api/v1/namespaces/hami/configmaps": ReadError("configmaps", HOSTILE, 403),
            },
            {("s", "/explain/default/waits"): poisoned(REPORT)},
        )
        self.asked: dict[str, bytes | ReadError] = {}

    def get(self, path: str) -> bytes:
        """Answer, and remember it as an archive does, without taking anything out."""
        try:
            found = super().get(path)
        except ReadError as error:
            self.asked[f"GET {path}"] = error
            raise
        self.asked[f"GET {path}"] = found
        return found

    def ask(self, endpoint: Endpoint, path: str, body: bytes | None = None) -> bytes:
        """Likewise."""
        found = super().ask(endpoint, path, body)
        self.asked[ask_question(endpoint, path)] = found
        return found


def entries(source: Poisoned) -> Iterator[tuple[str, bytes]]:
    """Yield the files of an archive of what was asked."""
    answers: list[dict[str, Any]] = []
    for number, (question, answer) in enumerate(source.asked.items()):
        if isinstance(answer, ReadError):
            error = {"what": answer.what, "why": answer.why, "status": answer.status}
            answers.append({"question": question, "error": error})
        else:
            answers.append({"question": question, "file": str(number)})
            yield str(number), answer
    index = {"format": FORMAT, "cluster": HOSTILE, "namespace": "default", "takenAt": NOW.isoformat()}
    yield INDEX, orjson.dumps({**index, "answers": answers})


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of somebody else, full of such text."""
    source = Poisoned()
    examine(source)
    collect(source)
    collect_pods(source)
    explanation(source, "default", "waits")
    events(source, "default", "waits")
    file = tmp_path_factory.mktemp("hostile") / "archive.tar.gz"
    with tarfile.open(file, "w:gz") as target:
        for name, content in entries(source):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            target.addfile(member, io.BytesIO(content))
    return file


@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml"])
@pytest.mark.parametrize(
    "command",
    [
        ("top", "nodes"),
        ("top", "devices"),
        ("top", "pods"),
        ("pods", "n1"),
        ("waiting",),
        ("explain", "waits"),
        ("grants",),
        ("usage", "pods"),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_terminal_gets_nothing_that_it_obeys(
    archive: Path,
    command: tuple[str, ...],
    form: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In no output, and in no sentence about what failed."""
    shown = {"table": "text"}.get(form, form) if command[0] == "explain" else form
    monkeypatch.setattr("sys.argv", ["kubectl-hami", *command, "--from", str(archive), "-o", shown])

    program.main()

    said = capsys.readouterr()
    assert said.out
    assert [] == OBEYED.findall(said.out + said.err)


@pytest.mark.parametrize("command", [("top", "pods"), ("waiting",), ("explain", "waits")], ids=" ".join)
def test_hostile_text_is_shown_with_marks_in_its_place(
    archive: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that people see that something odd is there, and no line is forged."""
    monkeypatch.setattr("sys.argv", ["kubectl-hami", *command, "--from", str(archive)])

    program.main()

    out = capsys.readouterr().out
    assert "\ufffd" in out
    assert not any(line.startswith("forged") for line in out.splitlines())
