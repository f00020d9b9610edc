"""
The recorders of the clusters of a run, and what the tests declare about their findings.

A test may break a rule on purpose. It says so by a mark with the rule and the reason:

    @pytest.mark.breaks("changed", "an administrator edits the grant of a running Pod")

Any other finding fails the test, and so does a declared one that does not happen.
"""

import itertools
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from hamicommon.model import Object
from harness.cluster import ROOT, Cluster
from harness.history.containers import LIMITS_FILE, seen_variables
from harness.history.events import CORE_KINDS, KINDS
from harness.history.findings import Finding, Rule
from harness.history.recorder import Recorder
from minicluster.client import Client

HISTORIES = ROOT / "build/histories"
"""The histories of the tests that run. That of a failed test is moved to its folder below `build/failed`."""
_numbers = itertools.count(1)
running: list[Recorder] = []
"""The recorders of this run whose findings have not all been read."""


@asynccontextmanager
async def judged(cluster: Cluster) -> AsyncIterator[Recorder]:
    """
    Yield the recorder of *cluster*, which has judged everything up to now and what its containers have now.

    A cluster that is not recorded gets one for the block, which judges its present state.
    """
    recorder = cluster.recorder or _recorder(cluster)
    try:
        await recorder.look_again()
        yield recorder
    finally:
        if recorder is not cluster.recorder:
            await recorder.stop()


async def begin(cluster: Cluster) -> None:
    """Record the history of *cluster* from now on."""
    cluster.recorder = _recorder(cluster)
    cluster.recorder.turn_over(_new_file())
    running.append(cluster.recorder)
    await cluster.recorder.start()


def _recorder(cluster: Cluster) -> Recorder:
    def look(pod: Object, container: str) -> tuple[dict[str, str], str | None]:
        environment = cluster.environment(pod, container)
        folder = cluster.vgpu_folder(pod["spec"]["nodeName"]) / "containers"
        limits = folder / f"{pod['metadata']['uid']}_{container}" / LIMITS_FILE
        return seen_variables(environment), limits.read_text() if limits.exists() else None

    api = Client.from_kubeconfig(cluster.kubeconfig, "recorder")
    return Recorder(api, cluster.device_config, look, KINDS if cluster.serves_claims else CORE_KINDS)


def _new_file() -> Path:
    return HISTORIES / f"{os.getpid()}-{next(_numbers)}.jsonl"


class Verdict:
    """What was found while one test ran, on all its clusters."""

    def __init__(self) -> None:
        self._files: list[Path] = []
        self.findings: list[Finding] = []

    def begin(self) -> None:
        """Start a new file on each running cluster."""
        for recorder in running:
            recorder.turn_over(_new_file())

    def end(self) -> None:
        """Collect what was found."""
        for recorder in list(running):
            if recorder.file is not None:
                self._files.append(recorder.file)
            self.findings += recorder.turn_over(None)
            if recorder.has_stopped:
                running.remove(recorder)

    def problems(self, declared: Iterable[tuple[Rule, str]]) -> list[str]:
        """Return one sentence for each finding that is not *declared* and for each declared rule without a finding."""
        rules = dict(declared)
        found = {finding.rule for finding in self.findings}
        missing = [f"{rule}: declared ({rules[rule]}), and did not happen" for rule in rules if rule not in found]
        return [str(finding) for finding in self.findings if finding.rule not in rules] + missing

    def keep(self, folder: Path) -> None:
        """Move the histories to *folder*, which a failed test leaves."""
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("history-*.jsonl"):
            old.unlink()
        for number, file in enumerate(self._files, start=1):
            file.replace(folder / f"history-{number}.jsonl")

    def forget(self) -> None:
        """Remove the histories."""
        for file in self._files:
            file.unlink(missing_ok=True)
