"""
MIG instances by ResourceClaims: what the slices offer, who owns an instance, and what is left after a kill.
"""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from device_plugin_apiserver import ApiServer
from device_plugin_dra import DraKubelet, a_claim, a_result, a_user
from device_plugin_kubelet import Kubelet
from device_plugin_mig import GPU, PROFILES, RULES, Killed, ModelNode, a_gpu, a_promise, an_instance
from device_plugin_mig_process import a_plugin, asked_of_the_driver
from device_plugin_process import NODE, PluginProcess, a_node, needs_fake_driver
from hypothesis import given
from hypothesis import strategies as st

from hami_device_plugin.decide.allocate.capacity import CapacityError, claim_use
from hami_device_plugin.decide.dra.grant import claim_grant
from hami_device_plugin.decide.dra.instances import claim_owner, promised_instances, with_identities
from hami_device_plugin.decide.dra.ledger import check_ledger
from hami_device_plugin.decide.dra.offer import PoolChange, next_slices, offered_partitions
from hami_device_plugin.decide.mig.geometry import overlap
from hami_device_plugin.decide.mig.journal import Entry, State, decode_journal, encode_journal
from hami_device_plugin.decide.mig.offer import offer
from hami_device_plugin.serve.mig.instances import InstanceStaysError
from hamicommon.dra.claims import decode_claim
from hamicommon.dra.grants import ClaimGrant, decode_record, encode_record
from hamicommon.dra.partitions import Partition, encode_partition, encode_pool
from hamicommon.dra.slices import Description, OfferedDevice, read_slices
from hamicommon.model import Device, MigPlacement
from testbed.resource_slices import problems as problems_of

NODE_OBJECT = {"metadata": {"name": NODE, "uid": "node-uid"}}
SMALL = "hami-mig-0-1g-6"
LARGE = "hami-mig-0-3g-4"


def partitions(count: int = 1, occupied: tuple[MigPlacement, ...] = ()) -> tuple[Partition, ...]:
    """Return what *count* GPUs can be cut into, of which the first has something at *occupied*."""
    gpus = [
        OfferedDevice(Device(GPU if minor == 0 else f"GPU-{minor}", 7, 40960, 100, "A100"), Description(minor))
        for minor in range(count)
    ]
    offers = {gpu.device.id: offer(a_gpu(), RULES) for gpu in gpus}
    return offered_partitions(gpus, offers, {GPU: occupied})


def a_grant(name: str, *devices: str) -> ClaimGrant:
    """Return the grant of a claim that is allocated to *devices*."""
    results = [a_result(device, shareID=None, consumedCapacity=None) for device in devices]
    return claim_grant(decode_claim(a_claim(name, *results)), NODE, {one.name: one for one in partitions()})


async def prepared(node: ModelNode, grant: ClaimGrant) -> ClaimGrant:
    """Record *grant* on *node*, create its instances, and record them."""
    node.claims.add(grant.uid)
    node.records[grant.uid] = grant
    entries = await node.mig.realized_claim(claim_owner(grant), promised_instances(grant))
    node.records[grant.uid] = with_identities(grant, entries)
    return node.records[grant.uid]


@pytest.mark.property
@given(st.permutations(partitions()))
def test_devices_that_fit_the_counters_are_instances_that_do_not_overlap(order: list[Partition]) -> None:
    """Whatever kube-scheduler allocates first, each next device fits by its counters exactly if it has a free place."""
    left = {f"memory-slice-{number}": 1 for number in range(8)}
    chosen: list[Partition] = []
    for one in order:
        [consumed] = encode_partition(one)["consumesCounters"]
        fits = all(left[name] >= int(counter["value"]) for name, counter in consumed["counters"].items())
        assert fits is not any(overlap(one.placement, other.placement) for other in chosen)
        if fits:
            chosen.append(one)
            for name, counter in consumed["counters"].items():
                left[name] -= int(counter["value"])


def test_pool_is_one_the_api_server_takes_and_its_counters_are_apart_from_its_devices() -> None:
    """Nine GPUs need more sets of counters and more devices than one slice has."""
    slices = encode_pool(NODE_OBJECT, partitions(9), 3)

    assert [] == list(itertools.chain.from_iterable(problems_of(item) for item in slices))
    assert [8, 1] == [len(item["spec"]["sharedCounters"]) for item in slices if "sharedCounters" in item["spec"]]
    assert [64, 53] == [len(item["spec"]["devices"]) for item in slices if "devices" in item["spec"]]
    assert [{"name": NODE, "generation": 3, "resourceSliceCount": 4}] * 4 == [item["spec"]["pool"] for item in slices]
    consumed = {one["consumesCounters"][0]["counterSet"] for item in slices for one in item["spec"].get("devices", ())}
    assert consumed == {one["name"] for item in slices for one in item["spec"].get("sharedCounters", ())}


