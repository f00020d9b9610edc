"""
Write values as JSON and YAML. Names of fields become camelCase, moments RFC 3339, unknown values null.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any

import orjson
import yaml

from hamicommon.cli.terminal import OBEYED, escaped


def shape(value: Any) -> Any:
    """
    Return *value*, made of dataclasses, as JSON has it.

    >>> from kubectl_hami.values.cluster import Quota
    >>> shape((Quota("nvidia.com/gpu", limit=4, held=1),))
    [{'resource': 'nvidia.com/gpu', 'limit': 4, 'held': 1}]
    """
    if is_dataclass(value):
        return {camel(field.name): shape(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {name: shape(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [shape(item) for item in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return value


def camel(name: str) -> str:
    """
    Return *name* in camelCase.

    >>> camel("used_memory_mib")
    'usedMemoryMib'
    """
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def written(value: Any, form: str) -> str:
    """Return *value* as `json` or `yaml`, in which what a terminal would obey is escaped."""
    found = shape(value)
    if form == "yaml":
        is_plain = not OBEYED.search(orjson.dumps(found).decode())
        return str(yaml.safe_dump(found, sort_keys=False, allow_unicode=is_plain))
    return escaped(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode()) + "\n"
