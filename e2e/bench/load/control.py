"""
The control plane of a benchmark, reached without the relay between its network and this machine's.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from controlplane import parts
from controlplane.cluster import CONTROL, ControlPlane
from controlplane.machines import linux
from controlplane.pki import Authority
from controlplane.programs import build

FOLDER = Path("/var/tmp/hami-scale")


@dataclass(frozen=True, slots=True)
class Control:
    """A running control plane, as this process's network reaches it."""

    kubeconfig: Path
    audit_log: Path
    programs: Path
    """A folder with `kube-scheduler`."""
    kwok: Path
    pids: Mapping[str, int]
    """Its processes, by name."""
    cgroup: str
    """The control group. A group in it for each part has its CPU weight. It is removed with the control plane."""


@contextmanager
def running_control(progress: Callable[[str], None]) -> Iterator[Control]:
    """During a block, run a control plane in FOLDER. This process is in its network from then on, for ever."""
    # Before entering the network, from which no module proxy can be reached.
    kwok = build.made(build.KWOK, progress) / "kwok"
    control = ControlPlane(FOLDER)
    control.down()
    try:
        control.up([], progress)
        yield _entered(control, kwok)
    finally:
        control.down()


def _entered(control: ControlPlane, kwok: Path) -> Control:
    """Enter the network of the control plane, because measured requests must not pass its relay."""
    [machine] = [pid for name, part, pid, _ in control.status() if (name, part) == (CONTROL, "machine")]
    linux.join_network(machine or 0)
    inside = Authority(control.folder / "pki").kubeconfig("admin", parts.INSIDE, control.folder / "inside.kubeconfig")
    pids = {part: pid for name, part, pid, _ in control.status() if name == CONTROL and part != "machine" and pid}
    pids["default kube-scheduler"] = pids.pop("kube-scheduler")
    return Control(inside, control.audit_log, build.binaries(), kwok, pids, control.cgroup)
