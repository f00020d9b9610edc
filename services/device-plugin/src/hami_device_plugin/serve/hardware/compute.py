"""
Find out whether CUDA MPS limits compute on this Node.

Only on a Node in mode `mps` whose settings name the folder of MPS's control daemon. Where the limit would not hold, the
library limits compute, as on any other Node.
Neighbours: `enforcement` asks, `decide.mps` has what containers get.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from hami_device_plugin.adapters.mps import daemon_problem
from hami_device_plugin.adapters.nvml.compute_mode import compute_mode_problem
from hami_device_plugin.config.settings import Config
from hami_device_plugin.decide.enforcement import BESIDE_LIBRARY, Enforcement
from hami_device_plugin.decide.mps import MODE, MpsDaemon
from hamicommon.errors import HamiError
from hamicommon.runtime.host.nvml import Nvml


def mps_daemon(config: Config) -> MpsDaemon | None:
    """Return the MPS control daemon that the settings name; None if containers shall be no clients of one."""
    is_wanted = config.sharing.mode == MODE and config.mps_root
    return MpsDaemon(config.mps_root, config.resource) if is_wanted else None


async def with_compute(
    found: Enforcement, config: Config, nvml: Nvml, gpus: Sequence[str], *, is_identity: bool
) -> Enforcement:
    """Return *found* with who limits compute on *gpus*, if the settings name a daemon."""
    daemon = mps_daemon(config)
    if daemon is None:
        return found
    found = replace(found, reason=found.reason.removesuffix(BESIDE_LIBRARY))
    if not is_identity:
        return replace(found, compute="the library, because under the node lock answers are HAMi's")
    problem = await asyncio.to_thread(daemon_problem, daemon.pipe, daemon.shared_memory)
    try:
        problem = problem or await compute_mode_problem(nvml, gpus)
    except HamiError as error:
        problem = str(error)
    if problem is None:
        return replace(found, compute="MPS", mps=daemon, is_compute_final=True)
    because = f"the library, because MPS would not hold: {problem}"
    return replace(found, compute=because, mps=None, is_compute_final=False)
