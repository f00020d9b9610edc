"""
A process killed by SIGKILL while it creates or destroys a MIG instance: the next one finishes or undoes it.
"""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from device_plugin_child import call_in_child
from device_plugin_mig_crash import Step, plugin
from device_plugin_process import DEVICES, needs_fake_driver

pytestmark = needs_fake_driver

CREATE, COMPUTE = "nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstance"
DESTROY_COMPUTE, DESTROY = "nvmlComputeInstanceDestroy", "nvmlGpuInstanceDestroy"
STARTS = [
    pytest.param(("journal", 1, False), id="before it wrote the intention"),
    pytest.param(("journal", 1, True), id="after it wrote the intention"),
    pytest.param((CREATE, 1, True), id="after the GPU instance"),
    pytest.param((COMPUTE, 1, True), id="after the compute instance"),
    pytest.param(("journal", 2, False), id="before it wrote the identity"),
    pytest.param(("journal", 2, True), id="after it wrote the identity"),
    pytest.param(("annotate", 1, True), id="after it wrote the Pod"),
]
ENDS = [
    pytest.param(("journal", 1, False), id="before it wrote the intention"),
    pytest.param(("journal", 1, True), id="after it wrote the intention"),
    pytest.param((DESTROY_COMPUTE, 1, True), id="after the compute instance"),
    pytest.param((DESTROY, 1, True), id="after the GPU instance"),
    pytest.param(("journal", 2, True), id="after it wrote the end"),
]


@pytest.mark.parametrize("step", STARTS)
def test_start_is_finished_by_the_next_process(step: Step, host: Path) -> None:
    """There is one instance; the neighbour keeps its own."""
    run(host, "neighbour")
    before = run(host, "start", step)
    assert -signal.SIGKILL == before["exit"]

    after = run(host, "start")

    assert 2 == len(after["instances"])
    assert set(after["instances"]) == {*after["named"]["neighbour"], *after["named"]["p"]}


@pytest.mark.parametrize("step", STARTS)
def test_start_leaks_nothing_if_its_pod_is_gone(step: Step, host: Path) -> None:
    """Only the neighbour's instance is left."""
    run(host, "neighbour")
    run(host, "start", step)

    after = run(host, "end")

    assert after["named"]["neighbour"] == after["instances"]


@pytest.mark.parametrize("step", ENDS)
def test_end_is_finished_by_the_next_process(step: Step, host: Path) -> None:
    """Only the neighbour's instance is left."""
    run(host, "neighbour")
    run(host, "start")
    before = run(host, "end", step)
    assert -signal.SIGKILL == before["exit"]

    after = run(host, "end")

    assert after["named"]["neighbour"] == after["instances"]


def run(host: Path, what: str, step: Step | None = None) -> dict[str, Any]:
    """Do *what* in a process on the Node *host*, killed at *step*; return its exit code and what it saw at the end."""
    (host / "hardware").mkdir(exist_ok=True)
    (host / "hardware/devices.csv").write_text(DEVICES)
    code = call_in_child(plugin, host, what, step)
    seen = host / "seen.json"
    return {"exit": code, **(json.loads(seen.read_text()) if seen.exists() else {})}
