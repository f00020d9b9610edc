"""
A device config that never changes, for virtual time: its file would be read in another thread, where time is real.
"""

import asyncio
import math
from collections.abc import AsyncGenerator

from hamicommon.config.device_config import DeviceConfig
from hamicommon.runtime.program.device_config import DeviceConfigFile


class UnchangingConfig(DeviceConfigFile):
    """The device config of a file as it was at the start."""

    async def changes(self, _poll_seconds: float = math.inf) -> AsyncGenerator[DeviceConfig, None]:
        """Yield nothing, until cancelled."""
        await asyncio.Event().wait()
        yield self.config
