"""
The settings of HAMi and NVIDIA that are accepted without effect, each with the reason.

Old manifests and device configs contain them. Each one in use is logged once.
Neighbours: `settings` accepts the flags, `loader` asks which are used.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class IgnoredFlag:
    """One flag of HAMi that has no effect, from any source."""

    name: str
    reason: str
    env: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    """Path in the device config."""
    is_bool: bool = False


_NO_HOOK = "specs name the nvidia-cdi-hook that is installed from --cdi-hook"
IGNORED_FLAGS = (
    IgnoredFlag("device-split-count", "set nvidia.deviceSplitCount in the device config", ("DEVICE_SPLIT_COUNT",)),
    IgnoredFlag(
        "device-memory-scaling", "set nvidia.deviceMemoryScaling in the device config", ("DEVICE_MEMORY_SCALING",)
    ),
    IgnoredFlag("device-cores-scaling", "set nvidia.deviceCoreScaling in the device config", ("DEVICE_CORES_SCALING",)),
    IgnoredFlag("resource-name", "set nvidia.resourceCountName in the device config"),
    IgnoredFlag("nvidia-cdi-hook-path", _NO_HOOK, ("NVIDIA_CDI_HOOK_PATH",)),
    IgnoredFlag(
        "nvidia-ctk-path",
        "--cdi-generator names the nvidia-ctk that is run",
        ("NVIDIA_CTK_PATH",),
        ("flags", "plugin", "nvidiaCTKPath"),
    ),
    IgnoredFlag(
        "disable-core-limit",
        "set nvidia.disableCoreLimit in the device config",
        ("DISABLE_CORE_LIMIT",),
        is_bool=True,
    ),
)
_READ_ELSEWHERE = {("sharing", "timeSlicing"), ("sharing", "mps")}
"""By `time_slicing`, and by the loader, which refuses the latter."""


def used_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each variable in *environ* that has no effect."""
    for flag in IGNORED_FLAGS:
        yield from (f"{name}: {flag.reason}" for name in flag.env if environ.get(name))


def used_keys(device_config: Mapping[str, Any], known: Collection[tuple[str, ...]]) -> Iterator[str]:
    """Yield a sentence for each key that is not *known*, in the sections of NVIDIA's own plugin."""
    reasons = {flag.key: f"has no effect: {flag.reason}" for flag in IGNORED_FLAGS}
    for section in ("flags", "imex", "sharing"):
        for key in _leaves(device_config.get(section), (section,)):
            if key not in known and key[:2] not in _READ_ELSEWHERE:
                yield f"{'.'.join(key)}: {reasons.get(key, 'unknown key, ignored')}"
    if device_config.get("resources"):
        yield "resources: has no effect: the section nvidia defines what is registered"


def _leaves(node: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the path of every value below *node* that is not a mapping."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield from _leaves(value, (*path, str(name)))
    elif node is not None:
        yield path
