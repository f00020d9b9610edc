"""
Find out who limits device memory on this Node, and install the hook by which the driver does.

Neighbours: `decide.enforcement` chooses, `driver_part` has chosen how hooks reach containers, `session` asks at its
start.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hami_device_plugin import __version__
from hami_device_plugin.adapters import library
from hami_device_plugin.adapters.nvml.limits import limits_problem
from hami_device_plugin.config.settings import Config
from hami_device_plugin.decide.cdi.spec import LimitHook
from hami_device_plugin.decide.cdi.strategy import Strategy
from hami_device_plugin.decide.enforcement import INSTANCES, NONE, Enforcement, choose_enforcement
from hami_device_plugin.decide.inventory import is_instance
from hami_device_plugin.decide.mig.offer import MODE as MIG
from hamicommon.errors import HamiError
from hamicommon.runtime.host.nvml import Nvml

LOOK_AGAIN_SECONDS = 5.0


def limit_hook(config: Config) -> LimitHook:
    """Return how a runtime runs the hook that `find_enforcement` installs."""
    program = library.versioned(config.vgpu_directory, __version__, library.LIMIT_HOOK_NAME)
    return LimitHook(str(program), config.driver.root, config.cgroup_root)


async def find_enforcement(config: Config, nvml: Nvml, uuids: Sequence[str], strategy: Strategy) -> Enforcement:
    """
    Return who limits the memory of containers with the devices *uuids*, which get them by *strategy*.

    Raises:
        EnforcementError: the settings require the driver, which cannot.
    """
    gpus = [uuid for uuid in uuids if not is_instance(uuid)]
    if config.sharing.mode == MIG or not gpus:
        return Enforcement(INSTANCES, "each container has MIG instances, which the GPU limits")
    problem, is_final = None, True
    if config.memory_enforcement != NONE:
        try:
            problem = await _problem(config, nvml, gpus, strategy)
        except HamiError as error:
            problem, is_final = str(error), False
    return choose_enforcement(config.memory_enforcement, problem, is_final=is_final)


async def wait_answer(config: Config, nvml: Nvml, uuids: Sequence[str], strategy: Strategy) -> None:
    """Look again until it is known whether the driver can limit memory, after a look that failed."""
    gpus = [uuid for uuid in uuids if not is_instance(uuid)]
    while True:
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
        with suppress(HamiError):
            await _problem(config, nvml, gpus, strategy)
            return


async def _problem(config: Config, nvml: Nvml, gpus: Sequence[str], strategy: Strategy) -> str | None:
    """
    Return why the driver cannot limit memory on *gpus*; None if it can and the hook is installed.

    Raises:
        HamiError: the driver does not answer, or the hook cannot be installed.
    """
    if not strategy.is_native:
        return f"its hook needs native CDI, and devices reach containers by {strategy}"
    if not (Path(config.cgroup_root) / "cgroup.controllers").exists():
        return f"it needs cgroup v2, which is not mounted at {config.cgroup_root}"
    problem = await limits_problem(nvml, gpus, config.cgroup_root)
    if problem is None:
        await asyncio.to_thread(_install, config)
    return problem


def _install(config: Config) -> None:
    library.install(Path(config.limit_hook), config.vgpu_directory, __version__, library.LIMIT_HOOK_NAME)
