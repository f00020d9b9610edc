"""
Find out who limits containers on this Node, and install the hook by which the driver does.

Neighbours: `decide.enforcement` chooses, `driver_part` has chosen how hooks reach containers, `compute` looks for MPS,
`session` asks at its start.
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
from hami_device_plugin.serve.hardware.compute import with_compute
from hamicommon.errors import HamiError
from hamicommon.runtime.host.nvml import Nvml

LOOK_AGAIN_SECONDS = 5.0


def limit_hook(config: Config) -> LimitHook:
    """Return how a runtime runs the hook that `find_enforcement` installs."""
    program = library.versioned(config.vgpu_directory, __version__, library.LIMIT_HOOK_NAME)
    return LimitHook(str(program), config.driver.root, config.cgroup_root)


async def find_enforcement(
    config: Config, nvml: Nvml, uuids: Sequence[str], strategy: Strategy, *, is_identity: bool
) -> Enforcement:
    """
    Return who limits containers with the devices *uuids*, which get them by *strategy*, and by identity or the lock.

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
    found = choose_enforcement(config.memory_enforcement, problem, is_final=is_final)
    return await with_compute(found, config, nvml, gpus, is_identity=is_identity)


async def wait_change(
    before: Enforcement, config: Config, nvml: Nvml, uuids: Sequence[str], strategy: Strategy, *, is_identity: bool
) -> None:
    """Look again, for what is not known for good, until something else is found than *before*."""
    gpus = [uuid for uuid in uuids if not is_instance(uuid)]
    while True:
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
        with suppress(HamiError):
            if before.is_final:
                found = await with_compute(before, config, nvml, gpus, is_identity=is_identity)
            else:
                found = await find_enforcement(config, nvml, uuids, strategy, is_identity=is_identity)
            if found != before:
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
