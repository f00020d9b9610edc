"""
A container gets exactly the MIG instance that its Pod was promised, and the instance goes when the Pod ends.
"""

from dataclasses import replace
from typing import Any

import pytest
from device_plugin_mig import (
    GPU,
    PROFILES,
    DriverRefusesError,
    Killed,
    ModelNode,
    a_gpu,
    a_promise,
)

from hami_device_plugin.decide.allocate.owner import Allocated
from hami_device_plugin.decide.allocate.pods import AllocationError
from hami_device_plugin.decide.mig.geometry import MigMode
from hami_device_plugin.decide.mig.journal import State
from hami_device_plugin.decide.mig.realize import PlacementError
from hamicommon.model import MigPlacement
from hamicommon.wire import keys

ONE, TWO, THREE, SEVEN = PROFILES
STEPS_OF_A_START = 9
"""Journal twice around the intention, thrice in the driver, twice around the result, twice around the annotation."""
STEPS_OF_AN_END = 7


async def test_instance_is_created_where_the_pod_was_promised_it() -> None:
    """The annotation then names it, with the driver's numbers."""
    node = ModelNode()
    node.bind("p", a_promise(2, 4))

    uuids = await node.start("p")

    [created] = node.driver.gpu.instances
    assert (TWO.id, MigPlacement(4, 2)) == (created.profile_id, created.placement)
    assert [created.mig_uuid] == list(uuids) == node.named("p")


async def test_container_that_restarts_keeps_its_instance() -> None:
    """Nothing is created, and the Pod is not written again."""
    node = ModelNode()
    node.bind("p", a_promise())
    first = await node.start("p")
    written = node.items["p"]["metadata"]["annotations"][keys.MIG_ALLOCATIONS]

    assert first == await node.start("p")
    assert written == node.items["p"]["metadata"]["annotations"][keys.MIG_ALLOCATIONS]
    assert 1 == len(node.driver.gpu.instances)


async def test_instance_goes_when_its_pod_ends() -> None:
    """The API server is asked before."""
    node = ModelNode()
    node.bind("p", a_promise())
    await node.start("p")
    node.end("p")

    await node.mig.prepare()

    assert [] == node.uuids()
    assert ["p"] == [owner.name for owner in node.asked]
    assert () == node.store.journal


async def test_instance_stays_while_the_api_server_does_not_confirm_the_end() -> None:
    """The watch may be wrong, or behind."""
    node = ModelNode()
    node.bind("p", a_promise())
    await node.start("p")
    node.items.pop("p")
    node.is_server_down = True

    with pytest.raises(DriverRefusesError):
        await node.mig.prepare()

    assert 1 == len(node.uuids())


async def test_instance_of_an_ended_pod_stays_while_a_process_uses_it() -> None:
    """It goes once the process has ended."""
    node = ModelNode()
    node.bind("p", a_promise())
    await node.started("p")
    node.end("p")
    await node.mig.prepare()
    assert 1 == len(node.uuids())

    node.driver.change(1, is_busy=False)
    await node.mig.prepare()

    assert [] == node.uuids()


async def test_place_of_an_ended_pod_is_free_for_the_next() -> None:
    """The scheduler gives it away as soon as it sees the end; the repair comes first."""
    node = ModelNode()
    node.bind("old", a_promise(1, 0))
    await node.start("old")
    node.end("old")
    node.bind("new", a_promise(2, 0))

    await node.start("new")

    assert [TWO.id] == [found.profile_id for found in node.driver.gpu.instances]


async def test_place_of_a_living_pod_is_never_given_to_another() -> None:
    """Whatever the other Pod's annotation says."""
    node = ModelNode()
    node.bind("p", a_promise(2, 0))
    [uuid] = await node.start("p")
    node.bind("forged", a_promise(1, 1))
    node.bind("copied", a_promise(2, 0, mig_uuid=uuid, gpu_instance_id=1, compute_instance_id=0))

    for name in ("forged", "copied"):
        with pytest.raises(PlacementError, match="Pod default/p"):
            await node.start(name)

    assert [uuid] == node.uuids()


