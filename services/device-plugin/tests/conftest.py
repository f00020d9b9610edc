"""
Fixtures: the plugin's peers as servers on sockets, and the host's directory.
"""

import ctypes
import multiprocessing
import os
import struct
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import device_plugin_disks as disks
import pytest
from device_plugin_apiserver import ApiServer
from device_plugin_kubelet import Kubelet

CAP_DAC_OVERRIDE, CAP_FOWNER = 1, 3
CAPABILITY_VERSION_3 = 0x20080522


@pytest.fixture
def host() -> Iterator[Path]:
    """Return a directory that stands for the host's file system; its path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="dp-") as folder:
        yield Path(folder)


@pytest.fixture
def in_child() -> Callable[..., None]:
    """Return a function that calls another in a process with the chart's capability, and with FOWNER if so asked."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to have files of another user")

    def call(has_fowner: bool, function: Callable[..., Any], *arguments: Any) -> None:
        child = multiprocessing.get_context("fork").Process(
            target=_with_capabilities, args=(has_fowner, function, arguments)
        )
        child.start()
        child.join()
        assert 0 == child.exitcode

    return call


def _with_capabilities(has_fowner: bool, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    kept = 1 << CAP_DAC_OVERRIDE | (1 << CAP_FOWNER if has_fowner else 0)
    header = struct.pack("<II", CAPABILITY_VERSION_3, 0)
    sets = struct.pack("<6I", kept, kept, kept, 0, 0, 0)
    if ctypes.CDLL(None, use_errno=True).capset(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capset")
    function(*arguments)


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
