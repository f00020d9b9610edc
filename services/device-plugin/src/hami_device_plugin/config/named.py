"""
Choose and read the named config of this Node, as NVIDIA's plugin has them.

A folder has configs for groups of Nodes, one a file, and a Node's label names the file. Such a file may have the
sections `flags` and `imex` of NVIDIA's plugin, and `nvidia` with the settings of single Nodes, as in `config.json`.
Neighbours: `loader` knows what each of them wins over, `node_overrides` reads the settings.
Source: https://github.com/NVIDIA/k8s-device-plugin/blob/v0.20.0/cmd/config-manager/main.go
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from hamicommon.config.device_config import ConfigError
from hamicommon.config.node_overrides import NodeOverrides, load_node_overrides
from hamicommon.wire.go.yaml_nodes import YamlError, plain

LABEL = "nvidia.com/device-plugin.config"
NAMED, SINGLE, EMPTY = "named", "single", "empty"
STRATEGIES = (NAMED, SINGLE, EMPTY)
DEFAULT_NAME = "default"
"""The config that the strategy `named` takes."""
_SECTIONS = ("version", "flags", "imex", "nvidia", "resources", "sharing")


@dataclass(frozen=True, slots=True)
class NamedConfig:
    """The content of one file; without one nothing is set."""

    root: Mapping[str, Any] = field(default_factory=dict)
    overrides: NodeOverrides = field(default_factory=NodeOverrides)
    """The section `nvidia`, as an entry for this Node."""
    warnings: tuple[str, ...] = ()


def choose_name(label: str, names: Collection[str], default: str, strategies: Sequence[str]) -> str:
    """
    Return the name of the config to use; empty for none.

    The label wins over *default*, which wins over *strategies* in order: `named` takes the config called default,
    `single` the only one there is, `empty` none.

    >>> choose_name("", ["a", "default"], "", ["single", "named"])
    'default'

    Raises:
        ConfigError: the chosen config is not among *names*, or no strategy finds one.
    """
    wanted = label or default
    if wanted:
        if wanted not in names:
            raise ConfigError((f"config {wanted!r} is not there; there are {', '.join(sorted(names)) or 'none'}",))
        return wanted
    for strategy in strategies:
        if strategy == NAMED and DEFAULT_NAME in names:
            return DEFAULT_NAME
        if strategy == SINGLE and len(names) == 1:
            return next(iter(names))
        if strategy == EMPTY:
            return ""
    raise ConfigError(
        (
            f"the label is missing, there is no default config, and none of the strategies {', '.join(strategies)} "
            f"finds one among {', '.join(sorted(names)) or 'none'}",
        )
    )


def read_named(text: str, node_name: str) -> NamedConfig:
    """
    Return the config in *text* for the Node *node_name*; an empty text has none.

    Raises:
        ConfigError: the text is not YAML of the right shape.
    """
    try:
        root = plain(text) or {}
    except YamlError as error:
        raise ConfigError((str(error),)) from error
    if not isinstance(root, dict):
        raise ConfigError(("must be a mapping with the sections flags, imex and nvidia",))
    settings = root.get("nvidia") or {}
    if not isinstance(settings, dict):
        raise ConfigError(("nvidia: must be a mapping",))
    try:
        overrides = load_node_overrides(orjson.dumps({"nodeconfig": [settings | {"name": node_name}]}, default=str))
    except orjson.JSONEncodeError as error:
        raise ConfigError((f"nvidia: has a key or a value that is none of JSON: {error}",)) from error
    except ConfigError as error:
        raise ConfigError(tuple(map(_in_section, error.problems))) from error
    unknown = [f"{str(name)[:60]}: unknown key, ignored" for name in root if name not in _SECTIONS]
    return NamedConfig(root, overrides, (*map(_in_section, overrides.warnings), *unknown))


def _in_section(problem: str) -> str:
    return problem.replace("nodeconfig[0]", "nvidia", 1)
