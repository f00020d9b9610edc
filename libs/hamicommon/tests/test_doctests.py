"""
The examples in the docstrings are true.
"""

import doctest
import importlib
import pkgutil

import pytest

import hamicommon

MODULES = [
    module.name
    for module in pkgutil.walk_packages(hamicommon.__path__, "hamicommon.")
    if "_proto" not in module.name and not module.name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module_hold(name: str) -> None:
    """Each example prints what it says."""
    assert 0 == doctest.testmod(importlib.import_module(name)).failed
