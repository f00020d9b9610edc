"""
Garbage collection stays out of the way once a service has its first lists.
"""

import asyncio
import gc
from collections.abc import Iterator

import pytest

from hamicommon.runtime.program import garbage


@pytest.fixture(autouse=True)
def collection_as_before() -> Iterator[None]:
    """Restore how this process collects."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_what_was_listed_is_collected_no_more() -> None:
    """It is left out once the lists are complete. Collections are rare from then on, and rarer before."""
    before = []

    async def synced() -> None:
        before.append((gc.get_freeze_count(), gc.get_threshold()[0]))

    asyncio.run(garbage.keep_small(synced))

    assert [(0, garbage.COLLECTED_AT_WHILE_LOADING)] == before
    assert gc.get_freeze_count() > 0
    assert garbage.COLLECTED_AT == gc.get_threshold()[0]
