"""
Lists and watches: pages, versions, order, selection, bookmarks.
"""

import asyncio
import time
from typing import Any

import pytest

from conformance.peers.clusters import Peer
from conformance.peers.objects import Api, error_of, refusal_of
from hamicommon.model import Object
from testbed.waiting import eventually


async def events(api: Api, path: str, version: str, count: int, **query: str) -> list[tuple[str, str]]:
    """Return the first *count* events without bookmarks, as type and name."""
    found: list[tuple[str, str]] = []
    async with asyncio.timeout(10):
        async for kind, item in api.watch(path, version, **query):
            if kind != "BOOKMARK":
                found.append((kind, item["metadata"]["name"]))
            if len(found) == count:
                break
    return found


async def make(api: Api, *names: str) -> None:
    """Create ConfigMaps with a label that distinguishes them from others."""
    for name in names:
        await api.create(api.config_maps, {"metadata": {"name": name, "labels": {"mine": "yes"}}})


MINE = {"labelSelector": "mine"}


async def test_watch_sees_every_change(api: Api) -> None:
    """A watch from a list's resourceVersion sees every later change in order, and no earlier one."""
    await make(api, "before")
    _, version = await api.list(api.config_maps)
    await make(api, "a")
    await api.patch(f"{api.config_maps}/before", {"data": {"k": "v"}})
    await api.delete(f"{api.config_maps}/a")

    expected = [("ADDED", "a"), ("MODIFIED", "before"), ("DELETED", "a")]
    assert expected == await events(api, api.config_maps, version, 3, **MINE)


async def test_watch_of_an_object_version(api: Api) -> None:
    """A watch from an object's resourceVersion sees the changes after the write of that object."""
    made = await api.create_pod("a")
    await api.create_pod("b")

    assert [("ADDED", "b")] == await events(api, api.pods, made["metadata"]["resourceVersion"], 1)


async def test_deleted_event_has_the_version_of_the_deletion(api: Api) -> None:
    """A DELETED event has the last state with the resourceVersion of the deletion, from which a watch can resume."""
    made = await api.create(api.config_maps, {"metadata": {"name": "a"}})
    await api.delete(f"{api.config_maps}/a")
    await make(api, "next")

    async for kind, item in api.watch(api.config_maps, made["metadata"]["resourceVersion"]):
        if kind == "DELETED":
            deleted = item
            break

    version = deleted["metadata"]["resourceVersion"]
    assert made["metadata"]["uid"] == deleted["metadata"]["uid"]
    assert int(made["metadata"]["resourceVersion"]) < int(version)
    assert [("ADDED", "next")] == await events(api, api.config_maps, version, 1, **MINE)


async def test_every_deletion_of_a_pod_is_marked_first(api: Api) -> None:
    """Right before each DELETED of a Pod, a MODIFIED has its deletion time and a grace of 0."""
    _, version = await api.list(api.pods)
    for name, grace in (("unbound", None), ("forced", 0), ("graceful", 5)):
        await api.create_pod(name)
        if grace is not None:
            await api.bind(name)
        await api.delete(f"{api.pods}/{name}", grace)
    await api.delete(f"{api.pods}/graceful", 0)

    seen: dict[str, list[Any]] = {"unbound": [], "forced": [], "graceful": []}
    async for kind, pod in api.watch(api.pods, version):
        metadata = pod["metadata"]
        if "deletionTimestamp" in metadata:
            seen[metadata["name"]].append((kind, metadata["deletionGracePeriodSeconds"], metadata["generation"]))
        if (kind, metadata["name"]) == ("DELETED", "graceful"):
            break

    last = [("MODIFIED", 0, 2), ("DELETED", 0, 2)]
    assert {"unbound": last, "forced": last, "graceful": [("MODIFIED", 5, 2), *last]} == seen


async def test_selected_watch_adds_and_deletes(api: Api) -> None:
    """An object that starts to match a watch's selector is ADDED, and one that stops is DELETED."""
    _, version = await api.list(api.pods)
    await api.create_pod("p")
    await api.create_pod("other")
    await api.bind("p", "n1")
    await api.patch(f"{api.pods}/p", {"metadata": {"labels": {"a": "b"}}})
    await api.patch(f"{api.pods}/p/status", {"status": {"phase": "Failed"}})

    query = {"fieldSelector": "spec.nodeName=n1,status.phase!=Failed"}
    expected = [("ADDED", "p"), ("MODIFIED", "p"), ("DELETED", "p")]
    assert expected == await events(api, api.pods, version, 3, **query)


async def test_label_selected_watch(api: Api) -> None:
    """A watch by label reports an object as DELETED when it loses its label."""
    _, version = await api.list(api.config_maps)
    await make(api, "a")
    await api.patch(f"{api.config_maps}/a", {"metadata": {"labels": None}})

    assert [("ADDED", "a"), ("DELETED", "a")] == await events(api, api.config_maps, version, 2, **MINE)