async def test_foreign_instance_is_never_used_and_says_how_to_remove_it() -> None:
    """An administrator's instance stays."""
    node = ModelNode()
    foreign = node.driver.add(ONE, MigPlacement(1, 1))
    node.bind("p", a_promise(2, 0))

    with pytest.raises(PlacementError, match=f"nvidia-smi mig -dci -i 0 -gi {foreign.id}"):
        await node.start("p")

    assert [foreign.mig_uuid] == node.uuids()
    assert () == node.store.journal


async def test_failed_second_instance_takes_the_first_of_the_call_with_it() -> None:
    """Another container's instance stays."""
    node = ModelNode()
    node.bind(
        "p",
        a_promise(1, 4, container=0),
        a_promise(1, 0, container=1),
        a_promise(1, 1, container=1, device=1),
        containers=2,
    )
    before = await node.start("p", 0)
    node.driver.refused = {MigPlacement(1, 1)}

    with pytest.raises(PlacementError, match="In use by another client"):
        await node.start("p", 1)

    assert list(before) == node.uuids()
    node.driver.refused = set()
    assert 2 == len(await node.start("p", 1))


async def test_container_of_one_pod_takes_over_the_place_of_its_init_container() -> None:
    """The same place and profile is used again; another profile replaces the instance."""
    node = ModelNode()
    node.bind("p", a_promise(1, 0), a_promise(1, 0, container=1), a_promise(2, 0, container=2), containers=3)

    first, same, other = [await node.start("p", index) for index in range(3)]

    assert first == same
    assert list(other) == node.uuids()
    assert [TWO.id] == [found.profile_id for found in node.driver.gpu.instances]


async def test_place_is_not_taken_over_while_a_process_uses_it() -> None:
    """A promise that overlaps a running container of its own Pod is wrong."""
    node = ModelNode()
    node.bind("p", a_promise(1, 0), a_promise(2, 0, container=1), containers=2)
    await node.started("p")

    with pytest.raises(PlacementError, match="a process uses it"):
        await node.start("p", 1)


@pytest.mark.parametrize(
    ("promise", "message"),
    [
        pytest.param(a_promise(2, 1), "takes this profile at 0:2, 2:2, 4:2 only", id="placement the GPU does not have"),
        pytest.param(a_promise(profile="4g.20gb"), "has no such profile", id="profile the GPU does not have"),
        pytest.param(a_promise(gpu_uuid="GPU-x"), "does not show GPU GPU-x", id="GPU that is gone"),
    ],
)
async def test_promise_that_the_gpu_cannot_keep_says_why(promise: object, message: str) -> None:
    """Nothing is created."""
    node = ModelNode()
    node.bind("p", promise)  # type: ignore[arg-type]

    with pytest.raises(PlacementError, match=message):
        await node.start("p")

    assert () == node.store.journal


async def test_pod_without_a_promise_says_which_scheduler_it_needs() -> None:
    """HAMi before 2.10 writes none."""
    node = ModelNode()
    node.bind("p", a_promise())
    promised = node.pod("p")
    node.items["p"]["metadata"]["annotations"].pop(keys.MIG_ALLOCATIONS)

    with pytest.raises(AllocationError, match=r"HAMi 2\.10 or newer"):
        await node.mig.realized(node.pod("p"), "c0", ())
    assert promised.uid == node.pod("p").uid


async def test_pod_gets_a_new_instance_after_a_reboot() -> None:
    """The driver has lost all instances, and the journal is of another boot; the annotation names the new one."""
    node = ModelNode()
    node.bind("p", a_promise())
    [before] = await node.start("p")
    node.driver.gpu = a_gpu()
    node.store.journal = ()
    node.restart()
    await node.mig.prepare()

    [after] = await node.start("p")

    assert before != after
    assert [after] == node.named("p") == node.uuids()


