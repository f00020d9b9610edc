"""
Lists, and the start of watches.

Owns pages, continue tokens and the meaning of a resourceVersion in a read. Must never write.
Source: KEP-365 (paginated lists), KEP-2523 (resourceVersionMatch), KEP-3157 (watch-list),
k8s.io/apiserver/pkg/storage/continue.go.
"""

import base64
import binascii
import bisect
from dataclasses import dataclass

import orjson

from minicluster.apiserver.api import errors
from minicluster.apiserver.serve.requests import Query, Target, is_true, number_of, selection_of, version_of
from minicluster.apiserver.store.storage import Collection, CompactedError, Entry, Storage
from minicluster.apiserver.store.watch import Render, Watch

CONTINUE_FORMAT = "meta.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list."""

    entries: list[Entry]
    version: int
    token: str
    """The start of the next page. Empty for the last page."""
    remaining: int | None
    """The number of remaining objects. None if they are not counted."""

    def metadata(self) -> dict[str, object]:
        """Return the `ListMeta`."""
        found: dict[str, object] = {"resourceVersion": str(self.version)}
        if self.token:
            found["continue"] = self.token
            if self.remaining is not None:
                found["remainingItemCount"] = self.remaining
        return found


def page_of(storage: Storage, target: Target, query: Query) -> Page:
    """
    Return the objects of a list request, in key order.

    Raises: StatusError 410 for an old version or token, 504 for a future version, 400 for invalid parameters.
    """
    collection = storage.collections[target.resource]
    selects = selection_of(target, query)
    limit = number_of(query, "limit")
    version, start = _version_and_start(storage, query)
    entries, keys = _state(collection, version, storage.version, bool(start))
    if target.namespace:
        first = bisect.bisect_left(keys, f"{target.namespace}/")
        keys = keys[first : bisect.bisect_left(keys, f"{target.namespace}0")]
    index = bisect.bisect_left(keys, start) if start else 0
    if not limit:
        found = [entries[key] for key in (keys[index:] if index else keys)]
        return Page(found if selects is None else [e for e in found if selects(e)], version, "", None)
    page: list[Entry] = []
    while index < len(keys) and len(page) < limit:
        entry = entries[keys[index]]
        index += 1
        if selects is None or selects(entry):
            page.append(entry)
    if index >= len(keys):
        return Page(page, version, "", None)
    is_counted = not (query.get("labelSelector") or query.get("fieldSelector"))
    token = _token(version, keys[index])
    return Page(page, version, token, len(keys) - index if is_counted else None)


def list_body(target: Target, page: Page) -> bytes:
    """Return the body of a list. As in the real one, its items have no kind and apiVersion."""
    resource = target.resource
    head = orjson.dumps(
        {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": page.metadata()}
    )
    skipped = len(orjson.dumps({"kind": resource.kind, "apiVersion": resource.api_version}))
    items = b",".join([b"{" + entry.data[skipped:] for entry in page.entries])
    return head[:-1] + b',"items":[' + items + b"]}"


def watch_of(storage: Storage, target: Target, query: Query, render: Render | None) -> Watch:
    """
    Return the started watch of a watch request.

    Raises: StatusError 410 if the requested changes are no longer kept.
    """
    collection = storage.collections[target.resource]
    watch = Watch(collection, selection_of(target, query), render)
    version = version_of(query)
    sends_state = is_true(query, "sendInitialEvents")
    if sends_state and query.get("resourceVersionMatch") != "NotOlderThan":
        raise errors.StatusError(
            422,
            "Invalid",
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires '
            "setting resourceVersionMatch to NotOlderThan",
        )
    if sends_state or version == 0:
        # Without a version, or with any version, the watch starts with the present state as ADDED events.
        entries = page_of(
            storage, target, {key: query.get(key, "") for key in ("labelSelector", "fieldSelector")}
        ).entries
        watch.start_with_state(entries, storage.version, sends_state and is_true(query, "allowWatchBookmarks"))
        return watch
    try:
        watch.start_after(version)
    except CompactedError as error:
        raise errors.too_old(version, error.oldest) from error
    return watch


def _version_and_start(storage: Storage, query: Query) -> tuple[int, str]:
    """Return the version of a list and its first key."""
    wanted, match = version_of(query), query.get("resourceVersionMatch", "")
    if query.get("continue"):
        if wanted:
            raise errors.bad_request("specifying resource version is not allowed when using continue")
        return _decoded_token(query["continue"])
    if match and not query.get("resourceVersion"):
        raise errors.bad_request("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if wanted > storage.version:
        raise errors.too_large_version(wanted, storage.version)
    return (wanted if match == "Exact" else storage.version), ""


def _state(collection: Collection, version: int, current: int, continues: bool) -> tuple[dict[str, Entry], list[str]]:
    if version == current:
        return collection.state_at(max(version, collection.oldest))
    try:
        return collection.state_at(version)
    except CompactedError as error:
        message = errors.CONTINUE_EXPIRED if continues else errors.too_old(version, error.oldest).message
        raise errors.gone(message) from error


def _token(version: int, start: str) -> str:
    content = orjson.dumps({"v": CONTINUE_FORMAT, "rv": version, "start": start})
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _decoded_token(token: str) -> tuple[int, str]:
    try:
        found = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        if found["v"] != CONTINUE_FORMAT:
            raise errors.bad_request(
                f"continue key is not valid: server does not recognize this encoded version {found['v']!r}"
            )
        return int(found["rv"]), str(found["start"])
    except (binascii.Error, orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise errors.bad_request(f"continue key is not valid: {error}") from error
