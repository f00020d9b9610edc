"""
Options of the client's tests.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from .prometheus import Prometheus


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that keeps pictures of the page."""
    parser.addoption("--pictures", type=Path, help="also write pictures of the page to this folder, such as docs")


@pytest.fixture
def prometheus() -> Iterator[Prometheus]:
    """A running server."""
    server = Prometheus()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
