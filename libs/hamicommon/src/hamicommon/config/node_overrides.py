"""
`config.json`: settings of single Nodes that override the device config's `nvidia` section.

Keys match in any case, as in Go's decoder. A number 0 keeps the device config's value, as in HAMi's merge. `false` is
applied, so that a Node can switch a setting off.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/nvidia/device.go (DevicePluginConfigs)
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import orjson

from hamicommon.config.device_config import ConfigError
from hamicommon.vendors.nvidia import NvidiaConfig
from hamicommon.wire.go.yaml_reader import Report

OPERATING_MODES = ("hami-core", "mig", "mps")


@dataclass(frozen=True, slots=True)
class NodeOverride:
    """One entry. None or empty: the device config's value applies."""

    name: str
    operating_mode: str | None = None
    device_split_count: int | None = None
    device_memory_scaling: float | None = None
    device_core_scaling: float | None = None
    pre_configured_device_memory_mib: int | None = None
    lib_cuda_log_level: int | None = None
    enable_numa_topology: bool | None = None
    preferred_allocation: bool | None = None
    excluded_uuids: tuple[str, ...] = ()
    excluded_indices: tuple[int, ...] = ()
    claim_uuids: tuple[str, ...] = ()
    """Ours: devices that serve ResourceClaims where the others of the Node serve Pods that ask by resources."""
    claim_indices: tuple[int, ...] = ()


