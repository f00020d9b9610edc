"""
Read the devices that a Node without devices shall pretend to have.

Neighbours: `config` has the file, `adapters.nvml.mock` answers for the devices.
"""

import uuid
from dataclasses import dataclass
from typing import Any

from hamicommon.config.device_config import ConfigError
from hamicommon.wire.go.yaml_nodes import YamlError, plain
from hamicommon.wire.quantity import INT32_MAX

DEVICES_MAX = 64
_KEYS = {"name", "memoryMib", "count"}
_NAMESPACE = uuid.UUID("5a1d6e1c-2f0b-5b6e-9a53-0d3c6f0f7d11")


@dataclass(frozen=True, slots=True)
class MockDevice:
    """One device that does not exist."""

    uuid: str
    name: str
    memory_mib: int


def read_mock_devices(text: str, node: str) -> tuple[MockDevice, ...]:
    """
    Return the devices of *node* in *text*, a list of models with `name`, `memoryMib` and `count`.

    All Nodes may have the same text: the UUIDs follow from the Node's name and stay the same.

    >>> [device.name for device in read_mock_devices("[{name: NVIDIA L4, memoryMib: 23034, count: 2}]", "node-a")]
    ['NVIDIA L4', 'NVIDIA L4']

    Raises:
        ConfigError: with every problem found.
    """
    try:
        root = plain(text)
    except YamlError as error:
        raise ConfigError((str(error),)) from error
    if not isinstance(root, list) or not root:
        raise ConfigError(("must be a list of devices, such as [{name: NVIDIA L4, memoryMib: 23034, count: 2}]",))
    problems = [problem for number, item in enumerate(root) for problem in _problems(item, f"[{number}]")]
    if not problems and sum(item.get("count", 1) for item in root) > DEVICES_MAX:
        problems = [f"has more than {DEVICES_MAX} devices"]
    if problems:
        raise ConfigError(tuple(problems))
    models = [item for item in root for _ in range(item.get("count", 1))]
    return tuple(
        MockDevice(
            uuid=f"GPU-{uuid.uuid5(_NAMESPACE, f'{node}/{index}')}",
            name=item["name"],
            memory_mib=item["memoryMib"],
        )
        for index, item in enumerate(models)
    )


def _problems(item: Any, path: str) -> list[str]:
    if not isinstance(item, dict):
        return [f"{path}: must be a mapping with name and memoryMib"]
    problems = [f"{path}.{str(key)[:40]}: is not one of {', '.join(sorted(_KEYS))}" for key in item if key not in _KEYS]
    if not isinstance(item.get("name"), str) or not item["name"]:
        problems.append(f"{path}.name: must be the name of a model, such as NVIDIA L4")
    for key, most, default in (("memoryMib", INT32_MAX, None), ("count", DEVICES_MAX, 1)):
        value = item.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            problems.append(f"{path}.{key}: must be a whole number from 1 to {most}, not {str(value)[:40]!r}")
    return problems
