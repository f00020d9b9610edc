"""
Keep Python's garbage collection out of the way of answers that make thousands of objects.
"""

import gc
from collections.abc import Awaitable, Callable

COLLECTED_AT = 10_000
"""
New objects between two collections: more than a scrape of a full Node or thirty filters keep at once. With Python's
700, such answers wait for several collections, which find nothing.
"""


async def keep_small(synced: Callable[[], Awaitable[object]]) -> None:
    """Wait for *synced*, then exclude what the first lists made from collection: most of it stays for good."""
    await synced()
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECTED_AT)
