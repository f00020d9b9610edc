"""
How the chart's tests find Helm, and how golden renders are written anew.
"""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--write-golden`."""
    parser.addoption("--write-golden", action="store_true", help="write the chart's renders and permissions anew")
