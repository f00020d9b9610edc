"""
Options of the client's tests.
"""

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that keeps pictures of the page."""
    parser.addoption("--pictures", type=Path, help="also write pictures of the page to this folder, such as docs")
