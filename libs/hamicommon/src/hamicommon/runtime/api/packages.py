"""
Import single modules of a large package without the rest of it.

The Kubernetes client's package imports its synchronous and its dynamic client and what they need: 12 MiB and half a
second that no service needs.
"""

import importlib.util
import sys
from importlib.machinery import PathFinder


def import_without_contents(*names: str) -> None:
    """
    Register the packages *names*, parents first, without running their `__init__`; their modules import as usual.

    A package that does not exist is left to the import that needs it.
    """
    for name in names:
        parent, _, child = name.rpartition(".")
        spec = PathFinder.find_spec(name, list(sys.modules[parent].__path__) if parent else None)
        if spec is None:
            return
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        if parent:
            setattr(sys.modules[parent], child, module)
