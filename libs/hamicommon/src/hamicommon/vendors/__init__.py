"""
One module for each vendor, which describes it whole: configuration, names, keys, and how a request is read.

Every module here has one `DESCRIPTION` and is found by that; there is no list to keep. A module may import the formats
of `wire`, and must never import another vendor, a service or `runtime`.
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
    """Return what a service's *package* of vendors has for the vendor *name*, None for a vendor without functions."""
    return import_module(f"{package}.{name}") if find_spec(f"{package}.{name}") else None
