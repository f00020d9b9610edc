"""
Injected faults of watches and requests, and a client that survives them.
"""

import asyncio
import functools
from typing import Any

from conformance.peers.objects import Api, error_of
from minicluster.client import Client, Mirror
from testbed.waiting import eventually

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"


async def events(api: Api, path: str, version: str, count: int, **query: str) -> list[tuple[str, str]]:
    """Return the first *count* events as type and name."""
    found: list[tuple[str, str]] = []
    async with asyncio.timeout(20):
        async for kind, item in api.watch(path, version, **query):
            found.append((kind, item["metadata"].get("name", "")))
            if len(found) == count:
                break
    return found


async def test_expired_watch_ends_with_a_bookmark_at_the_newest_version(api: Api) -> None:
    """
    A watch without events resumes there, and not at its last event.
    """
    _, version = await api.list(CONFIG_MAPS)
    await api.create_node()
    await api.create_pod()
    hidden = await api.create(CONFIG_MAPS, {"metadata": {"name": "hidden"}})

    query = {"timeoutSeconds": "1", "labelSelector": "x"}
    found = [
        (kind, item["metadata"]["resourceVersion"]) async for kind, item in api.watch(CONFIG_MAPS, version, **query)
    ]

    assert [("BOOKMARK", hidden["metadata"]["resourceVersion"])] == found


async def test_forgotten_version_is_gone_for_lists_and_watches(api: Api) -> None:
    """
    410 with reason Expired makes every client list again.
    """
    _, version = await api.list(CONFIG_MAPS)
    await api.create(CONFIG_MAPS, {"metadata": {"name": "a"}})
    await api.create("/minicluster/compact", {})

    watched = await error_of(events(api, CONFIG_MAPS, version, 1))
    listed = await error_of(api.list(CONFIG_MAPS, resourceVersion=version, resourceVersionMatch="Exact"))

    assert (410, "Expired") == (watched.status, watched.reason)
    assert watched.message.startswith(f"too old resource version: {version} (")
    assert 410 == listed.status


async def test_mirror_survives_every_kind_of_outage(api: Api) -> None:
    """
    After ended, broken and expired watches, every addition and removal arrives exactly once.
    """
    seen: list[str] = []

    def changed(old: Any, new: Any) -> None:
        item = new or old
        seen.append(f"{'+' if old is None else '-' if new is None else '~'}{item['metadata']['name']}")

    def has_seen(count: int) -> bool:
        return len(seen) >= count

    mirror = Mirror(api, CONFIG_MAPS, changed)
    task = asyncio.create_task(mirror.run())
    await mirror.synced.wait()
    for index, how in enumerate(("close", "abort", "gone")):
        await api.create("/minicluster/watches/drop", {"path": "configmaps", "how": how})
        await api.create(CONFIG_MAPS, {"metadata": {"name": f"c{index}"}})
        await api.create("/minicluster/compact", {})
        assert await eventually(functools.partial(has_seen, index + 1))
    await api.delete(f"{CONFIG_MAPS}/c0")
    assert await eventually(functools.partial(has_seen, 4))
    task.cancel()

    assert ["+c0", "+c1", "+c2", "-c0"] == seen
    assert {("default", "c1"), ("default", "c2")} == set(mirror.objects)


async def test_late_watch_gets_every_event(api: Api) -> None:
    """
    It gets an older event after a punctual watch got a newer one.
    """
    _, version = await api.list(CONFIG_MAPS)
    await api.create("/minicluster/watches/lag", {"path": "configmaps", "seconds": 2})
    late = asyncio.create_task(events(api, CONFIG_MAPS, version, 2))
    for number in range(2):
        await api.create(CONFIG_MAPS, {"metadata": {"name": f"c{number}"}})
    await api.create(SECRETS, {"metadata": {"name": "s"}})

    assert [("ADDED", "s")] == await events(api, SECRETS, version, 1)
    assert not late.done()
    assert [("ADDED", "c0"), ("ADDED", "c1")] == await late


async def test_faults_apply_to_the_given_number_of_requests(api: Api) -> None:
    """
    Two requests get a 409, and the next one succeeds.
    """
    await api.create(CONFIG_MAPS, {"metadata": {"name": "a"}})
    fault = {"method": "PATCH", "path": "configmaps/a", "times": 2, "status": 409, "reason": "Conflict"}
    await api.create("/minicluster/faults", fault)

    statuses = [(await error_of(api.patch(f"{CONFIG_MAPS}/a", {}))).status for _ in range(2)]
    await api.patch(f"{CONFIG_MAPS}/a", {"data": {"k": "v"}})

    assert [409, 409] == statuses
    assert [] == await api.get("/minicluster/faults")


async def test_disconnect_after_makes_a_write_ambiguous(api: Api) -> None:
    """
    The connection breaks. With `after` the object exists, and with `before` it does not.
    """
    await api.create("/minicluster/faults", {"path": "configmaps", "disconnect": "after"})
    after = await error_of(api.create(CONFIG_MAPS, {"metadata": {"name": "after"}}))
    await api.create("/minicluster/faults", {"path": "configmaps", "disconnect": "before"})
    before = await error_of(api.create(CONFIG_MAPS, {"metadata": {"name": "before"}}))

    assert (0, 0) == (after.status, before.status)
    assert ["after"] == [item["metadata"]["name"] for item in (await api.list(CONFIG_MAPS))[0]]


async def test_fault_may_be_for_some_clients_only(api: Api) -> None:
    """
    By their user agents, so a test can spare its own requests.
    """
    await api.create("/minicluster/faults", {"path": "configmaps", "agent": "^another/", "status": 500})
    await api.create(CONFIG_MAPS, {"metadata": {"name": "spared"}})
    async with Client(api.server, "another/1") as other:
        error = await error_of(other.create(CONFIG_MAPS, {"metadata": {"name": "refused"}}))

    assert 500 == error.status
    assert ["spared"] == [item["metadata"]["name"] for item in (await api.list(CONFIG_MAPS))[0]]


async def test_requests_are_counted_by_verb_resource_and_client(api: Api) -> None:
    """
    So tests can check how much a service writes.
    """
    await api.create_pod()
    await api.bind("p")

    counted = {
        (row["verb"], row["resource"], row["user_agent"]): row["count"]
        for row in await api.get("/minicluster/requests")
    }

    assert {("POST", "pods", "test"): 1, ("POST", "pods/binding", "test"): 1} == counted
