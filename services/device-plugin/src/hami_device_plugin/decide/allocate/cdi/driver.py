"""
Read the generator's description of the node's driver, and select what some devices need.

Owns the translation of paths: the generator sees the driver where this container has it mounted, and a runtime reads
the host's paths.
Neighbours: `edits` joins, `generator` runs the program, `driver_cdi` asks for the selection.
Source: https://github.com/NVIDIA/nvidia-container-toolkit/blob/v1.20.1/pkg/nvcdi/transform/root/host-root.go
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import orjson

from hami_device_plugin.decide.allocate.cdi.edits import Edits, Json, SpecError, decode_edits

ALL_DEVICES = "all"
"""The only device of the generator's modes for features, such as `gds`."""
_IN_CONTAINER = frozenset({"createContainer", "startContainer"})
"""Hooks whose arguments are paths in the container."""


@dataclass(frozen=True, slots=True)
class Root:
    """A directory of the host that has another path here."""

    here: str
    host: str

    def on_host(self, path: str) -> str:
        """
        Return the host's path of *path*; a path outside the root stays.

        >>> Root("/driver-root", "/").on_host("/driver-root/usr/lib/libcuda.so.1")
        '/usr/lib/libcuda.so.1'
        >>> Root("/", "/run/nvidia/driver").on_host("/dev/nvidia0")
        '/run/nvidia/driver/dev/nvidia0'
        >>> Root("/driver-root", "/").on_host("/driver-roots/x")
        '/driver-roots/x'
        """
        here = self.here.rstrip("/")
        if path != here and not path.startswith(f"{here}/"):
            return path
        return f"{self.host.rstrip('/')}{path.removeprefix(here)}" or "/"


@dataclass(frozen=True, slots=True)
class DriverSpec:
    """What containers need of the node's driver, with the host's paths."""

    version: str = "0.3.0"
    """The oldest version of CDI that has all its fields."""
    common: Edits = field(default_factory=Edits)
    """For every container with a device."""
    devices: Mapping[str, Edits] = field(default_factory=dict)
    """By the device's name, which is its UUID."""

    def __add__(self, later: "DriverSpec") -> "DriverSpec":
        """Return both, *later* last."""
        return DriverSpec(
            version=newest(self.version, later.version),
            common=self.common + later.common,
            devices={**self.devices, **later.devices},
        )

    def for_all(self) -> "DriverSpec":
        """Return the same with the edits of all devices for every container."""
        return replace(self, common=self.selected(self.devices), devices={})

    def selected(self, uuids: Iterable[str]) -> Edits:
        """
        Return the edits for a container with the devices *uuids*.

        Raises:
            SpecError: a device is missing.
        """
        edits = self.common
        for uuid in uuids:
            if uuid not in self.devices:
                raise SpecError(f"device {uuid} is not in the description of the driver ({', '.join(self.devices)})")
            edits += self.devices[uuid]
        return edits


def with_device_files(edits: Edits, minors: Mapping[str, int], major: int | None) -> Edits:
    """
    Return *edits* with a device node for each path of *minors*, its minor number, that they lack.

    The generator leaves out a device file that does not exist on the host, and the driver makes those of a MIG instance
    when a program first uses the instance. A runtime makes the container's file by its numbers; *major* is the driver's
    major number, None if the kernel has none.

    Raises:
        SpecError: a device node is missing, and *major* too.
    Source: https://github.com/cncf-tags/container-device-interface/blob/v1.0.1/pkg/cdi/container-edits_unix.go
    """
    missing = [path for path in minors if path not in edits.device_nodes]
    if missing and major is None:
        raise SpecError(
            f"device file {missing[0]} does not exist, and /proc/devices has no nvidia-caps; make it on the host: "
            "nvidia-modprobe -f with the path of its capability in /proc/driver/nvidia/capabilities"
        )
    nodes = {path: {"path": path, "type": "c", "major": major, "minor": minors[path]} for path in missing}
    return edits + Edits(device_nodes=nodes)


@cache
def newest(*versions: str) -> str:
    """
    Return the newest of CDI's *versions*.

    >>> newest("0.10.0", "0.9.1")
    '0.10.0'
    """
    return max(versions, key=lambda version: tuple(int(part) if part.isdigit() else 0 for part in version.split(".")))


def decode_driver(text: bytes, *, driver: Root, device: Root) -> DriverSpec:
    """
    Return the CDI spec in *text*, JSON, with the host's paths: of files by *driver*, of device files by *device*.

    Raises:
        SpecError: it is not a CDI spec; the message has the place.
    """
    try:
        content = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise SpecError(f"not JSON: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("cdiVersion"), str):
        raise SpecError("no cdiVersion")
    rows = content.get("devices")
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and isinstance(row.get("name"), str) for row in rows
    ):
        raise SpecError("devices is not a list of objects with a name")

    def decoded(part: Any, place: str) -> Edits:
        return _on_host(decode_edits(part or {}, place), driver, device)

    return DriverSpec(
        version=content["cdiVersion"],
        common=decoded(content.get("containerEdits"), "containerEdits"),
        devices={row["name"]: decoded(row.get("containerEdits"), f"device {row['name']}") for row in rows},
    )


def _on_host(edits: Edits, driver: Root, device: Root) -> Edits:
    return replace(
        edits,
        device_nodes={
            path: {**node, "hostPath": device.on_host(str(node.get("hostPath") or path))}
            for path, node in edits.device_nodes.items()
        },
        mounts={
            path: {**mount, "hostPath": driver.on_host(str(mount.get("hostPath") or path))}
            for path, mount in edits.mounts.items()
        },
        hooks=tuple(_hook_on_host(hook, driver) for hook in edits.hooks),
    )


def _hook_on_host(hook: Json, driver: Root) -> Json:
    """Return *hook* with the host's paths in its arguments, if they are not paths in the container."""
    arguments = hook.get("args")
    if hook.get("hookName") in _IN_CONTAINER or not isinstance(arguments, list):
        return hook
    return {**hook, "args": [driver.on_host(str(argument)) for argument in arguments]}
