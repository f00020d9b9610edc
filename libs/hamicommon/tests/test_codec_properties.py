"""
Properties of the codecs on generated values and bytes.
"""

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hamicommon.model import (
    Device,
    MigAllocation,
    MigPlacement,
    MigProfile,
    Moment,
    NodeLock,
    ScoringWeights,
    Share,
)
from hamicommon.wire.device_lists import type_allowed, uuid_allowed
from hamicommon.wire.errors import DecodeError, EncodeError
from hamicommon.wire.handshake import (
    Handshake,
    HandshakeLayout,
    HandshakeState,
    decode_handshake,
    encode_handshake,
)
from hamicommon.wire.mig import decode_mig_allocations, decode_mig_suffix, encode_mig_allocations
from hamicommon.wire.node_devices import (
    NodeForm,
    decode_node_devices,
    encode_node_devices,
    node_form,
)
from hamicommon.wire.node_lock import decode_node_lock, encode_node_lock
from hamicommon.wire.pair_scores import decode_pair_scores, encode_pair_scores
from hamicommon.wire.pod_devices import decode_pod_devices, encode_pod_devices
from hamicommon.wire.policies import DEVICE_POLICIES, decode_device_policies, decode_scoring_weights
from hamicommon.wire.region.codec import DeviceMemory, DeviceUtilization, Region, Slot, decode_region, encode_region
from hamicommon.wire.region.layout import DEVICES, LAYOUTS, Layout
from hamicommon.wire.version import JSON_SINCE, NEWEST, NINE_FIELDS_SINCE, PLACEMENTS_SINCE, WireVersion

pytestmark = pytest.mark.property

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
UINT32 = st.integers(0, (1 << 32) - 1)
UINT64 = st.integers(0, (1 << 64) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAME = TEXT.filter(lambda name: not any(separator in name for separator in ",:;"))
VERSIONS = st.integers(4, 10).map(lambda minor: WireVersion(2, minor))
PLACEMENTS = st.builds(MigPlacement, UINT32, UINT32)
PROFILES = st.builds(MigProfile, TEXT, INT32, INT32, UINT32, st.lists(PLACEMENTS, max_size=3).map(tuple))
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 53), 1 << 53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)


def devices(names: st.SearchStrategy[str]) -> st.SearchStrategy[Device]:
    """Return devices whose names come from *names*."""
    return st.builds(
        Device,
        id=names,
        count=INT32,
        memory_mib=INT32,
        core_percent=INT32,
        type=names,
        index=st.integers(0, (1 << 63) - 1),
        numa=INT64,
        mode=names,
        healthy=st.booleans(),
        vendor=TEXT,
        mig_profiles=st.lists(PROFILES, max_size=2).map(tuple),
        custom=st.dictionaries(TEXT, JSON_VALUES, max_size=2),
    )


def carried(device: Device, version: WireVersion, form: NodeForm) -> Device:
    """Return what is left of *device* in the form of *version*."""
    is_json = form is NodeForm.JSON
    mode = {NodeForm.TEXT_7: "hami-core", NodeForm.TEXT_9: device.mode}.get(form)
    return Device(
        id=device.id,
        count=device.count,
        memory_mib=device.memory_mib,
        core_percent=device.core_percent,
        type=device.type,
        index=0 if form is NodeForm.TEXT_7 else device.index,
        numa=device.numa,
        mode=mode if mode is not None else device.mode if version >= NINE_FIELDS_SINCE else "",
        healthy=device.healthy,
        vendor=device.vendor if is_json else "",
        mig_profiles=device.mig_profiles if is_json and version >= PLACEMENTS_SINCE else (),
        custom=device.custom if is_json and version >= NINE_FIELDS_SINCE else {},
    )


