"""
Decide who limits device memory and compute on a Node.

The driver limits a container's cgroup, for every program in it. The library limits the processes that load it. A MIG
instance is limited by its GPU. Where the driver can, it limits memory, and the library limits compute, counts managed
memory and shows the share.
Neighbours: `serve.probe.enforcement` finds out what the driver can, `allocate.container_limits` decides for each
container.
"""

from dataclasses import dataclass

from hamicommon.errors import HamiError

AUTO, REQUIRED, NONE = "auto", "required", "none"
SETTINGS = (AUTO, REQUIRED, NONE)
BY_LIBRARY, BY_MPS, BY_MPS_ALONE = "library", "mps", "mps-required"
COMPUTE_SETTINGS = (BY_LIBRARY, BY_MPS, BY_MPS_ALONE)
LIBRARY, DRIVER, INSTANCES = "library", "driver", "mig"
LIMITERS = (LIBRARY, DRIVER, INSTANCES)
DMEM, MISC = "dmem", "misc"
BACKENDS = (DMEM, MISC)
"""What holds the driver's limits: the kernel's controller dmem, or the driver itself by the controller misc."""
BESIDE_LIBRARY = ", the library limits compute"
_CONTAINER_ROOT = "/mps"


class EnforcementError(HamiError):
    """Memory cannot be limited as the settings or a Pod demand."""


@dataclass(frozen=True, slots=True)
class MpsDaemon:
    """Where the MPS control daemon of a Node meets its clients."""

    root: str
    """The folder on the host, here under the same path."""
    resource: str
    """The resource whose devices it has, such as `nvidia.com/gpu`."""

    @property
    def limits(self) -> str:
        """Who limits compute by it, for people."""
        return "MPS"

    @property
    def pipe(self) -> str:
        """The folder of its pipes."""
        return f"{self.root}/{self.resource}/pipe"

    @property
    def shared_memory(self) -> str:
        """The folder that it and its clients have as `/dev/shm`."""
        return f"{self.root}/shm"

    @property
    def pipe_in_container(self) -> str:
        """The folder of its pipes as containers see it."""
        return f"{_CONTAINER_ROOT}/{self.resource}/pipe"


@dataclass(frozen=True, slots=True)
class MpsServer:
    """The server of MPS that the plugin keeps on this Node, with a namespace for each container."""

    root: str
    """The driver's root on the host."""
    root_here: str
    """The same, in this container."""
    is_required: bool
    """Whether devices take no other programs, and containers that may be root do not start."""
    folder: str = "/run/hami/mps"
    """The folder of the control daemon, in the driver's root."""
    name: str = "hami"

    @property
    def limits(self) -> str:
        """Who limits compute by it, for people."""
        others = "" if self.is_required else ", and the library that of containers that may be root"
        return f"MPS, by a namespace for each container{others}"

    @property
    def folder_here(self) -> str:
        """The folder of the control daemon, in this container."""
        return self.root_here.rstrip("/") + self.folder

    def pipe(self, namespace: str) -> str:
        """Return the folder of *namespace* on the host."""
        return f"{self.root.rstrip('/')}{self.folder}/{self.name}/{namespace}"


@dataclass(frozen=True, slots=True)
class Enforcement:
    """Who limits memory on a Node, and why."""

    by: str
    """One of LIMITERS."""
    reason: str
    is_final: bool = True
    """False if it is unknown what the driver can, because it did not answer."""
    compute: str = ""
    """Who limits compute, and why; empty if the settings leave it to the library."""
    mps: MpsDaemon | MpsServer | None = None
    """By what MPS limits compute, an operator's daemon or the plugin's server; None if the library does."""
    is_compute_final: bool = True
    """False if MPS would limit compute, and does not yet."""
    backend: str = ""
    """One of BACKENDS if the driver limits memory; else empty."""

    def __str__(self) -> str:
        """Return it as users see it."""
        return f"{self.by}: {self.reason}" + (f"; compute: {self.compute}" if self.compute else "")


def choose_enforcement(setting: str, problem: str | None, *, backend: str = "", is_final: bool = True) -> Enforcement:
    """
    Return who limits memory by *setting*; *problem* is why the driver cannot, None if it can, by *backend*.

    Unless *is_final*, another look may find another problem, or none.

    Raises:
        EnforcementError: the setting requires the driver, which cannot.

    >>> str(choose_enforcement("auto", "GPU-a: Not Supported"))
    'library: GPU-a: Not Supported'
    """
    if setting == NONE:
        return Enforcement(LIBRARY, "--memory-enforcement=none")
    if problem is None:
        return Enforcement(DRIVER, f"the driver limits memory by cgroup ({backend}){BESIDE_LIBRARY}", backend=backend)
    if setting == REQUIRED:
        raise EnforcementError(f"--memory-enforcement=required: the driver cannot limit memory: {problem}")
    return Enforcement(LIBRARY, problem, is_final)
