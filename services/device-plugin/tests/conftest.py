"""
Fixtures: the plugin's peers as servers on sockets, and the host's directory.
"""

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from device_plugin_apiserver import ApiServer
from device_plugin_dra import DraKubelet
from device_plugin_kubelet import Kubelet

from testbed import disks


@pytest.fixture
def host() -> Iterator[Path]:
    """Return a directory that stands for the host's file system; its path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="dp-") as folder:
        yield Path(folder)


@pytest.fixture
def may_own() -> None:
    """Skip the test if this process may not give files to another user."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to have files of another user")


@pytest.fixture
def may_mount() -> None:
    """Skip the test if this process may not mount."""
    if not disks.may_mount():
        pytest.skip("needs root, to mount a file system")


@pytest.fixture
def full_disk(host: Path, may_mount: None) -> Iterator[Path]:
    """Return a file system of 1 MiB, to be filled."""
    with disks.small_disk(host / "disk") as disk:
        yield disk


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    """Yield an API server without objects."""
    async with ApiServer() as server:
        yield server


@pytest.fixture
async def kubelet(host: Path) -> AsyncIterator[Kubelet]:
    """Yield a kubelet that serves Registration and PodResources below *host*."""
    async with Kubelet(host) as server:
        yield server


@pytest.fixture
async def dra(host: Path) -> AsyncIterator[DraKubelet]:
    """Yield a kubelet that registers DRA drivers below *host*."""
    async with DraKubelet(host) as server:
        yield server
