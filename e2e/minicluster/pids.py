"""
Distinguish a process from a later one with the same pid.

The shim of every container imports this, and must start fast. So it imports nothing.
"""
# Importing pathlib would make the start of a container take half as long again.
# ruff: noqa: PTH123


def start_ticks(pid: int) -> int | None:
    """Return when *pid* started, in clock ticks since boot, or None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])
