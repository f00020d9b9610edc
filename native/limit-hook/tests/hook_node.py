"""
A node on which the hook runs: its driver, its cgroups and one container.
"""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.driver.hardware import FakeDriver, FakeNode, StandInCgroups
from testbed.driver.memory_limits import memory_limits

ROOT = Path(__file__).resolve().parents[3]
NODE = FakeNode.of("node", "Fake", 16384, 2)
LEAF = "/kubepods/pod1/c1"
PID = 4242
SANITIZER = os.environ.get("HAMI_SANITIZER_PRELOAD", "")


@dataclass(frozen=True)
class HookNode:
    """A node with two devices, its driver below a root, and a container with the pid PID in the cgroup LEAF."""

    build: Path
    folder: Path
    cgroups: StandInCgroups

    @property
    def driver(self) -> FakeDriver:
        """The node's driver."""
        return FakeDriver(self.folder / "hardware")

    @property
    def leaf(self) -> str:
        """The folder of the container's cgroup."""
        return f"{self.cgroups.root}{LEAF}"

    def show_cgroup(self, text: str) -> None:
        """Let the kernel show *text* as the cgroup of the container's process."""
        file = self.folder / f"proc/{PID}/cgroup"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def environment(self) -> dict[str, str]:
        """Return the environment of a process of the host."""
        variables = {"PATH": os.environ["PATH"], "ASAN_OPTIONS": "detect_leaks=0"}
        return {**variables, "FAKE_DRIVER_DIR": str(self.driver.folder), **self.cgroups.variables("/")}

    def command(self, *arguments: str, root: str = "driver") -> list[str]:
        """Return the command line of the hook with *arguments* and the node's folders."""
        places = ("--driver-root", self.folder / root, "--proc", self.folder / "proc", "--cgroup", self.cgroups.root)
        return [str(word) for word in (self.build / "hami-limit-hook", *places, *arguments)]

    def start(self, *arguments: str, state: bytes, **variables: str) -> "subprocess.Popen[bytes]":
        """Start the hook, and give it the state."""
        process = subprocess.Popen(self.command(*arguments), env=self.environment() | variables, stdin=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(state)
        process.stdin.close()
        return process

    def run(
        self, *arguments: str, state: bytes, root: str = "driver", **variables: str
    ) -> subprocess.CompletedProcess[bytes]:
        """Run the hook as a container runtime does."""
        command = self.command(*arguments, root=root)
        return subprocess.run(
            command, input=state, env=self.environment() | variables, capture_output=True, check=False, timeout=60
        )

    def fail(self, arguments: Sequence[str], state: bytes, root: str = "driver", **variables: str) -> str:
        """Run the hook, and return the one sentence with which it fails."""
        done = self.run(*arguments, state=state, root=root, **variables)
        assert (1, b"") == (done.returncode, done.stdout), done
        [line] = done.stderr.decode().splitlines()
        assert line.startswith("hami-limit-hook: ")
        return line.removeprefix("hami-limit-hook: ")

    def on_host(self) -> dict[str, str]:
        """Return the environment of a process of the host that calls the driver."""
        preload = {"LD_PRELOAD": SANITIZER} if SANITIZER else {}
        return {**self.environment(), "LD_LIBRARY_PATH": str(self.build / "fake_driver"), **preload}

    def limits(self) -> list[str]:
        """Return the soft and the hard limit of each device for the container's cgroup, `none` without."""
        return memory_limits(self.leaf, self.on_host())