async def test_watch_without_version(api: Api) -> None:
    """A watch without a resourceVersion begins with the existing objects."""
    await make(api, "a")

    assert [("ADDED", "a")] == await events(api, api.config_maps, "", 1, **MINE)


@pytest.mark.other_in("1.33", "rejected, because the feature is disabled")
async def test_watch_list(api: Api) -> None:
    """`sendInitialEvents` sends the existing objects and then a bookmark that marks their end."""
    await make(api, "a")
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", **MINE}
    found: list[Any] = []

    async for kind, item in api.watch(api.config_maps, "", **query):
        found.append((kind, item["metadata"].get("annotations")))
        if kind == "BOOKMARK":
            break

    assert [("ADDED", None), ("BOOKMARK", {"k8s.io/initial-events-end": "true"})] == found


async def test_watch_that_times_out(api: Api) -> None:
    """A watch ends after its timeoutSeconds, without events of objects that its selector excludes."""
    _, version = await api.list(api.pods)
    await api.create_pod("hidden")
    query = {"timeoutSeconds": "2", "labelSelector": "x"}
    began = time.monotonic()

    found = [(kind, item["metadata"]["resourceVersion"]) async for kind, item in api.watch(api.pods, version, **query)]

    assert 1.5 <= time.monotonic() - began < 10
    assert {kind for kind, _ in found} <= {"BOOKMARK"}
    assert all(int(bookmark) >= int(version) for _, bookmark in found)


async def test_forgotten_version(peer: Peer, api: Api) -> None:
    """A watch from a version whose changes are no longer kept is a 410 Expired."""
    await peer.forget_changes()

    error = await error_of(events(api, api.pods, "1", 1))

    assert (410, "Expired") == (error.status, error.reason)
    assert error.message.startswith("too old resource version: 1 (")


async def test_version_of_the_future(api: Api) -> None:
    """A list at a future version is a 504, and a watch from there waits."""
    _, version = await api.list(api.pods)
    future = str(int(version) + 1_000_000)

    listed = await error_of(api.list(api.pods, resourceVersion=future))
    await api.create_pod()
    watched = await events(api, api.pods, future, 1, timeoutSeconds="1")

    assert (504, "Timeout") == (listed.status, listed.reason)
    assert listed.message.startswith(f"Timeout: Too large resource version: {future}, current: ")
    assert [] == watched


async def test_pages(api: Api) -> None:
    """A list in pages has each object once, in order, at the version of the first page."""
    await make(api, *"edcba")
    names: list[str] = []
    versions: set[str] = set()
    query: dict[str, str] = {}
    while True:
        page = await api.get(api.config_maps, limit="2", **MINE, **query)
        names += [item["metadata"]["name"] for item in page["items"]]
        versions.add(page["metadata"]["resourceVersion"])
        await make(api, f"b{len(names)}")
        if not page["metadata"].get("continue"):
            break
        query = {"continue": page["metadata"]["continue"]}

    assert list("abcde") == names
    assert 1 == len(versions)


async def test_remaining_items(api: Api) -> None:
    """A page of a list without a selector has the number of remaining objects."""
    for name in "abc":
        await api.create_pod(name)

    page = await api.get(api.pods, limit="2")
    last = await api.get(api.pods, limit="2", **{"continue": page["metadata"]["continue"]})

    assert (2, 1) == (len(page["items"]), page["metadata"]["remainingItemCount"])
    assert {"resourceVersion"} == set(last["metadata"])


async def test_list_of_any_version(api: Api) -> None:
    """A list at resourceVersion 0 soon has the latest write."""
    await api.create_pod("a")

    async def is_listed() -> bool:
        return ["a"] == await api.names(api.pods, resourceVersion="0")

    assert await eventually(is_listed)


async def test_list_not_older_than(api: Api) -> None:
    """A list that is not older than an object's version has that object."""
    made = await api.create_pod("a")
    version = made["metadata"]["resourceVersion"]

    names = await api.names(api.pods, resourceVersion=version, resourceVersionMatch="NotOlderThan")

    assert ["a"] == names


async def test_bad_continue_token(api: Api) -> None:
    """An invalid continue token is a 400."""
    code, reason, text = await refusal_of(api.get(api.pods, **{"continue": "x"}))

    assert (400, "BadRequest") == (code, reason)
    assert "continue key is not valid" in text


async def test_get_of_any_version(api: Api) -> None:
    """A GET returns the object with kind, apiVersion and the version of its last write."""
    made = await api.create_pod()
    changed = await api.patch(f"{api.pods}/p", {"metadata": {"labels": {"a": "b"}}})

    found: Object = await api.pod()

    assert ("Pod", "v1", changed) == (found["kind"], found["apiVersion"], found)
    assert int(made["metadata"]["resourceVersion"]) < int(found["metadata"]["resourceVersion"])
