"""
One module for each vendor, which describes its configuration, names, keys and requests.

Each module has a `DESCRIPTION`, by which it is found. A module may import the formats of `wire`. It must never import
another vendor, a service or `runtime`.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from types import MappingProxyType, ModuleType

from hamicommon.vendor import Description


@cache
def descriptions() -> Mapping[str, Description]:
    """
    Return the description of every vendor by the name of its module, in the order in which vendors are asked.

    >>> list(descriptions())[:3]
    ['nvidia', 'ascend', 'cambricon']
    """
    names = [module.name for module in iter_modules(__path__)]
    found: dict[str, Description] = {name: import_module(f"{__name__}.{name}").DESCRIPTION for name in names}
    return MappingProxyType(dict(sorted(found.items(), key=lambda item: (item[1].order, item[0]))))


@cache
def functions_of(name: str, package: str) -> ModuleType | None:
    """Return the module *name* of *package*, a service's vendors, None if the vendor has no module there."""
    return import_module(f"{package}.{name}") if find_spec(f"{package}.{name}") else None
