"""
Decide how a container gets its devices and its driver on this Node.

Native CDI (`cdi-cri`, `cdi-annotations`) needs no runtime of NVIDIA's: the spec has the driver's part. The two older
ways (`envvar`, `volume-mounts`) leave that part to NVIDIA's runtime.
Neighbours: `decide.probe.mode` says how allocations find their Pod, `driver_cdi` tries what native CDI needs.
"""

from dataclasses import dataclass

from hami_device_plugin.decide.probe.mode import Mode
from hamicommon.errors import HamiError

ENVVAR, VOLUME_MOUNTS = "envvar", "volume-mounts"
CDI_ANNOTATIONS, CDI_CRI = "cdi-annotations", "cdi-cri"
LIST_STRATEGIES = (ENVVAR, VOLUME_MOUNTS, CDI_ANNOTATIONS, CDI_CRI)
"""HAMi's names of the ways in which devices reach containers."""


class StrategyError(HamiError):
    """The configured strategy does not work on this Node."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """How containers get devices and driver, and why."""

    names: tuple[str, ...]
    """HAMi's names, of which there may be several."""
    reason: str

    @property
    def is_native(self) -> bool:
        """Whether the specs have the driver's part."""
        return is_native(self.names)

    def __str__(self) -> str:
        """Return it as users see it."""
        return f"{','.join(self.names)}: {self.reason}"


def is_native(names: tuple[str, ...]) -> bool:
    """Return whether the strategies *names* include native CDI."""
    return CDI_CRI in names or CDI_ANNOTATIONS in names


def may_be_native(configured: tuple[str, ...], mode: Mode) -> bool:
    """Return whether to try native CDI; *configured* is empty if the plugin may choose."""
    return is_native(configured) or (not configured and mode.is_identity)


def choose_strategy(configured: tuple[str, ...], mode: Mode, problem: str | None) -> Strategy:
    """
    Return the strategy; *problem* is why native CDI does not work here, None if it does.

    A configured strategy is never replaced by another.

    Raises:
        StrategyError: the configured strategy is native CDI, which does not work here.

    >>> choose_strategy((), Mode("identity", "r"), "nvidia-ctk: not found")
    Strategy(names=('envvar',), reason='nvidia-ctk: not found')
    """
    if mode.is_identity:
        found = problem
    else:
        found = f"native CDI needs --allocation=identity, and allocations go by the lock: {mode.reason}"
    if configured:
        if is_native(configured) and found:
            raise StrategyError(f"--device-list-strategy={','.join(configured)}: {found}")
        return Strategy(configured, "configured")
    if found:
        return Strategy((ENVVAR,), found)
    return Strategy((CDI_CRI,), f"{mode.reason}, and the driver is described")
