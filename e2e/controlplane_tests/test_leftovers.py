"""
A cluster leaves nothing behind, whenever and however it ends.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from controlplane.cluster import ControlPlane
from controlplane.record import FILE
from controlplane_tests.machine_state import Footprint, groups
from testbed.driver.hardware import TWO_NODES
from testbed.folders import FolderInUseError, claimed
from testbed.processes import commands_with

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("able_machine", "driver")]


def _started(folder: Path) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "controlplane", "up", "--folder", str(folder)]
    return subprocess.Popen(
        argv,
        env=os.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _read_until(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if word in line:
            return
    raise AssertionError(f"no {word!r} in {''.join(lines)}")


def _command(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "controlplane", *arguments]
    environment = os.environ
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)


def _left(folder: Path) -> Sequence[object]:
    """Return everything that exists of a cluster in *folder*."""
    cluster = ControlPlane(folder)
    there = [folder] if folder.exists() else []
    return [*there, *commands_with(str(folder)), *groups(cluster.cgroup)]


@pytest.mark.parametrize("word", ["etcd", "containerd", "controllers"])
@pytest.mark.parametrize("seconds", [0.0, 0.4])
def test_killed_up_leaves_no_process_and_down_removes_the_rest(tmp_path: Path, word: str, seconds: float) -> None:
    """It is killed at several moments. Machines end by themselves, and `down` removes folder and groups."""
    folder, before = tmp_path / "cluster", Footprint.now()
    with _started(folder) as process:
        _read_until(process, word)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)

    assert 0 == _command("down", "--folder", str(folder)).returncode

    assert [] == _left(folder)
    assert before == Footprint.now()


def test_cluster_on_the_command_line_outlives_the_command(tmp_path: Path) -> None:
    """It runs until `down`, also after a part has crashed."""
    folder, before = tmp_path / "cluster", Footprint.now()
    up = _command("up", "--folder", str(folder))
    assert (0, f"export KUBECONFIG={folder}/kubeconfig") == (up.returncode, up.stdout.splitlines()[-1]), up.stderr
    cluster = ControlPlane(folder).attach()
    rows = _command("status", "--folder", str(folder)).stdout.splitlines()
    assert "ready" == next(row for row in rows if row.startswith("node-a")).split()[-1]
    cluster.kubectl("create", "deployment", "d", "--image=localhost/pause:3", "--replicas=4")
    cluster.kubectl("rollout", "status", "deployment/d", "--timeout=120s")
    cluster.machine("node-a").kill_service("containerd")

    assert 0 == _command("down", "--folder", str(folder)).returncode

    assert [] == _left(folder)
    assert before == Footprint.now()


def test_down_without_a_cluster_does_nothing(tmp_path: Path) -> None:
    """No folder is created, and status says that there is no cluster."""
    folder = tmp_path / "cluster"

    assert 0 == _command("down", "--folder", str(folder)).returncode
    assert f"no cluster in {folder}\n" == _command("status", "--folder", str(folder)).stdout
    assert not folder.exists()


def test_folder_that_other_code_left_is_used_from_the_start(tmp_path: Path) -> None:
    """Its record cannot be read, and its machines have ended. One line says what happens."""
    folder = tmp_path / "cluster"
    said: list[str] = []
    (folder / "node-z").mkdir(parents=True)
    (folder / FILE).write_text('{"nodes": {"node-z": {"index": 1, "hardware": {"unknown": 1}}}}')
    cluster = ControlPlane(folder)
    try:
        cluster.up([], said.append)

        assert ["removing what an earlier run left"] == [line.rpartition(": ")[2] for line in said if FILE in line]
        assert not (folder / "node-z").exists()
        assert "ok" == cluster.kubectl("get", "--raw=/readyz")
    finally:
        cluster.down()


def test_folder_of_another_run_is_rejected(tmp_path: Path) -> None:
    """The message says what to do."""
    with claimed(tmp_path), pytest.raises(FolderInUseError, match="is in use"):
        ControlPlane(tmp_path).up(TWO_NODES)
