"""
Read the Events about one Pod.
"""

from itertools import islice
from typing import Final
from urllib.parse import quote

from kubectl_hami.read.source import Source, objects
from kubectl_hami.values.seen import Object

EVENT_LIMIT: Final = 200
"""Events that are read about one Pod."""


def events(source: Source, namespace: str, pod: str) -> list[Object]:
    """
    Return the Events about a Pod, at most EVENT_LIMIT.

    Raises:
        ReadError: they cannot be read.
    """
    fields = f"involvedObject.kind=Pod,involvedObject.name={pod}"
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/events"
    return list(islice(objects(source, path, fieldSelector=fields), EVENT_LIMIT))