async def test_instance_that_hami_created_is_adopted() -> None:
    """The journal is empty, the Pod's annotation has the whole identity; it goes when the Pod ends."""
    node = ModelNode()
    live = node.driver.add(ONE, MigPlacement(3, 1))
    identity: dict[str, Any] = {"mig_uuid": live.mig_uuid, "gpu_instance_id": live.id, "compute_instance_id": 0}
    node.bind("p", a_promise(1, 3, **identity))
    await node.mig.prepare()

    assert (live.mig_uuid,) == await node.start("p")
    node.end("p")
    await node.mig.prepare()

    assert [] == node.uuids()


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"gpu_instance_id": 9}, id="GPU instance"),
        pytest.param({"compute_instance_id": 1}, id="compute instance"),
        pytest.param({"placement": MigPlacement(4, 1)}, id="placement"),
        pytest.param({"profile": "2g.10gb"}, id="profile"),
    ],
)
async def test_instance_is_not_adopted_if_a_part_of_its_identity_is_wrong(wrong: dict[str, object]) -> None:
    """It is left alone, also when the Pod ends."""
    node = ModelNode()
    live = node.driver.add(ONE, MigPlacement(3, 1))
    identity: dict[str, Any] = {"mig_uuid": live.mig_uuid, "gpu_instance_id": live.id, "compute_instance_id": 0}
    node.bind("p", replace(a_promise(1, 3, **identity), **wrong))  # type: ignore[arg-type]
    await node.mig.prepare()

    assert () == node.store.journal
    assert [live.mig_uuid] == node.uuids()


async def test_instance_that_two_pods_name_is_not_adopted() -> None:
    """One of them forged it."""
    node = ModelNode()
    live = node.driver.add(ONE, MigPlacement(3, 1))
    identity: dict[str, Any] = {"mig_uuid": live.mig_uuid, "gpu_instance_id": live.id, "compute_instance_id": 0}
    for name in ("p", "q"):
        node.bind(name, a_promise(1, 3, **identity))
    await node.mig.prepare()

    assert () == node.store.journal
    assert [live.mig_uuid] == node.uuids()


async def test_instance_under_a_known_number_that_is_another_one_is_left_alone() -> None:
    """Somebody destroyed ours and created theirs, and the driver reused the number."""
    node = ModelNode()
    node.bind("p", a_promise())
    await node.start("p")
    node.driver.remove(1)
    theirs = node.driver.add(ONE, MigPlacement(0, 1))
    assert 1 == theirs.id
    node.end("p")
    node.driver.change(1, is_busy=True)

    await node.mig.prepare()

    assert [theirs.mig_uuid] == node.uuids()
    assert () == node.store.journal


@pytest.mark.parametrize("steps", range(STEPS_OF_A_START))
async def test_start_that_is_killed_at_any_step_succeeds_in_the_next_process(steps: int) -> None:
    """There is one instance in the end, and the Pod names it."""
    node = ModelNode()
    node.bind("p", a_promise())
    node.kill_after(steps)
    with pytest.raises(Killed):
        await node.start("p")
    node.restart()
    await node.mig.prepare()

    [uuid] = await node.start("p")

    assert [uuid] == node.uuids() == node.named("p")
    assert [State.LIVE] == [entry.state for entry in node.store.journal]


@pytest.mark.parametrize("steps", range(STEPS_OF_A_START))
async def test_start_that_is_killed_at_any_step_leaks_nothing_if_the_pod_ends(steps: int) -> None:
    """A neighbour's instance stays."""
    node = ModelNode()
    node.bind("neighbour", a_promise(1, 6))
    neighbour = await node.started("neighbour")
    node.bind("p", a_promise())
    node.kill_after(steps)
    with pytest.raises(Killed):
        await node.start("p")
    node.items.pop("p")
    node.restart()

    await node.mig.prepare()

    assert list(neighbour) == node.uuids()


@pytest.mark.parametrize("steps", range(STEPS_OF_AN_END))
async def test_end_that_is_killed_at_any_step_is_finished_by_the_next_process(steps: int) -> None:
    """A neighbour's instance stays."""
    node = ModelNode()
    node.bind("neighbour", a_promise(1, 6))
    neighbour = await node.started("neighbour")
    node.bind("p", a_promise())
    await node.start("p")
    node.end("p")
    node.kill_after(steps)
    with pytest.raises(Killed):
        await node.mig.prepare()
    node.restart()

    await node.mig.prepare()

    assert list(neighbour) == node.uuids()
    assert ["neighbour"] == [entry.owner.name for entry in node.store.journal]


async def test_idle_gpu_is_switched_to_mig_and_offers_its_profiles() -> None:
    """An A100 offers four profiles, and seven instances at most."""
    node = ModelNode(a_gpu(mode=MigMode.OFF))

    assert await node.mig.prepare()

    offered = node.mig.offers[GPU]
    assert (7, ["1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb"]) == (
        offered.instances_max,
        [profile.name for profile in offered.profiles],
    )
    assert not await node.mig.prepare()


