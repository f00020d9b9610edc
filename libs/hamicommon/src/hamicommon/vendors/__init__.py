"""
One module for each vendor, which describes its configuration, names, keys and requests.

A vendor's module has a `DESCRIPTION`, by which it is found. It may import the formats of `wire`, `description` with the
parts that a description has, and `amounts`, which reads what Pods ask. It must never import another vendor, a service
or `runtime`.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from types import MappingProxyType, ModuleType

from hamicommon.vendors.description import Description


@cache
def descriptions() -> Mapping[str, Description]:
    """
    Return the description of every vendor by the name of its module, in the order in which vendors are asked.

    >>> list(descriptions())[:3]
    ['nvidia', 'ascend', 'cambricon']
    """
    modules = {module.name: import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)}
    found: dict[str, Description] = {
        name: module.DESCRIPTION for name, module in modules.items() if hasattr(module, "DESCRIPTION")
    }
    return MappingProxyType(dict(sorted(found.items(), key=lambda item: (item[1].order, item[0]))))


@cache
def functions_of(name: str, package: str) -> ModuleType | None:
    """Return the module *name* of *package*, a service's vendors, None if the vendor has no module there."""
    return import_module(f"{package}.{name}") if find_spec(f"{package}.{name}") else None
