"""
The stand-in for NVIDIA's container runtime in mode legacy changes a bundle as it should, and changes nothing else.
"""

import json
import os
import resource
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

SPEC: dict[str, Any] = {
    "ociVersion": "1.2.0",
    "process": {"args": ["sh", "-c", "a && b"], "env": ["PATH=/bin"], "rlimits": [{"type": "x", "hard": 2**64 - 1}]},
    "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
    "linux": {"resources": {"memory": {"limit": 9223372036854771712}}},
}
LIBRARIES = f"/usr/lib/{os.uname().machine}-linux-gnu"


class Runtime:
    """The runtime with a runc that only prints its arguments, on a node with a driver of two libraries."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.bundle = folder / "bundle"
        self.bundle.mkdir()
        self.root = folder / "driver"
        libraries = self.root / LIBRARIES.lstrip("/")
        libraries.mkdir(parents=True)
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            (libraries / name).touch()
        runc = folder / "bin/runc"
        runc.parent.mkdir()
        runc.write_text('#!/bin/sh\necho "$@"\n')
        runc.chmod(0o755)
        self._program = program
        self._environment = {"PATH": f"{runc.parent}:{os.environ['PATH']}"}

    def create(self, *environment: str, arguments: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return config.json after `create`, for a container with *environment* and PATH."""
        process = {**SPEC["process"], "env": [*SPEC["process"]["env"], *environment]}
        (self.bundle / "config.json").write_text(json.dumps({**SPEC, "process": process}))
        self.run(*(arguments or ("--root", "/run/runc", "create", "--bundle", str(self.bundle), "c1")))
        changed: dict[str, Any] = json.loads((self.bundle / "config.json").read_text())
        return changed

    def run(self, *arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run the runtime with its driver instead of the node's."""
        argv = [str(self._program), *arguments]
        environment = {**self._environment, "NVIDIA_DRIVER_ROOT": str(self.root)}
        return subprocess.run(argv, env=environment, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def runtime(programs: Path, tmp_path: Path) -> Runtime:
    """Return a runtime on a new node."""
    return Runtime(programs / "legacy-runtime", tmp_path)


@pytest.mark.parametrize("wanted", ["all", "GPU-1,GPU-2", "0"])
def test_container_with_devices_gets_the_driver(runtime: Runtime, wanted: str) -> None:
    """The libraries are read-only in a folder of the linker."""
    changed = runtime.create(f"NVIDIA_VISIBLE_DEVICES={wanted}")

    added = {mount["destination"]: mount for mount in changed["mounts"][1:]}
    assert {f"{LIBRARIES}/libcuda.so.1", f"{LIBRARIES}/libnvidia-ml.so.1"} == set(added)
    assert f"{runtime.root}{LIBRARIES}/libcuda.so.1" == added[f"{LIBRARIES}/libcuda.so.1"]["source"]
    assert "ro" in added[f"{LIBRARIES}/libcuda.so.1"]["options"]
    assert ["PATH=/bin", f"NVIDIA_VISIBLE_DEVICES={wanted}"] == changed["process"]["env"]


def test_nothing_else_in_the_configuration_changes(runtime: Runtime) -> None:
    """Numbers beyond the precision of a double and special characters of HTML stay, too."""
    changed = runtime.create("NVIDIA_VISIBLE_DEVICES=all")

    changed["process"]["env"] = SPEC["process"]["env"]
    changed["mounts"] = changed["mounts"][:1]
    assert SPEC == changed


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param((), id="unset"),
        pytest.param(("NVIDIA_VISIBLE_DEVICES=",), id="empty"),
        pytest.param(("NVIDIA_VISIBLE_DEVICES=void",), id="void"),
        pytest.param(("NVIDIA_VISIBLE_DEVICES=none",), id="none"),
        pytest.param(("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=none"), id="the last setting counts"),
    ],
)
def test_container_without_devices_is_unchanged(runtime: Runtime, environment: tuple[str, ...]) -> None:
    """Its configuration stays the same, and a node without a driver can start it."""
    shutil.rmtree(runtime.root)

    changed = runtime.create(*environment)

    assert {**SPEC, "process": {**SPEC["process"], "env": ["PATH=/bin", *environment]}} == changed


@pytest.mark.parametrize("form", ["--bundle={}", "-b={}"])
def test_bundle_may_be_named_in_one_argument(runtime: Runtime, form: str) -> None:
    """These are the forms of runc's command line."""
    changed = runtime.create(
        "NVIDIA_VISIBLE_DEVICES=all", arguments=("create", form.format(runtime.bundle), "--pid-file", "p", "c1")
    )

    assert 3 == len(changed["mounts"])


def test_runc_gets_the_same_arguments(runtime: Runtime) -> None:
    """This holds for every command, and only create needs files of the bundle."""
    done = runtime.run("--root", "/r", "delete", "--force", "c1")

    assert (0, "--root /r delete --force c1\n") == (done.returncode, done.stdout)


def test_unreadable_configuration_is_an_error_that_names_it(runtime: Runtime) -> None:
    """containerd shows the message, and runc is not started."""
    (runtime.bundle / "config.json").write_text("{")

    done = runtime.run("create", "--bundle", str(runtime.bundle), "c1")

    assert 1 == done.returncode
    assert f"{runtime.bundle / 'config.json'}: unexpected end of JSON input" in done.stderr
    assert "" == done.stdout


def test_it_costs_a_container_very_little_time(runtime: Runtime) -> None:
    """The cheapest of several runs takes less than 20 ms of a processor, with the start of both processes."""
    cheapest = 1.0
    for _ in range(20):
        began = processor_seconds()
        runtime.run("state", "c1")
        cheapest = min(cheapest, processor_seconds() - began)

    assert cheapest < 0.02


def processor_seconds() -> float:
    """Return what the processes that this one has waited for have used of processors."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