async def test_idle_gpu_loses_the_instances_that_nobody_uses() -> None:
    """As with HAMi: what an administrator left would block placements."""
    node = ModelNode()
    node.driver.add(ONE, MigPlacement(0, 1))

    await node.mig.prepare()

    assert [] == node.uuids()


async def test_leftover_instance_that_the_kubelet_gave_to_a_container_stays() -> None:
    """Its place is not offered, and everything else is."""
    node = ModelNode()
    foreign = node.driver.add(ONE, MigPlacement(0, 1))
    node.bind("other")
    node.allocated = [Allocated("uid-other", "main", "nvidia.com/mig-1g.5gb", frozenset({str(foreign.mig_uuid)}))]

    await node.mig.prepare()

    assert [foreign.mig_uuid] == node.uuids()
    placements = {
        profile.name: [place.start for place in profile.placements] for profile in node.mig.offers[GPU].profiles
    }
    assert {"1g.5gb": [1, 2, 3, 4, 5, 6], "2g.10gb": [2, 4], "3g.20gb": [4], "7g.40gb": []} == placements


@pytest.mark.parametrize(
    ("gpu", "message"),
    [
        pytest.param(a_gpu(mode=MigMode.UNSUPPORTED, name="Tesla T4"), "has no MIG", id="no MIG"),
        pytest.param(a_gpu(name="NVIDIA X1"), "no rule of nvidia.migProfileAllowlist", id="unknown model"),
        pytest.param(a_gpu(mode=MigMode.TURNING_OFF), "nvidia-smi -i 0 -mig 1", id="about to be switched off"),
        pytest.param(a_gpu(mode=MigMode.OFF, is_busy=True), "once the GPU is idle: processes use it", id="in use"),
    ],
)
async def test_gpu_that_cannot_be_ready_says_why_and_is_left_alone(gpu: object, message: str) -> None:
    """It is not offered."""
    node = ModelNode(gpu)  # type: ignore[arg-type]
    node.driver.tick = node.store.tick = lambda: pytest.fail("changed")

    await node.mig.prepare()

    assert message in node.mig.problems[GPU]
    assert {} == node.mig.offers


async def test_mig_is_not_switched_on_while_a_pod_shares_the_gpu() -> None:
    """It was bound in mode hami-core."""
    node = ModelNode(a_gpu(mode=MigMode.OFF))
    node.bind("p", a_promise())
    node.items["p"]["metadata"]["annotations"].pop(keys.MIG_ALLOCATIONS)

    await node.mig.prepare()
    assert "Pod default/p holds 1 shares of it" in node.mig.problems[GPU]
    node.end("p")
    await node.mig.prepare()

    assert MigMode.ON is node.driver.gpu.mode
    assert {} == node.mig.problems


async def test_mig_is_switched_on_once_the_monitor_has_let_go_of_the_driver() -> None:
    """It is asked by an annotation, which is gone afterwards."""
    node = ModelNode(a_gpu(mode=MigMode.OFF))
    node.driver.is_held = True

    await node.mig.prepare()

    assert MigMode.ON is node.driver.gpu.mode
    assert node.announced is None
    assert GPU in node.mig.offers


async def test_client_that_does_not_let_go_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU is tried again, and is offered once the client is gone."""
    monkeypatch.setattr("hami_device_plugin.serve.mig.instances.ALONE_SECONDS", 0.1)
    node = ModelNode(a_gpu(mode=MigMode.OFF))
    node.driver.is_held, node.lets_go = True, False

    await node.mig.prepare()
    assert "once no other program holds the driver (dcgm (pid 7))" in node.mig.problems[GPU]
    assert node.announced is None
    node.driver.is_held = False
    await node.mig.prepare()

    assert GPU in node.mig.offers


async def test_instance_of_an_ended_pod_stays_if_the_kubelet_gave_it_to_another_container() -> None:
    """Somebody created it again with the same numbers, so it has the same UUID."""
    node = ModelNode()
    node.bind("p", a_promise())
    [uuid] = await node.start("p")
    node.end("p")
    node.bind("other")
    node.allocated = [Allocated("uid-other", "main", "nvidia.com/mig-1g.5gb", frozenset({uuid}))]

    await node.mig.prepare()

    assert [uuid] == node.uuids()