@given(st.lists(devices(NAME), min_size=1, max_size=4), VERSIONS, st.sampled_from(["NVIDIA", "DCU", "Ascend910B3"]))
@example([Device("", 0, 0, 0, "", mode="")], WireVersion(2, 7), "DCU")
def test_inventory_survives_every_version_that_can_carry_it(
    given_devices: list[Device], version: WireVersion, vendor: str
) -> None:
    """Fields that the version does not have are lost, the others are the same."""
    form = node_form(version, vendor)
    expected = tuple(carried(device, version, form) for device in given_devices)
    try:
        text = encode_node_devices(given_devices, version, vendor)
    except EncodeError:
        assert given_devices[0].id.lstrip().startswith("[")
    else:
        assert expected == decode_node_devices(text)


@given(st.lists(devices(TEXT), max_size=4))
def test_newest_inventory_carries_everything(given_devices: list[Device]) -> None:
    """Any names, any amounts; and what was read is written as it was."""
    text = encode_node_devices(given_devices)
    assert tuple(given_devices) == decode_node_devices(text)
    assert text == encode_node_devices(decode_node_devices(text))


@given(st.dictionaries(TEXT, st.dictionaries(TEXT, INT64, max_size=4), max_size=4))
def test_pair_scores_survive(scores: dict[str, dict[str, int]]) -> None:
    """With any names of GPUs."""
    assert scores == decode_pair_scores(encode_pair_scores(scores))


SHARES = st.builds(Share, NAME.filter(bool), NAME, INT32, INT32)
PODS = st.lists(st.lists(SHARES, max_size=3).map(tuple), max_size=5).map(tuple)


@given(PODS, VERSIONS)
def test_grant_survives_every_version(pod: Any, version: WireVersion) -> None:
    """The last semicolon adds an empty entry."""
    decoded = decode_pod_devices(encode_pod_devices(pod, version))
    assert (*pod, ()) == decoded


ALLOCATIONS = st.builds(
    MigAllocation,
    container_index=st.integers(0, (1 << 63) - 1),
    device_index=st.integers(0, (1 << 63) - 1),
    gpu_uuid=TEXT.filter(bool),
    profile=TEXT.filter(bool),
    placement=st.builds(MigPlacement, UINT32, st.integers(1, (1 << 32) - 1)),
) | st.builds(
    MigAllocation,
    st.integers(0, 9),
    st.integers(0, 9),
    TEXT.filter(bool),
    TEXT.filter(bool),
    st.builds(MigPlacement, UINT32, st.integers(1, 8)),
    TEXT.filter(bool),
    UINT32,
    UINT32,
)


@given(st.lists(ALLOCATIONS, max_size=4, unique_by=lambda each: (each.container_index, each.device_index)))
def test_mig_allocations_survive(allocations: list[MigAllocation]) -> None:
    """With or without runtime identity."""
    assert tuple(allocations) == decode_mig_allocations(encode_mig_allocations(allocations))


@given(NAME.filter(lambda name: "[" not in name and "]" not in name), st.integers(0, 99), st.integers(0, 99))
def test_mig_suffix_survives(uuid: str, geometry: int, slot: int) -> None:
    """A UUID without brackets is found again."""
    assert (uuid, (geometry, slot)) == decode_mig_suffix(f"{uuid}[{geometry}-{slot}]")
    assert (uuid, None) == decode_mig_suffix(uuid)


ZONES = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
TIMES = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=ZONES | st.just(UTC))
OWNER = TEXT.filter(lambda name: "," not in name)


YEARS_0_TO_9999 = st.integers(Moment.at(0, 1, 1).shown_us, Moment.at(9999, 12, 31, 23, 59, 59, 999_999).shown_us)
MOMENTS = st.builds(Moment, YEARS_0_TO_9999, st.integers(-23 * 60, 23 * 60).map(lambda each: timedelta(minutes=each)))


@given(TIMES)
def test_moment_of_a_time_is_as_old_as_the_time(time: datetime) -> None:
    """In any offset."""
    assert timedelta() == Moment.of(time).age(time)
    assert str(Moment.of(time)) == time.replace(tzinfo=None).isoformat()


