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
COLLECTED_AT_WHILE_LOADING = 500_000
"""
The same until the first lists have arrived: a page of 500 Pods makes some 150,000 objects, and none of them is garbage
for the collector. With Python's 700, to look through them takes three times as long as to decode them.
"""


async def keep_small(synced: Callable[[], Awaitable[object]]) -> None:
    """Collect seldom until *synced*, then exclude what the first lists made: most of it stays for good."""
    gc.set_threshold(COLLECTED_AT_WHILE_LOADING)
    await synced()
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECTED_AT)
