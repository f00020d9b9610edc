"""
The parts of docs/limiter.md about programs of certain kinds.

Owns their words and tables. Neighbours: `programs` measures, `page` puts the parts together.
"""

from collections.abc import Iterable

from limiter.programs import FIRST_LIMITS, LIMITS, LONGER, Answered, FirstUse, Held
from limiter.tables import table

PROGRAMS_NOTE = """
Each is one container with kernels of 1 ms, with windows of 166 ms and without NVML. The table shows how far it was from
its limit, in points, the worst of both. Kernels beside one that does not end are counted by their number, because the
device is always busy. They wait a second for the long kernel, and then for what they cost themselves. Two ranks have a
device and a limit each, and after each kernel wait until the other one has ended its own: both get the smaller limit.
While a call of the driver is slow, one of two threads is in it and the other one launches.
"""
REQUESTS_NOTE = """
A server that is busy for a twentieth of the time, and a device to itself. The table shows what 99 of 100 requests take
at most. At most the length of one kernel may be added.
"""


FIRST_NOTE = f"""
Kernels of 30 to 70 µs, unless something else is said, are launched in passes, each of which is waited for. The table
shows how long the first pass took, in which their cost is unknown, and the slower of the next two. The first may take
{LONGER} times as long. It is often shorter, because a container begins with unused time.
"""


def first_use_table(first: Iterable[FirstUse]) -> str:
    """Return how long the first pass and the next took, by limit."""
    kinds: dict[str, list[FirstUse]] = {}
    for one in first:
        kinds.setdefault(one.title, []).append(one)
    return table(
        ["program", "no limit", *(f"limit {limit}" for limit in FIRST_LIMITS)],
        (
            [title, f"{found[0].free_ms:.0f} ms", *(f"{one.first_ms:.0f}, then {one.next_ms:.0f} ms" for one in found)]
            for title, found in kinds.items()
        ),
    )


def programs_table(held: Iterable[Held]) -> str:
    """Return how far each program was from its limit."""
    errors: dict[str, dict[int, list[float]]] = {}
    for one in held:
        errors.setdefault(one.program.title, {}).setdefault(one.program.limit, []).append(one.error)
    return table(
        ["program", *(f"limit {limit}" for limit in LIMITS)],
        (
            [title, *(f"{max(found[limit], key=abs):+.1f}" if limit in found else "" for limit in LIMITS)]
            for title, found in errors.items()
        ),
    )


def requests_table(answered: Iterable[Answered]) -> str:
    """Return what requests of each kind took, at worst of all windows of NVML."""
    kinds: dict[str, list[Answered]] = {}
    for one in answered:
        kinds.setdefault(one.title, []).append(one)

    def held_ms(found: list[Answered], limit: int) -> str:
        return f"{max(one.held_ms for one in found if one.limit == limit):.2f} ms"

    return table(
        ["request", "without a limit", *(f"limit {limit}" for limit in LIMITS)],
        (
            [title, f"{min(one.free_ms for one in found):.2f} ms", *(held_ms(found, limit) for limit in LIMITS)]
            for title, found in kinds.items()
        ),
    )
