"""
An operator sees a Node's MIG instances, their changes and what prevents one, in metrics and Events.
"""

from collections.abc import Callable

import pytest
from device_plugin_mig import GPU, NAMES, PROFILES, ModelNode, a_gpu, a_promise

from hami_device_plugin.decide.mig.geometry import MigMode
from hami_device_plugin.decide.mig.journal import Entry, Owner, State
from hami_device_plugin.decide.mig.offer import counts
from hami_device_plugin.decide.mig.realize import PlacementError
from hami_device_plugin.serve.mig.reports import MigReports
from hamicommon.model import MigPlacement

ONE, *_ = PROFILES


async def test_instances_are_counted_by_profile_and_state() -> None:
    """Every offered profile has every state from the start."""
    node = ModelNode()
    await node.mig.prepare()
    assert dict.fromkeys(("creating", "live", "destroying"), 0) | {"offered": 3} == node.counted("2g.10gb")
    node.bind("p", a_promise(2, 4))

    await node.start("p")

    assert (3, 1) == (node.counted("2g.10gb")["offered"], node.counted("2g.10gb")["live"])
    node.end("p")
    await node.mig.prepare()
    assert 0 == node.counted("2g.10gb")["live"]
    assert {("create", "ok"): 1, ("destroy", "ok"): 1} == node.changes()


async def test_instance_is_counted_while_the_driver_makes_it_and_destroys_it() -> None:
    """So a driver that hangs there shows."""
    node = ModelNode()
    seen: list[str] = []
    node.driver.tick = lambda: seen.extend(state for state, count in node.counted(NAMES[1]).items() if count == 1)
    await node.mig.prepare()
    node.bind("p", a_promise())
    await node.start("p")
    assert {"creating"} == set(seen)
    seen.clear()
    node.end("p")

    await node.mig.prepare()

    assert {"destroying"} == set(seen)


async def test_profile_that_a_tenant_spells_otherwise_adds_no_series() -> None:
    """The driver looks at the slices only, so a Pod's author may write anything after them."""
    node = ModelNode()
    await node.mig.prepare()
    node.bind("p", a_promise(profile="1g.whatever"))

    await node.start("p")

    assert {} == node.counted("1g.whatever")
    assert 1 == node.counted("1g.5gb")["live"]


def test_instance_of_a_profile_that_is_not_offered_counts_by_its_slices() -> None:
    """The allowlist may have lost the profile since."""
    entry = Entry(GPU, "2g.10gb", MigPlacement(0, 2), Owner("u", "n", "p"), State.LIVE)

    assert {(GPU, "2g", "live"): 1} == counts({}, (entry,))


async def test_numbers_end_with_the_session() -> None:
    """A Node that leaves mode `mig` shows no instances."""
    node = ModelNode()
    await node.mig.prepare()

    MigReports(node.metrics, lambda *_arguments, **_options: None).hide()

    assert {} == node.counted("1g.5gb")


async def test_mode_change_that_waits_for_clients_is_one_event_and_counts_each_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The Event names the clients; once MIG is on, another Event says so."""
    monkeypatch.setattr("hami_device_plugin.serve.mig.instances.ALONE_SECONDS", 0.1)
    node = ModelNode(a_gpu(mode=MigMode.OFF))
    node.driver.is_held, node.lets_go = True, False

    for _ in range(3):
        await node.mig.prepare()

    [(reason, message)] = node.sent
    assert ("MIGNotReady", True) == (reason, "once no other program holds the driver (dcgm (pid 7))" in message)
    assert {("switch-on", "refused"): 3} == node.changes()
    node.driver.is_held = False
    await node.mig.prepare()
    assert ["MIGNotReady", "MIGSwitchedOn"] == [reason for reason, _ in node.sent]
    assert {("switch-on", "refused"): 3, ("switch-on", "ok"): 1} == node.changes()


async def test_gpu_that_is_not_idle_is_one_event() -> None:
    """Nothing was tried, so nothing is counted."""
    node = ModelNode(a_gpu(mode=MigMode.OFF, is_busy=True))

    for _ in range(2):
        await node.mig.prepare()

    [(reason, message)] = node.sent
    assert ("MIGNotReady", True) == (reason, "once the GPU is idle: processes use it" in message)
    assert {} == node.changes()


@pytest.mark.parametrize(
    ("hinder", "result"),
    [
        pytest.param(lambda node: node.driver.add(ONE, MigPlacement(0, 1)), "refused", id="the place is taken"),
        pytest.param(lambda node: node.driver.refused.add(MigPlacement(0, 1)), "error", id="the driver fails"),
    ],
)
async def test_container_without_its_instance_is_an_event_of_the_node_and_counts(
    hinder: Callable[[ModelNode], object], result: str
) -> None:
    """The Event names Pod, container and reason."""
    node = ModelNode()
    hinder(node)
    node.bind("p", a_promise())

    with pytest.raises(PlacementError) as raised:
        await node.start("p")

    assert [("MIGInstanceNotCreated", f"Pod default/p, container c0 gets no MIG instance: {raised.value}")] == node.sent
    assert {("create", result): 1} == node.changes()


async def test_instance_that_a_process_keeps_is_one_event() -> None:
    """However often the plugin looks."""
    node = ModelNode()
    node.bind("p", a_promise())
    await node.started("p")
    node.end("p")

    for _ in range(3):
        await node.mig.prepare()

    [(reason, message)] = node.sent
    assert ("MIGInstanceNotDestroyed", True) == (reason, "a process uses it" in message)
    assert 1 == node.changes()["repair", "refused"]


async def test_repairs_are_counted() -> None:
    """After a reboot the journal's instances are gone; one that only a Pod names is adopted."""
    node = ModelNode()
    node.bind("p", a_promise())
    await node.start("p")
    found = node.driver.gpu.instances[0]
    node.store.journal = ()
    node.restart()
    await node.mig.prepare()
    assert 1 == node.changes()["adopt", "ok"]
    node.driver.remove(found.id)

    await node.mig.prepare()

    assert 1 == node.changes()["forget", "ok"]