@given(st.builds(NodeLock, MOMENTS) | st.builds(NodeLock, MOMENTS, OWNER, OWNER), VERSIONS)
def test_lock_survives_every_version(lock: NodeLock, version: WireVersion) -> None:
    """Its offset too."""
    assert lock == decode_node_lock(encode_node_lock(lock, version))


CLOCKS = st.builds(Moment, YEARS_0_TO_9999)
NOTES = st.builds(
    Handshake,
    st.sampled_from(HandshakeState),
    CLOCKS,
    st.sampled_from([HandshakeLayout.DASHED, HandshakeLayout.DOTTED]),
) | st.builds(
    Handshake,
    st.just(HandshakeState.REPORTED),
    CLOCKS.map(lambda time: Moment(time.shown_us // 10**6 * 10**6)),
    st.just(HandshakeLayout.GO),
    st.from_regex(r"(\.[0-9]{1,9})? [+-][0-9]{4} [A-Z]{3,4}( m=[+-][0-9]{1,9}\.[0-9]{1,9})?", fullmatch=True),
)


@given(NOTES)
def test_handshake_survives(note: Handshake) -> None:
    """In each writer's layout."""
    assert note == decode_handshake(encode_handshake(note))


WEIGHT = st.integers(0, (1 << 63) - 1)


@given(st.builds(ScoringWeights, WEIGHT, WEIGHT, WEIGHT).filter(lambda each: each != ScoringWeights(0, 0, 0)))
def test_weights_survive(weights: ScoringWeights) -> None:
    """Up to the largest that HAMi reads."""
    text = f"slot={weights.slot},core={weights.core},memory={weights.memory}"
    assert weights == decode_scoring_weights(text)


@given(st.lists(st.sampled_from(DEVICE_POLICIES), unique=True).map(tuple))
def test_policies_survive(policies: tuple[str, ...]) -> None:
    """The order is kept, because it is the precedence."""
    assert policies == decode_device_policies(",".join(policies))


UTF8_NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\\"), max_size=24)


@st.composite
def regions(draw: st.DrawFn) -> Region:
    """Return regions of any layout."""
    layout: Layout = draw(st.sampled_from(LAYOUTS))
    is_shifted_kind = layout.name == "v1.1-seqlock-first"
    has_version = layout.major_version is not None
    device_count = draw(st.integers(0, DEVICES))
    records = st.dictionaries(st.integers(0, DEVICES - 1), st.builds(DeviceMemory, data=st.integers(1, (1 << 64) - 1)))
    busy = st.dictionaries(st.integers(0, DEVICES - 1), st.builds(DeviceUtilization, sm=st.integers(1, 100)))
    slots = tuple(
        Slot(
            index=index,
            pid=draw(st.integers(1, 99)),
            host_pid=draw(INT32),
            status=draw(st.sampled_from([1, 2])),
            seqlock=None if layout.slot_seqlock is None else draw(UINT64),
            memory=draw(records),
            monitor_used_bytes=draw(st.dictionaries(st.integers(0, DEVICES - 1), st.integers(1, 99))),
            utilization=None if layout.slot_device_util is None else draw(busy),
        )
        for index in range(draw(st.integers(int(is_shifted_kind), 3)))
    )
    return Region(
        layout=layout.name,
        major=1 if has_version else None,
        minor=(2 if layout.name == "v1.2" else 1) if has_version else None,
        sm_init_flag=draw(st.integers(0, 1)),
        owner_pid=draw(UINT64) if has_version else 0,
        lock_value=draw(UINT32),
        postinit_lock_value=None if layout.sem_postinit is None else draw(UINT32),
        device_count=device_count,
        uuids=tuple(draw(UTF8_NAMES) for _ in range(device_count)),
        memory_limits_bytes=tuple(draw(st.lists(UINT64, min_size=DEVICES, max_size=DEVICES))),
        sm_limits_percent=tuple(draw(st.lists(UINT64, min_size=DEVICES, max_size=DEVICES))),
        priority=draw(INT32),
        utilization_switch=draw(INT32),
        recent_kernel=draw(INT32),
        last_kernel_time=None if layout.last_kernel_time is None else draw(UINT64),
        slots=slots,
    )


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example])
@given(regions())
def test_region_survives_every_layout(region: Region) -> None:
    """Any region is read as it was written."""
    assert region == decode_region(encode_region(region))