def test_pool_is_written_whole_or_not_at_all() -> None:
    """Readers count the slices of one generation only."""
    change = next_slices(NODE_OBJECT, partitions(), [], 0)
    present = [
        item | {"metadata": item["metadata"] | {"name": f"s{number}", "resourceVersion": "1"}}
        for number, item in enumerate(change.write)
    ]

    assert PoolChange() == next_slices(NODE_OBJECT, partitions(), present, 1)
    again = next_slices(NODE_OBJECT, partitions(), present[:1], 1).write
    assert [(2, 2), (2, 2)] == [
        (item["spec"]["pool"]["generation"], item["spec"]["pool"]["resourceSliceCount"]) for item in again
    ]
    assert ["s0", None] == [item["metadata"].get("name") for item in again]


def test_instances_are_read_as_parts_of_their_gpus() -> None:
    """Each with its place, its memory and its compute, so that what claims hold can be added up by GPU."""
    offered = partitions(2)
    slices = encode_pool(NODE_OBJECT, offered, 1)
    named = [item | {"metadata": {"name": f"s{number}"}} for number, item in enumerate(slices)]

    found, problems = read_slices(named)

    assert () == problems
    assert {one.name: one.allocation for one in offered} == {name: one.instance for name, one in found[NODE].items()}
    large = found[NODE][LARGE].device
    assert (GPU, 1, 19968, 43) == (large.id, large.count, large.memory_mib, large.core_percent)


def test_instance_has_the_names_of_nvidias_driver_and_no_uuid_before_it_exists() -> None:
    """CEL that was written for either selects by type, profile and GPU."""
    found = encode_partition(next(one for one in partitions() if one.name == LARGE))

    attributes = found["attributes"]
    assert ("mig", "3g.20gb", GPU) == tuple(
        attributes[f"gpu.nvidia.com/{name}"]["string"] for name in ("type", "profile", "parentUUID")
    )
    assert "uuid" not in attributes
    assert {"cores": "43", "memory": "19968Mi", "multiprocessors": "42"} == {
        name: value["value"] for name, value in found["capacity"].items()
    }


def test_smallest_profile_comes_first_and_its_last_place() -> None:
    """kube-scheduler takes the first that fits, and the large profiles begin at the first slice."""
    names = [one.name for one in partitions()]

    assert ["hami-mig-0-1g-6", "hami-mig-0-1g-5"] == names[:2]
    assert "hami-mig-0-7g-0" == names[-1]


def test_place_where_something_else_stands_is_tainted() -> None:
    """It stays in the slice: a running Pod's claim may name it."""
    tainted = [one.name for one in partitions(occupied=(MigPlacement(6, 1),)) if one.is_occupied]

    assert ["hami-mig-0-1g-6", "hami-mig-0-3g-4", "hami-mig-0-7g-0"] == tainted


async def test_instance_is_created_for_a_claim_and_a_repeated_prepare_gives_the_same() -> None:
    """Its owner is the claim."""
    node = ModelNode()

    first = await prepared(node, a_grant("c", SMALL))
    second = await prepared(node, first)

    [created] = node.driver.gpu.instances
    assert first == second
    assert ((created.mig_uuid,), MigPlacement(6, 1)) == (first.instances("gpu"), created.placement)
    assert ["ResourceClaim default/c"] == [str(entry.owner) for entry in node.store.journal]


async def test_instance_of_a_prepared_claim_survives_repair_without_its_journal() -> None:
    """The record names it, as a Pod's annotation does, so it is adopted, and nothing clears it."""
    node = ModelNode()
    grant = await prepared(node, a_grant("c", SMALL))
    node.store.write(())
    node.restart()

    await node.mig.prepare()

    assert list(grant.instances("gpu")) == node.uuids()
    assert ["claim-c"] == [entry.owner.uid for entry in node.store.read()]
    assert {GPU: ()} == node.mig.occupied


async def test_instance_goes_when_its_claim_is_unprepared_and_not_while_a_process_uses_it() -> None:
    """The kubelet repeats the call."""
    node = ModelNode()
    grant = await prepared(node, a_grant("c", SMALL, LARGE))
    node.driver.change(node.driver.gpu.instances[0].id, is_busy=True)

    with pytest.raises(Exception, match="a process uses it"):
        await node.mig.release(grant.uid)
    node.driver.change(node.driver.gpu.instances[0].id, is_busy=False)
    await node.mig.release(grant.uid)

    assert ([], ()) == (node.uuids(), node.store.journal)


async def test_claim_whose_instance_is_half_made_and_stays_is_unprepared_later() -> None:
    """The kubelet repeats the call, and gets an error that says why until then."""
    node = ModelNode()
    grant = a_grant("c", SMALL)
    node.kill_after(3)
    with pytest.raises(Killed):
        await prepared(node, grant)
    node.restart()
    [half] = node.driver.gpu.instances
    node.driver.change(half.id, is_busy=True)

    with pytest.raises(InstanceStaysError, match="although it is unprepared: its creation was not finished"):
        await node.mig.release(grant.uid)
    node.driver.change(half.id, is_busy=False)
    await node.mig.release(grant.uid)

    assert ([], ()) == (node.uuids(), node.store.journal)


