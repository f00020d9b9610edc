"""
Find out who limits containers on this Node, and install the hook by which the driver does.

MPS limits compute only on a Node in mode `mps` whose settings name the folder of MPS's control daemon. Where that limit
would have no effect, the library limits compute, as on any other Node.

Neighbours: `decide.probe.enforcement` chooses, `driver_cdi` has chosen how hooks reach containers, `findings` asks.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hami_device_plugin import __version__
from hami_device_plugin.adapters import cgroups, library
from hami_device_plugin.adapters.mps.control import PROGRAM, MpsControl
from hami_device_plugin.adapters.mps.daemon import daemon_problem
from hami_device_plugin.adapters.nvml.compute import compute_mode_problem, namespaces_problem
from hami_device_plugin.adapters.nvml.limits import limits_problem, pci_addresses
from hami_device_plugin.config.settings import Config
from hami_device_plugin.decide.allocate.cdi.spec import LimitHook
from hami_device_plugin.decide.inventory import MIG, MPS, is_instance
from hami_device_plugin.decide.probe.enforcement import (
    BESIDE_LIBRARY,
    BY_LIBRARY,
    BY_MPS_ALONE,
    INSTANCES,
    NONE,
    Enforcement,
    EnforcementError,
    MpsDaemon,
    MpsServer,
    choose_enforcement,
)
from hami_device_plugin.decide.probe.strategy import Strategy
from hamicommon.errors import HamiError
from hamicommon.runtime.host.nvml import Nvml

LOOK_AGAIN_SECONDS = 5.0


def limit_hook(config: Config) -> LimitHook:
    """Return how a runtime runs the hook that `EnforcementSearch` installs."""
    program = library.versioned(config.vgpu_directory, __version__, library.LIMIT_HOOK_NAME)
    return LimitHook(str(program), config.driver_root, config.cgroup_root)


def mps_daemon(config: Config) -> MpsDaemon | None:
    """Return the MPS control daemon that the settings name; None if containers shall be no clients of one."""
    is_wanted = config.sharing.mode == MPS and config.mps_root
    return MpsDaemon(config.mps_root, config.resource) if is_wanted else None


def mps_server(config: Config) -> MpsServer | None:
    """Return the server of MPS that the settings want; None if they leave compute to the library or an operator."""
    if config.sharing.mode != MPS or config.compute_enforcement == BY_LIBRARY:
        return None
    return MpsServer(config.driver_root, config.driver_root_here, config.compute_enforcement == BY_MPS_ALONE)


class _CannotLimitError(HamiError):
    """The driver cannot limit memory on this Node, as it is."""


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
        problem, backend, is_final = None, "", True
        if self.config.memory_enforcement != NONE:
            try:
                backend = await self._backend()
            except _CannotLimitError as error:
                problem = str(error)
            except HamiError as error:
                problem, is_final = str(error), False
        setting = self.config.memory_enforcement
        return await self._with_compute(choose_enforcement(setting, problem, backend=backend, is_final=is_final))

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
        """
        Return *found* with who limits compute, if the settings name MPS.

        Raises:
            EnforcementError: the settings require it, and it would not hold.
        """
        mps = mps_server(self.config) or mps_daemon(self.config)
        if mps is None:
            return found
        found = replace(found, reason=found.reason.removesuffix(BESIDE_LIBRARY))
        try:
            problem = await self._mps_problem(mps)
        except HamiError as error:
            problem = str(error)
        if problem is None:
            return replace(found, compute=mps.limits, mps=mps, is_compute_final=True)
        if isinstance(mps, MpsServer) and mps.is_required:
            raise EnforcementError(f"--compute-enforcement={BY_MPS_ALONE}: MPS cannot limit compute: {problem}")
        because = f"MPS would not hold: {problem}" if self.is_identity else problem
        # Under the lock a session never finds another answer.
        return replace(
            found, compute=f"the library, because {because}", mps=None, is_compute_final=not self.is_identity
        )

    async def _mps_problem(self, mps: MpsDaemon | MpsServer) -> str | None:
        """
        Return why *mps* would not limit compute; None if it does. The plugin's own server is started.

        Raises:
            HamiError: the driver or MPS does not answer, which is a reason, too.
        """
        if not self.is_identity:
            return "under the node lock answers are HAMi's"
        if isinstance(mps, MpsDaemon):
            problem = await asyncio.to_thread(daemon_problem, mps.pipe, mps.shared_memory)
            return problem or await compute_mode_problem(self.nvml, self._gpus)
        problem = await namespaces_problem(self.nvml, self._gpus)
        if problem is not None:
            return problem
        control = MpsControl(mps, self.config.cgroup_root)
        if not control.is_installed:
            return f"the driver's root {mps.root} has no {PROGRAM}"
        await control.start()
        return None

    async def _backend(self) -> str:
        """
        Return by what the driver limits memory, after the hook is installed.

        Raises:
            _CannotLimitError: it cannot limit memory.
            HamiError: the driver does not answer, or the hook cannot be installed.
        """
        root = Path(self.config.cgroup_root)
        if not self.strategy.is_native:
            raise _CannotLimitError(
                f"the driver's hook needs native CDI, and devices reach containers by {self.strategy}"
            )
        if not await asyncio.to_thread(cgroups.is_mounted, root):
            raise _CannotLimitError(f"it needs cgroup v2, which is not mounted at {root}")
        addresses = await pci_addresses(self.nvml, self._gpus)
        backend = await asyncio.to_thread(cgroups.find_backend, root, addresses.values())
        if backend is None:
            raise _CannotLimitError(
                f"{root} has neither the controller dmem with the GPUs (Linux 6.14) nor misc (CONFIG_CGROUP_MISC)"
            )
        group = await asyncio.to_thread(cgroups.own_group, root)
        problem = await limits_problem(self.nvml, self._gpus, str(group))
        if problem is not None:
            raise _CannotLimitError(problem)
        hook, vgpu = Path(self.config.limit_hook), self.config.vgpu_directory
        await asyncio.to_thread(library.install, hook, vgpu, __version__, library.LIMIT_HOOK_NAME)
        return backend