_OF_THE_CONFIG = {each.name for each in fields(NodeOverride)} & {each.name for each in fields(NvidiaConfig)}
"""The fields that override the `nvidia` section's of the same name."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """The settings of one Node."""

    nvidia: NvidiaConfig
    operating_mode: str = "hami-core"
    preferred_allocation: bool = False
    excluded_uuids: frozenset[str] = frozenset()
    """Devices the plugin does not offer, by UUID and by index."""
    excluded_indices: frozenset[int] = frozenset()
    claim_uuids: frozenset[str] = frozenset()
    """Devices that serve ResourceClaims where the others of the Node serve Pods that ask by resources."""
    claim_indices: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class NodeOverrides:
    """The file. `warnings` lists what was ignored, as `path: reason`."""

    entries: tuple[NodeOverride, ...] = ()
    warnings: tuple[str, ...] = ()

    def apply(self, config: NvidiaConfig, node_name: str) -> NodeConfig:
        """Return *config* for *node_name*, with every entry of that name applied in order."""
        result = NodeConfig(config)
        for entry in self.entries:
            if entry.name == node_name:
                result = _applied(entry, result)
        return result


def load_node_overrides(text: str | bytes) -> NodeOverrides:
    """
    Return the overrides in *text*; an empty text has none.

    Raises:
        ConfigError: the text is not JSON of the right shape; `problems` lists everything that is wrong.
    """
    report = Report()
    entries = _read_file(text, report)
    if report.problems:
        raise ConfigError(tuple(report.problems))
    return NodeOverrides(tuple(entries), tuple(report.warnings))


def _applied(entry: NodeOverride, so_far: NodeConfig) -> NodeConfig:
    given = {name: value for name in _OF_THE_CONFIG if (value := getattr(entry, name)) is not None}
    return NodeConfig(
        nvidia=replace(so_far.nvidia, **given),
        operating_mode=entry.operating_mode or so_far.operating_mode,
        preferred_allocation=(
            so_far.preferred_allocation if entry.preferred_allocation is None else entry.preferred_allocation
        ),
        excluded_uuids=so_far.excluded_uuids | set(entry.excluded_uuids),
        excluded_indices=so_far.excluded_indices | set(entry.excluded_indices),
        claim_uuids=so_far.claim_uuids | set(entry.claim_uuids),
        claim_indices=so_far.claim_indices | set(entry.claim_indices),
    )


def _read_file(text: str | bytes, report: Report) -> list[NodeOverride]:
    if not text.strip():
        return []
    try:
        root = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        report.problem("(file)", f"is not JSON: {error}")
        return []
    if not isinstance(root, dict):
        report.problem("(file)", "must be an object with a list under nodeconfig")
        return []
    listed = _lowered(root).get("nodeconfig")
    if not isinstance(listed, list | None):
        report.problem("nodeconfig", "must be a list")
        return []
    return [_read_entry(item, f"nodeconfig[{index}]", report) for index, item in enumerate(listed or [])]


def _read_entry(item: object, path: str, report: Report) -> NodeOverride:
    if not isinstance(item, dict):
        report.problem(path, "must be an object")
        return NodeOverride("")
    entry = _Entry(item, path, report)
    filtered = _Entry(entry.take("filterdevices", dict) or {}, f"{path}.filterdevices", report)
    by_claims = _Entry(entry.take("claimdevices", dict) or {}, f"{path}.claimdevices", report)
    result = NodeOverride(
        name=entry.text("name") or "",
        operating_mode=entry.text("operatingmode", OPERATING_MODES),
        device_split_count=entry.whole("devicesplitcount"),
        device_memory_scaling=entry.number("devicememoryscaling"),
        device_core_scaling=entry.number("devicecorescaling"),
        pre_configured_device_memory_mib=entry.whole("preconfigureddevicememory"),
        lib_cuda_log_level=entry.whole("libcudaloglevel"),
        enable_numa_topology=entry.take("enablenumatopology", bool),
        preferred_allocation=entry.take("enablegetpreferredallocation", bool),
        excluded_uuids=filtered.items("uuid", str),
        excluded_indices=filtered.items("index", int),
        claim_uuids=by_claims.items("uuid", str),
        claim_indices=by_claims.items("index", int),
    )
    if (entry.take("migstrategy", str) or "none") != "none":
        report.warn(f"{path}.migstrategy", "has no effect; set flags.migStrategy in the device config")
    entry.warn_of_rest()
    filtered.warn_of_rest()
    by_claims.warn_of_rest()
    return result


class _Entry:
    """Takes values of known kinds from a JSON object, and reports all others."""

    def __init__(self, values: Mapping[str, Any], path: str, report: Report) -> None:
        self._values = _lowered(values)
        self._path = path
        self._report = report

    def take(self, name: str, kind: type[Any]) -> Any:
        """Return the value of *name* if it is of *kind*, None if it is absent or was reported."""
        value = self._values.pop(name, None)
        if value is None or (isinstance(value, kind) and not (kind is int and isinstance(value, bool))):
            return value
        self._report.problem(f"{self._path}.{name}", f"must be {_KINDS[kind]}, not {str(value)[:40]!r}")
        return None

    def text(self, name: str, choices: tuple[str, ...] = ()) -> str | None:
        """Return a text, None if it is empty; *choices* lists the valid ones."""
        value: str | None = self.take(name, str) or None
        if value is not None and choices and value not in choices:
            self._report.problem(f"{self._path}.{name}", f"{value[:40]!r} is none of {', '.join(choices)}")
        return value

    def whole(self, name: str) -> int | None:
        """Return a whole number, None if it is 0."""
        number = self.number(name)
        if number is not None and not number.is_integer():
            self._report.problem(f"{self._path}.{name}", f"{number} is not a whole number")
            return None
        return None if number is None else int(number)

    def number(self, name: str) -> float | None:
        """Return a number of 0 or more, None if it is 0. The log level may be in quotes."""
        value = self._values.pop(name, None)
        if isinstance(value, str) and name == "libcudaloglevel" and value.isascii() and value.isdigit():
            value = int(value[:9])
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self._report.problem(f"{self._path}.{name}", f"must be a number, not {str(value)[:40]!r}")
            return None
        if not 0 <= value < 2**31:
            self._report.problem(f"{self._path}.{name}", f"{value} is not in 0 to 2147483647")
            return None
        return float(value) or None

    def items(self, name: str, kind: type[Any]) -> tuple[Any, ...]:
        """Return a list whose items are of *kind*."""
        values = self.take(name, list) or []
        for value in values:
            if not isinstance(value, kind) or isinstance(value, bool):
                self._report.problem(f"{self._path}.{name}", f"must list {_KINDS[kind]} only, not {str(value)[:40]!r}")
        return tuple(values)

    def warn_of_rest(self) -> None:
        """Report the values that were not taken as unknown keys."""
        for name in self._values:
            self._report.warn(f"{self._path}.{name[:60]}", "unknown key, ignored")


_KINDS = {str: "text", bool: "true or false", int: "a whole number", dict: "an object", list: "a list"}


def _lowered(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name.lower(): value for name, value in values.items()}
