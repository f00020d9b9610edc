"""
The state of this machine that a cluster could change.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from controlplane.machines import cgroups


@dataclass(frozen=True)
class Footprint:
    """The state of this machine that a cluster must restore."""

    mounts: tuple[str, ...]
    links: tuple[str, ...]
    rules: str
    run: tuple[str, ...]
    tuned: tuple[str, ...]

    @classmethod
    def now(cls) -> "Footprint":
        """Return the present state."""
        mounts = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
        rules = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
        settings = ("kernel/panic", "kernel/panic_on_oops", "vm/overcommit_memory", "net/ipv4/ip_forward")
        return cls(
            mounts=tuple(sorted(mounts)),
            links=tuple(sorted(path.name for path in Path("/sys/class/net").iterdir())),
            rules="\n".join(line for line in rules.splitlines() if not line.startswith("#")),
            run=tuple(sorted(path.name for path in Path("/run").iterdir())),
            tuned=tuple(Path("/proc/sys", setting).read_text() for setting in settings),
        )


def groups(cgroup: str) -> list[Path]:
    """Return the paths of the control group *cgroup* in all hierarchies."""
    return [each.place / cgroup for each in cgroups.hierarchies() if (each.place / cgroup).exists()]
