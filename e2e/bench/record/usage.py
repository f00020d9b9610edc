"""
Processor time and memory of processes and of this machine, from /proc.

Source: proc(5), https://docs.kernel.org/scheduler/sched-stats.html
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage at one moment. The difference of two is the usage in between."""

    cpu_seconds: Mapping[str, float]
    """By name of the process."""
    memory_mib: Mapping[str, int]
    """Resident memory with shared pages."""
    busy_seconds: float
    """The busy time of all processors."""

    @classmethod
    def now(cls, pids: Mapping[str, int]) -> "Usage":
        """Read the usage of the processes *pids*, by name, and of this machine."""
        cpu = {name: _cpu_seconds(pid) for name, pid in pids.items()}
        memory = {name: _memory_mib(pid) for name, pid in pids.items()}
        return cls(cpu, memory, _busy_seconds())

    def since(self, before: "Usage") -> dict[str, float]:
        """Return the seconds of processor time since *before*, by name. `others` is that of all other processes."""
        used = {name: cpu - before.cpu_seconds[name] for name, cpu in self.cpu_seconds.items()}
        return {**used, "others": max(0.0, self.busy_seconds - before.busy_seconds - sum(used.values()))}


def processor_seconds(pid: int) -> float:
    """Return the processor time of the threads that the process *pid* has, to the nanosecond."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def _cpu_seconds(pid: int) -> float:
    """Return user and system time of all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_memory_mib(pid: int) -> int:
    """Return the most resident memory that the process *pid* has had, with shared pages."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) // 1024


def _memory_mib(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES // _MIB


def _busy_seconds() -> float:
    user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq) / _TICKS
