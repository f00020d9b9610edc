"""
Writes of the ResourceSlice that meet writes of others.
"""

from typing import Any
from unittest.mock import AsyncMock

import pytest

from hami_device_plugin.adapters.dra_kube import DraKube
from hamicommon.runtime.api.kube import Conflict, NotFound

PATH = "/apis/resource.k8s.io/v1/resourceslices/s"


def a_slice(version: str) -> dict[str, Any]:
    """Return a slice at *version*."""
    return {"metadata": {"name": "s", "resourceVersion": version}, "spec": {}}


async def test_slice_that_changed_meanwhile_is_read_again() -> None:
    """So the next try replaces what is there, and no second slice is made."""
    kube = AsyncMock(replace=AsyncMock(side_effect=Conflict(PATH, 409, "Conflict", "")))
    kube.get.return_value = a_slice("2")
    dra = DraKube(kube, "n1")

    with pytest.raises(Conflict):
        await dra.write(a_slice("1"))

    assert {"s": a_slice("2")} == dra.slices


async def test_slice_that_is_gone_is_forgotten() -> None:
    """So the next try makes a new one."""
    kube = AsyncMock(replace=AsyncMock(side_effect=NotFound(PATH, 404, "NotFound", "")))
    dra = DraKube(kube, "n1")
    dra.slices["s"] = a_slice("1")

    with pytest.raises(NotFound):
        await dra.write(a_slice("1"))

    assert {} == dra.slices
