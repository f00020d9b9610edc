"""
The option that rewrites the golden files.
"""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--write-golden`."""
    parser.addoption("--write-golden", action="store_true", help="rewrite the golden files of manifests and rights")
