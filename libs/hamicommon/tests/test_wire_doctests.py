"""
The examples in the docstrings are true.
"""

import doctest
import importlib
import pkgutil

import pytest

from hamicommon import wire

MODULES = sorted(module.name for module in pkgutil.iter_modules(wire.__path__))


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module_hold(name: str) -> None:
    """Each example prints what it says."""
    assert 0 == doctest.testmod(importlib.import_module(f"hamicommon.wire.{name}")).failed