@settings(max_examples=60)
@given(
    st.sampled_from(LAYOUTS),
    st.integers(-2, 40),
    st.lists(st.tuples(st.integers(0, 4000), st.binary(max_size=16)), max_size=6),
)
def test_broken_region_is_refused_or_bounded(layout: Layout, grown: int, patches: list[tuple[int, bytes]]) -> None:
    """Bytes thrown at the head and the first slots of a region, cut or grown."""
    data = bytearray(layout.region_size + 1 + grown)
    data[:12] = (19920718).to_bytes(4, "little") + (1).to_bytes(4, "little") * 2
    data[layout.proc_num : layout.proc_num + 4] = b"\xff\x03\x00\x00"[: max(0, len(data) - layout.proc_num)]
    for offset, patch in patches:
        data[offset : offset + len(patch)] = patch
    try:
        region = decode_region(data)
    except DecodeError:
        return
    assert (region.device_count <= 16, len(region.slots) <= 1024) == (True, True)


ANY_TEXT = (
    st.text()
    | st.text('[]{}",:;0123456789.eE+-truefalsnl \\/_TZ', max_size=80)
    | st.binary().map(lambda data: data.decode("utf-8", "surrogateescape"))
)
KEYS = [
    *("id", "ID", "index", "count", "devmem", "type", "mode", "health", "migProfiles", "placements", "start", "size"),
    *("custominfo", "uuid", "score", "containerIndex", "gpuUUID", "profile", "placement", "migUUID", "x"),
]
JSON_TEXT = JSON_VALUES.map(json.dumps) | st.recursive(
    st.sampled_from(["null", "true", "1", "-0", "1.5", '""', '"a"', "{}", "[]", "1e9"]),
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda items: "[" + ",".join(items) + "]")
        | st.lists(
            st.tuples(
                st.sampled_from(KEYS),
                inner,
            ),
            max_size=4,
        ).map(lambda pairs: "{" + ",".join(f'"{key}":{value}' for key, value in pairs) + "}")
    ),
    max_leaves=12,
)


@settings(max_examples=300)
@given(ANY_TEXT | JSON_TEXT | JSON_TEXT.map(lambda text: f"[{text}]"))
def test_any_text_is_a_value_or_a_refusal(text: str) -> None:
    """A decoder raises only DecodeError, for any text."""
    for decode in (
        decode_node_devices,
        decode_pair_scores,
        decode_pod_devices,
        decode_mig_allocations,
        decode_mig_suffix,
        decode_node_lock,
        decode_handshake,
        decode_scoring_weights,
    ):
        with suppress(DecodeError):
            decode(text)
    assert isinstance(uuid_allowed(text, text, "GPU-a"), bool)
    assert isinstance(type_allowed(text, text, "A100"), bool)


@given(ANY_TEXT)
def test_what_is_read_can_be_written_and_read_again(text: str) -> None:
    """Re-encoding a peer's text loses nothing that was understood."""
    try:
        pod = decode_pod_devices(text)
    except DecodeError:
        return
    assert (*pod, ()) == decode_pod_devices(encode_pod_devices(pod))


@given(JSON_TEXT.map(lambda text: f"[{text}]"))
def test_inventory_that_is_read_is_written_and_read_again(text: str) -> None:
    """Unknown keys aside, JSON comes back as it was understood."""
    try:
        understood = decode_node_devices(text)
    except DecodeError:
        return
    assert understood == decode_node_devices(encode_node_devices(understood))


@given(VERSIONS)
def test_newer_version_never_goes_back_to_text(version: WireVersion) -> None:
    """From 2.8 on the NVIDIA inventory is JSON."""
    assert (version >= JSON_SINCE) is (node_form(version) is NodeForm.JSON)
    assert version <= NEWEST
