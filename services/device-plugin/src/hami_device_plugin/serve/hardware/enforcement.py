"""
Find out who limits containers on this Node, and install the hook by which the driver does.

Neighbours: `decide.enforcement` chooses, `driver_part` has chosen how hooks reach containers, `compute` looks for MPS,
`session` asks at its start.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
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
    """Return how a runtime runs the hook that `EnforcementSearch` installs."""
    program = library.versioned(config.vgpu_directory, __version__, library.LIMIT_HOOK_NAME)
    return LimitHook(str(program), config.driver.root, config.cgroup_root)


@dataclass(frozen=True)
class EnforcementSearch:
    """What of this Node decides who limits containers."""

    config: Config
    nvml: Nvml
    uuids: Sequence[str]
    """The devices that containers get."""
    strategy: Strategy
    """How they get them."""
    is_identity: bool
    """Whether containers are told apart by identity, and not by the lock."""

    async def find(self) -> Enforcement:
        """
        Return who limits containers.

        Raises:
            EnforcementError: the settings require the driver, which cannot.
        """
        if self.config.sharing.mode == MIG or not self._gpus:
            return Enforcement(INSTANCES, "each container has MIG instances, which the GPU limits")
        problem, is_final = None, True
        if self.config.memory_enforcement != NONE:
            try:
                problem = await self._problem()
            except HamiError as error:
                problem, is_final = str(error), False
        return await self._with_compute(choose_enforcement(self.config.memory_enforcement, problem, is_final=is_final))

    async def wait_change(self, before: Enforcement) -> None:
        """Look again, for what is not known for good, until something else is found than *before*."""
        while True:
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
            with suppress(HamiError):
                found = await (self._with_compute(before) if before.is_final else self.find())
                if found != before:
                    return

    @property
    def _gpus(self) -> list[str]:
        return [uuid for uuid in self.uuids if not is_instance(uuid)]

    async def _with_compute(self, found: Enforcement) -> Enforcement:
        return await with_compute(found, self.config, self.nvml, self._gpus, is_identity=self.is_identity)

    async def _problem(self) -> str | None:
        """
        Return why the driver cannot limit memory; None if it can and the hook is installed.

        Raises:
            HamiError: the driver does not answer, or the hook cannot be installed.
        """
        if not self.strategy.is_native:
            return f"the driver's hook needs native CDI, and devices reach containers by {self.strategy}"
        if not (Path(self.config.cgroup_root) / "cgroup.controllers").exists():
            return f"it needs cgroup v2, which is not mounted at {self.config.cgroup_root}"
        problem = await limits_problem(self.nvml, self._gpus, self.config.cgroup_root)
        if problem is None:
            await asyncio.to_thread(_install, self.config)
        return problem


def _install(config: Config) -> None:
    library.install(Path(config.limit_hook), config.vgpu_directory, __version__, library.LIMIT_HOOK_NAME)
