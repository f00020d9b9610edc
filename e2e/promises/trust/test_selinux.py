"""
A Node with SELinux enforcing: containers can use what the device plugin makes for them on the host, and nothing else.

A guest has a kernel with SELinux and a policy with the rules of container-selinux for such files. In it runs the code
of the device plugin that makes them.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.guest import kernel, selinux
from controlplane.guest.kernel import Guest
from controlplane.machines.machine import Description, Machine, MachineError
from harness.cluster import ROOT
from testbed import debian

pytestmark = [
    pytest.mark.real_only,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not kernel.runs_here(), reason="user-mode Linux runs on x86_64 only"),
]
VGPU = "/run/vgpu"
DIRECTORY = f"{VGPU}/containers/uid_main"
PROGRAM = Path(__file__).with_name("plugin_in_guest.py")
"""Has the code of the device plugin make a container's files."""
WRITE = "import sys; open(sys.argv[1], 'r+b').write(b'x')"
READ = "import sys; print(open(sys.argv[1]).read(), end='')"
LABELS = """
import os, sys
for path in sys.argv[1:]:
    print(os.getxattr(path, "security.selinux").rstrip(b"\\0").decode())
"""


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """Yield a guest that enforces, in which the device plugin has prepared a container."""
    debian.ensure({**selinux.PACKAGES, "user-mode-linux": kernel.PROGRAM}, print)
    folder = tmp_path_factory.mktemp("selinux")
    group = f"hami-selinux-{os.getpid()}"
    machine = Machine(folder, Description("selinux", group, "/usr/bin", visible=(str(folder), str(ROOT))))
    machine.start()
    found = Guest(machine)
    try:
        found.start()
        selinux.enforce(found)
        found.run([sys.executable, str(PROGRAM), VGPU, DIRECTORY])
        yield found
    finally:
        machine.remove()


def in_container(guest: Guest, program: str, *arguments: str) -> str:
    """Run a Python *program* as a container would, and return what it printed."""
    return guest.run(selinux.in_container([sys.executable, "-c", program, *arguments]))


def test_container_writes_its_region_under_enforcing_selinux(guest: Guest) -> None:
    """Its type may write the files of containers, and its level those without categories."""
    in_container(guest, WRITE, f"{DIRECTORY}/r.cache")

    assert "x" == guest.run(["cat", f"{DIRECTORY}/r.cache"])


@pytest.mark.parametrize(("path", "content"), [(f"{DIRECTORY}/limits", "limits"), (f"{VGPU}/ld.so.preload", "vgpu")])
def test_container_reads_what_it_is_given_under_enforcing_selinux(guest: Guest, path: str, content: str) -> None:
    """Its limits, and the file that makes its programs load the library."""
    assert content in in_container(guest, READ, path)


def test_selinux_keeps_a_container_from_other_files(guest: Guest) -> None:
    """So the label lets it write its region. The process is of root, which the modes of files do not stop."""
    with pytest.raises(MachineError, match="Permission denied"):
        in_container(guest, WRITE, f"{VGPU}/other")


def test_files_of_containers_have_the_documented_label(guest: Guest) -> None:
    """The README of the device plugin names it."""
    shown = guest.run(
        [sys.executable, "-c", LABELS, DIRECTORY, *(f"{DIRECTORY}/{name}" for name in ("r.cache", "limits"))]
    )

    assert {"system_u:object_r:container_file_t:s0"} == set(shown.split())
    assert "`container_file_t` and the level `s0`" in (ROOT / "services/device-plugin/README.md").read_text()
