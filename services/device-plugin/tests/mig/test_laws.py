"""
Laws of MIG instances, on any sequence of binds, starts, ends, kills and an administrator's own instances.
"""

from collections.abc import Sequence
from contextlib import suppress

import pytest
from device_plugin_mig import PROFILES, Killed, ModelNode, a_gpu, a_promise
from hypothesis import given
from hypothesis import strategies as st

from hami_device_plugin.decide.mig.geometry import overlap
from hami_device_plugin.decide.mig.journal import Entry, Owner, State, decode_journal, encode_journal
from hami_device_plugin.decide.mig.realize import PlacementError
from hamicommon.errors import HamiError
from hamicommon.model import MigAllocation, MigPlacement
from hamicommon.wire import keys
from hamicommon.wire.mig import decode_mig_allocations

pytestmark = pytest.mark.property

NAMES = ("a", "b", "c", "d")
SIZES = (1, 2, 3, 7)
OPERATIONS = st.one_of(
    st.tuples(st.just("bind"), st.sampled_from(NAMES), st.sampled_from(SIZES)),
    st.tuples(st.just("start"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("end"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("delete"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("kill"), st.sampled_from(NAMES), st.integers(0, 12)),
    st.tuples(st.just("repair"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("reboot"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("foreign"), st.sampled_from(NAMES), st.integers(0, 6)),
)


class Run:
    """One sequence: a Node, and what must hold on it."""

    def __init__(self) -> None:
        self.node = ModelNode(a_gpu())
        self.held: dict[str, Sequence[str]] = {}
        """The MIG UUIDs of each living Pod whose container was started."""
        self.foreign: set[str | None] = set()

    async def do(self, operation: str, name: str, number: int) -> None:
        """Do one thing; the process may end on the way, and is then replaced."""
        try:
            await getattr(self, f"_{operation}")(name, number)
        except Killed:
            self.node.restart()
        except PlacementError:
            assert operation == "start"

    def check(self) -> None:
        """Check what always holds."""
        live = self.node.uuids()
        held = [uuid for uuids in self.held.values() for uuid in uuids]
        assert len(held) == len(set(held)), "two Pods have one instance"
        assert set(held) <= set(live), "a living Pod lost its instance"
        assert self.foreign <= set(live), "somebody else's instance is gone"

    async def settle(self) -> None:
        """Check that nothing is left of what has ended, after a restart."""
        self.node.restart()
        await self.node.mig.prepare()
        journal = self.node.store.journal
        assert set(self.node.uuids()) == {entry.mig_uuid for entry in journal} | self.foreign
        assert {State.LIVE} >= {entry.state for entry in journal}
        assert {entry.owner.name for entry in journal} <= {
            pod.name for pod in self.node.pods.values() if pod.phase == "Running"
        }

    def _free(self, size: int) -> MigAllocation | None:
        """Return a promise as the scheduler makes it: no living Pod has one in the same place."""
        taken = [
            one.placement
            for pod in self.node.pods.values()
            if pod.phase == "Running"
            for one in decode_mig_allocations(pod.annotations[keys.MIG_ALLOCATIONS])
        ]
        profile = next(found for found in PROFILES if found.slices == size)
        free = (place for place in profile.placements if not any(overlap(place, other) for other in taken))
        place = next(free, None)
        return None if place is None else a_promise(size, place.start)

    async def _bind(self, name: str, size: int) -> None:
        promise = self._free(size)
        if name not in self.node.items and promise is not None:
            self.node.bind(name, promise)

    async def _start(self, name: str, _number: int) -> None:
        if name in self.node.items and self.node.pod(name).phase == "Running":
            self.held[name] = await self.node.start(name)

    async def _end(self, name: str, _number: int) -> None:
        if name in self.node.items:
            self.node.end(name)
            self.held.pop(name, None)

    async def _delete(self, name: str, _number: int) -> None:
        self.node.items.pop(name, None)
        self.held.pop(name, None)

    async def _kill(self, _name: str, steps: int) -> None:
        self.node.kill_after(steps)

    async def _repair(self, _name: str, _number: int) -> None:
        await self.node.mig.prepare()

    async def _reboot(self, _name: str, _number: int) -> None:
        self.node.driver.gpu = a_gpu()
        self.node.store.journal = ()
        self.held, self.foreign = {}, set()
        self.node.restart()

    async def _foreign(self, _name: str, start: int) -> None:
        place = MigPlacement(start, 1)
        if not any(overlap(place, found.placement) for found in self.node.driver.gpu.instances):
            added = self.node.driver.add(PROFILES[0], place)
            self.node.driver.change(added.id, is_busy=True)
            self.foreign.add(added.mig_uuid)


@given(st.lists(OPERATIONS, max_size=25))
async def test_nothing_is_shared_lost_or_leaked_whenever_the_process_is_killed(
    operations: list[tuple[str, str, int]],
) -> None:
    """The kill may be before or after any write of the journal, the driver or the Pod."""
    run = Run()
    for operation in operations:
        await run.do(*operation)
        run.check()
    await run.settle()
    run.check()


TEXTS = st.text(max_size=8)
ENTRIES = st.builds(
    Entry,
    gpu_uuid=TEXTS,
    profile=TEXTS,
    placement=st.builds(MigPlacement, st.integers(0, 7), st.integers(1, 8)),
    owner=st.builds(Owner, TEXTS, TEXTS, TEXTS),
    state=st.sampled_from(State),
    before=st.lists(st.integers(0, 14)).map(tuple),
    gpu_instance_id=st.none() | st.integers(0, 14),
    compute_instance_id=st.none() | st.integers(0, 7),
    mig_uuid=st.none() | TEXTS,
)


@given(st.lists(ENTRIES).map(tuple))
def test_journal_is_read_as_it_was_written(journal: tuple[Entry, ...]) -> None:
    """During the same boot; another boot's journal is empty."""
    written = encode_journal(journal, "boot-1")

    assert journal == decode_journal(written, "boot-1")
    assert () == decode_journal(written, "boot-2")


JSON_KEYS = st.sampled_from(["version", "boot", "instances", "pod", "state"])
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS, lambda inner: st.lists(inner) | st.dictionaries(JSON_KEYS, inner)
)


@given(JSON_VALUES)
def test_any_other_value_is_no_journal(value: object) -> None:
    """It raises nothing but the journal's own error."""
    with suppress(HamiError):
        decode_journal(value, "boot-1")
