"""
Read `sharing.timeSlicing` of NVIDIA's plugin: into how many replicas each device is divided.

Its replicas are what `nvidia.deviceSplitCount` counts, so they become an entry like those of `config.json`.
Neighbours: `loader` says which entry wins.
Source: https://github.com/NVIDIA/k8s-device-plugin/blob/v0.20.0/api/config/v1/replicas.go
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hamicommon.config.device_config import ConfigError
from hamicommon.config.node_overrides import NodeOverride

PATH = "sharing.timeSlicing"
REPLICAS_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class TimeSlicing:
    """The section of one file; without one nothing is set."""

    replicas: int | None = None
    """Replicas of each device; None if the file does not say."""
    is_one_at_most: bool = False
    """Whether a container may have only one replica (`failRequestsGreaterThanOne`)."""
    warnings: tuple[str, ...] = ()
    """One sentence for each part without effect."""

    def entry(self, node_name: str) -> NodeOverride:
        """Return the setting of the Node *node_name*."""
        return NodeOverride(node_name, device_split_count=self.replicas)


def read_time_slicing(root: Mapping[str, Any], resource: str) -> TimeSlicing:
    """
    Return what the config *root* says of *resource*, such as `nvidia.com/gpu`.

    Raises:
        ConfigError: a value is not what NVIDIA's plugin takes; `problems` lists everything that is wrong.
    """
    sharing = root.get("sharing") or {}
    section = (sharing.get("timeSlicing") or {}) if isinstance(sharing, dict) else sharing
    listed = (section.get("resources") or []) if isinstance(section, dict) else section
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise ConfigError((f"{PATH}: must be a mapping with a list under resources, each with name and replicas",))
    problems: list[str] = []
    warnings = []
    replicas = None
    for number, each in enumerate(listed):
        place, name = f"{PATH}.resources[{number}]", each.get("name")
        count = each.get("replicas")
        if not isinstance(name, str):
            problems.append(f"{place}.name: must be the name of a resource, such as {resource}")
        elif not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= REPLICAS_MAX:
            problems.append(f"{place}.replicas: must be a whole number from 1 on, not {str(count)[:40]!r}")
        elif name == resource:
            replicas = count
        else:
            warnings.append(f"{place}: has no effect: this plugin shares {resource}, not {name[:60]}")
        if each.get("rename"):
            warnings.append(f"{place}.rename: has no effect: the scheduler knows the resource as {resource}")
        if each.get("devices", "all") != "all":
            warnings.append(f"{place}.devices: has no effect: all devices of a Node are divided alike")
    is_one_at_most = _flag(section, "failRequestsGreaterThanOne", problems)
    if _flag(section, "renameByDefault", problems):
        warnings.append(f"{PATH}.renameByDefault: has no effect: the scheduler knows the resource as {resource}")
    if problems:
        raise ConfigError(tuple(problems))
    return TimeSlicing(replicas, is_one_at_most, tuple(warnings))


def _flag(section: Mapping[str, Any], name: str, problems: list[str]) -> bool:
    value = section.get(name) or False
    if not isinstance(value, bool):
        problems.append(f"{PATH}.{name}: must be true or false, not {str(value)[:40]!r}")
    return value is True
