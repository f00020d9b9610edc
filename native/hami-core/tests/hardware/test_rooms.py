"""
The rooms of the fake driver use one another in one direction.
"""

import re

from containers import HERE

ORDER = [{"exports"}, {"driver"}, {"hardware"}, {"time"}, {"nvml", "cuda", "mps"}]
"""From the bottom, as its README lists them."""


def test_a_room_includes_only_itself_and_rooms_below() -> None:
    """
    No file names a header of another room beside or above its own.
    """
    below: set[str] = set()
    for level in ORDER:
        for room in level:
            files = [path for path in (HERE / "fake_driver" / room).rglob("*") if path.suffix in (".c", ".h", ".S")]
            includes = {name for path in files for name in re.findall(r'^#include "(\w+)/', path.read_text(), re.M)}
            assert (room, set()) == (room, includes - below - {room, "hami"})
            assert files
        below |= level