async def test_instance_without_a_record_goes_once_the_claim_is_gone_and_not_before() -> None:
    """A record may be lost while containers run."""
    node = ModelNode()
    grant = await prepared(node, a_grant("c", SMALL))
    node.records.clear()

    await node.mig.prepare()
    assert 1 == len(node.uuids())
    node.claims.discard(grant.uid)
    await node.mig.prepare()

    assert [] == node.uuids()


@pytest.mark.parametrize("steps", range(8))
async def test_kill_at_any_step_of_prepare_or_unprepare_leaks_nothing(steps: int) -> None:
    """The kubelet repeats either call, and the instance exists once, or not at all."""
    node = ModelNode()
    grant = a_grant("c", SMALL)
    node.kill_after(steps)
    try:
        await prepared(node, grant)
    except Killed:
        node.restart()
    grant = await prepared(node, node.records.get(grant.uid, grant))
    assert 1 == len(node.uuids())

    node.kill_after(steps)
    try:
        await node.mig.release(grant.uid)
    except Killed:
        node.restart()
    await node.mig.release(grant.uid)

    assert ([], ()) == (node.uuids(), node.store.journal)


async def test_place_of_a_pods_instance_is_closed_for_claims() -> None:
    """Pods from before run on, and kube-scheduler does not know them. The slices change when one has ended."""
    node = ModelNode(a_gpu(instances=(an_instance(5, PROFILES[1], 4),)), is_by_claims=True)
    node.bind("p", a_promise(1, 0))
    await node.start("p")
    await prepared(node, a_grant("c", SMALL))

    await node.mig.prepare()
    assert {GPU: (MigPlacement(0, 1), MigPlacement(4, 2))} == node.mig.occupied

    node.end("p")
    assert await node.mig.prepare()
    assert {GPU: (MigPlacement(4, 2),)} == node.mig.occupied
    assert not await node.mig.prepare()


def test_claim_in_the_place_of_another_is_refused_and_takes_no_memory() -> None:
    """An instance is no share: only its place counts, also beside another one of its claim."""
    first, second = a_grant("a", LARGE), a_grant("b", SMALL)

    assert {} == claim_use(first).amounts
    check_ledger(first, [a_grant("b", "hami-mig-0-3g-0")], {}, {})
    with pytest.raises(CapacityError, match=r"1g.5gb at 6:1 of GPU .* is in the place of 3g.20gb at 4:4, by .*/a"):
        check_ledger(second, [first], {}, {})
    with pytest.raises(CapacityError, match=r"1g.5gb at 6:1 of GPU .* is in the place of 3g.20gb at 4:4, by .*/c"):
        check_ledger(a_grant("c", LARGE, SMALL), [], {}, {})


def test_record_and_journal_keep_what_a_claim_owns() -> None:
    """The next process works by them."""
    grant = a_grant("c", SMALL)
    [promise] = promised_instances(grant)
    entry = Entry(GPU, "1g.5gb", MigPlacement(6, 1), promise.owner, State.LIVE, (), 1, 0, "MIG-1")
    named = with_identities(grant, [entry])

    assert named == decode_record(encode_record(named))
    assert (entry,) == decode_journal(encode_journal((entry,), "b"), "b")
    assert replace(entry, mig_uuid=None) != entry


@needs_fake_driver
async def test_claims_are_prepared_and_unprepared_by_the_plugin(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """The pool has counters and devices; a container gets its instance alone, which goes with its claim."""
    api.put("nodes", a_node() | {"metadata": NODE_OBJECT["metadata"] | {"annotations": {}}})
    async with DraKubelet(host) as dra:
        plugin: PluginProcess = a_plugin(host, api, kubelet, "--node-kind=dra", f"--kubelet-root={dra.root}")
        async with plugin:
            await dra.registered()
            await plugin.until(lambda: 2 == len(_slices(api)))
            api.put("pods", a_user("c"))
            result = a_result(SMALL, shareID=None, consumedCapacity=None)
            claim = api.put("resourceclaims", a_claim("c", result))
            answer = (await dra.prepare(claim))["claim-c"]
            again = (await dra.prepare(claim))["claim-c"]
            created = asked_of_the_driver(host, "print_instances()")
            specs = plugin.specs()
            assert {"claim-c": ""} == await dra.unprepare(claim)

            assert ("", answer) == (answer.error, again)
            [edits] = specs.values()
            assert [f"NVIDIA_VISIBLE_DEVICES={uuid}" for uuid in created] == edits["env"]
            assert 1 == len(created)
            assert [] == asked_of_the_driver(host, "print_instances()")
            assert {} == plugin.specs()


def _slices(api: ApiServer) -> list[dict[str, Any]]:
    return [item for key, item in api.objects.items() if key[0] == "resourceslices"]
