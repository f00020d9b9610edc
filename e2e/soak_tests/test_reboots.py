"""
Two faults that cut the power of one Node at once.
"""

import asyncio
import time
from collections import defaultdict
from typing import Any

from soak.real import RealSoakCluster


class Power:
    """A Node that takes a moment to boot, and remembers how many boots it saw at once."""

    def __init__(self) -> None:
        self.boots = 0
        self.most_at_once = 0
        self._now = 0

    def restart(self) -> None:
        """Boot."""
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        time.sleep(0.05)
        self._now -= 1
        self.boots += 1


async def test_node_is_booted_once_at_a_time() -> None:
    """The second cut waits for the first boot: two at once would fight for the machine, which no power cut does."""
    powers: defaultdict[str, Power] = defaultdict(Power)
    plane: Any = type("Plane", (), {"node": staticmethod(lambda name: powers[name])})
    cluster = RealSoakCluster.__new__(RealSoakCluster)
    cluster.control_plane, cluster._booting = plane, defaultdict(asyncio.Lock)

    await asyncio.gather(*(cluster.reboot(name) for name in ("a", "a", "b")))

    assert {"a": (2, 1), "b": (1, 1)} == {name: (power.boots, power.most_at_once) for name, power in powers.items()}
