"""
Reading region files of every layout, and writing two fields.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hami_monitor.adapters.region_file import RegionFile, RegionRefusedError, RegionUnusedError
from hami_monitor.decide.containers import Refusal
from hami_monitor.decide.feedback import RECENT_MAX, FeedbackWrite
from hamicommon.wire.region.codec import DeviceMemory, DeviceUtilization, decode_region
from hamicommon.wire.region.layout import LAYOUT_V0, LAYOUT_V1_1, LAYOUT_V1_1_SHIFTED, LAYOUT_V1_2, SLOTS, Layout
from hamicommon.wire.region.records import DeviceRecords, Unreached, WaitRecord
from hamicommon.wire.region.sums import DeviceSums, RegionState

from .region_files import Process, a_region

RELEASED = [LAYOUT_V0, LAYOUT_V1_1, LAYOUT_V1_1_SHIFTED, LAYOUT_V1_2]
of_every_release = pytest.mark.parametrize("layout", RELEASED, ids=lambda layout: layout.name)


Open = Callable[..., tuple[Path, RegionFile]]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Return a function that makes a region file and opens it."""
    files: list[RegionFile] = []

    def make(*arguments: Layout, **more: Any) -> tuple[Path, RegionFile]:
        path = tmp_path / "r.cache"
        path.write_bytes(a_region(*arguments, **more))
        files.append(RegionFile.open(path))
        return path, files[-1]

    yield make
    for file in files:
        file.close()


def open_descriptors() -> int:
    """Return the number of open files of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


def refusal_of(path: Path) -> Refusal:
    """Return the kind of refusal for *path*."""
    with pytest.raises(RegionRefusedError) as caught:
        RegionFile.open(path)
    return caught.value.refusal


@of_every_release
def test_usage_is_read_from_every_released_layout(layout: Layout, opened: Open) -> None:
    """Two processes on two devices add up by device; an ended one does not count."""
    _, file = opened(
        layout,
        uuids=(b"GPU-a", b"GPU-b"),
        limits=(4000, 2**64 - 1),
        processes=(
            Process({0: (10, 20, 30, 5, 65), 1: (1, 0, 0, 0, 1)}, {0: 40, 1: 7}),
            Process({0: (100, 0, 0, 0, 100)}, {0: 99}, status=0),
            Process({0: (3, 0, 4, 0, 7)}, {0: 50}, status=2),
        ),
        last_kernel_time=1_700_000_000,
    )

    state, sums = file.state(), file.sums(3, (0, 1))

    assert {0: DeviceSums(13, 20, 34, 72, 90), 1: DeviceSums(1, 0, 0, 1, 7)} == sums.devices
    assert (2, frozenset({100, 1000, 102, 1002})) == (sums.processes, sums.pids)
    assert (None if layout is LAYOUT_V0 else 1_700_000_000) == state.last_kernel_time


@of_every_release
def test_state_is_read_from_every_released_layout(layout: Layout, opened: Open) -> None:
    """The two fields of the feedback, the number of slots, and the names of the devices up to their first NUL."""
    _, file = opened(
        layout,
        uuids=(b"GPU-a", b"", b"GPU-c\0stale", b"\xff" * 96),
        processes=(Process(),) * 3,
        recent_kernel=-1,
        utilization_switch=0,
        last_kernel_time=5,
    )

    last = None if layout is LAYOUT_V0 else 5
    assert RegionState((b"GPU-a", b"", b"GPU-c", b"\xff" * 96), 3, -1, 0, last) == file.state()


def test_records_are_read_while_no_process_lives(opened: Open) -> None:
    """The first slot keeps them after its process has ended."""
    expected = (DeviceRecords(5 << 30, 7, 9_000_000_000), DeviceRecords(2**64 - 1, 0, 0))
    _, file = opened(uuids=(b"GPU-a", b"GPU-b"), records=expected)

    assert (0, expected) == (file.state().slot_count, file.state().records)


def test_waits_of_the_library_are_read_by_reason(opened: Open) -> None:
    """Reasons for which there was no wait are left out, and the words hold any number."""
    expected = (WaitRecord("share", 2**32 - 1, 2**64 - 1, 2**32 - 1), WaitRecord("driver", 1, 20_000, 20))
    _, file = opened(records=(), waits=expected)

    assert expected == file.state().waits


def test_what_the_library_does_not_reach_is_read(opened: Open) -> None:
    """The word holds any two numbers of 32 bits."""
    _, file = opened(records=(), unreached=Unreached(2**32 - 1, 7))

    assert Unreached(2**32 - 1, 7) == file.state().unreached


def test_region_without_the_mark_has_no_waits(opened: Open) -> None:
    """HAMi's own library may have other words there."""
    _, file = opened(waits=(WaitRecord("share", 1, 2, 3),), unreached=Unreached(4, 5))

    assert ((), Unreached()) == (file.state().waits, file.state().unreached)


@of_every_release
def test_region_without_the_mark_has_no_records(layout: Layout, opened: Open) -> None:
    """Its library counts neither peaks nor waits, so the words mean nothing, whatever is there."""
    path, file = opened(layout, processes=(Process({0: (1, 2, 3, 0, 6)}),), records=(DeviceRecords(1, 2, 3),))
    if layout is LAYOUT_V1_2:
        content = path.read_bytes()
        path.write_bytes(content[:48] + bytes(8) + content[56:])

    assert file.state().records is None


def test_waiting_launches_of_living_processes_add_up(opened: Open) -> None:
    """What a killed process has left does not count once its slot is free."""
    _, file = opened(
        processes=(Process(waiting={0: 2}), Process(waiting={0: 5}, status=0), Process(waiting={0: 1, 1: 4})),
        records=(),
    )

    sums = file.sums(3, (0, 1))

    assert [3, 4] == [sums.devices[device].waiting for device in (0, 1)]


@of_every_release
@pytest.mark.parametrize("slots", [0, 1, 7, SLOTS])
def test_sums_are_those_of_the_whole_file(layout: Layout, slots: int, opened: Open) -> None:
    """Columns over the slots give what the decoded processes add up to, for every device."""
    processes = tuple(
        Process({index % 16: (index, 2, 3, 4, 10 * index)}, {index % 3: index % 100}, status=index % 3)
        for index in range(slots)
    )
    path, file = opened(layout, processes=processes)
    living = [slot for slot in decode_region(path.read_bytes()).slots if slot.status]

    sums = file.sums(slots, range(16))

    assert len(living) == sums.processes
    for device in range(16):
        memory = [slot.memory.get(device, DeviceMemory()) for slot in living]
        busy = [(slot.utilization or {}).get(device, DeviceUtilization()) for slot in living]
        expected = (
            *(sum(getattr(one, name) for one in memory) for name in ("context", "module", "data", "total")),
            sum(one.sm for one in busy),
        )
        assert DeviceSums(*expected) == sums.devices[device]


@of_every_release
@pytest.mark.parametrize(
    "write",
    [
        pytest.param(FeedbackWrite(recent_kernel=-1), id="recent-kernel"),
        pytest.param(FeedbackWrite(utilization_switch=0), id="switch"),
        pytest.param(FeedbackWrite(recent_kernel=RECENT_MAX - 1, utilization_switch=0), id="both"),
    ],
)
def test_store_changes_its_fields_and_no_other_byte(layout: Layout, write: FeedbackWrite, opened: Open) -> None:
    """All other bytes stay."""
    path, file = opened(layout, processes=(Process({0: (1, 2, 3, 4, 10)}),))
    expected = bytearray(path.read_bytes())
    for offset, value in (
        (layout.recent_kernel, write.recent_kernel),
        (layout.utilization_switch, write.utilization_switch),
    ):
        if value is not None:
            expected[offset : offset + 4] = value.to_bytes(4, "little", signed=True)

    file.store(write)

    assert bytes(expected) == path.read_bytes()


def test_store_reaches_a_process_that_has_the_file_mapped(opened: Open) -> None:
    """The library sees the value in its mapping, and the monitor sees the library's."""
    path, file = opened(recent_kernel=2)
    program = (
        "import mmap, struct, sys\n"
        "with open(sys.argv[1], 'r+b') as f, mmap.mmap(f.fileno(), 0) as m:\n"
        "    print('mapped', flush=True); sys.stdin.readline()\n"
        "    at = int(sys.argv[2]); print(struct.unpack_from('<i', m, at)[0], flush=True)\n"
        "    struct.pack_into('<i', m, at, 2); print('launched', flush=True); sys.stdin.readline()\n"
    )
    arguments = [sys.executable, "-c", program, str(path), str(LAYOUT_V1_2.recent_kernel)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as library:
        assert library.stdin is not None
        assert library.stdout is not None
        assert "mapped\n" == library.stdout.readline()
        file.store(FeedbackWrite(recent_kernel=-1))
        library.stdin.write("\n")
        assert "-1\n" == library.stdout.readline()
        assert "launched\n" == library.stdout.readline()
        assert 2 == file.state().recent_kernel
        library.stdin.write("\n")


@of_every_release
@pytest.mark.parametrize("size", [0, 100, 4096, 100_000, -2])
def test_file_shrunk_by_another_process_is_refused_and_kills_nobody(layout: Layout, size: int, opened: Open) -> None:
    """Reading and storing are refused, and the file is not extended."""
    path, file = opened(layout)
    shrunk = size if size >= 0 else layout.region_size - 1
    subprocess.run([sys.executable, "-c", f"import os; os.truncate({str(path)!r}, {shrunk})"], check=True)

    with pytest.raises(RegionRefusedError) as read:
        file.state()
    if shrunk <= 100_000:
        with pytest.raises(RegionRefusedError) as stored:
            file.store(FeedbackWrite(recent_kernel=-1))
        assert Refusal.TRUNCATED is stored.value.refusal

    assert (Refusal.TRUNCATED, shrunk) == (read.value.refusal, path.stat().st_size)


def test_file_grown_back_after_it_was_shrunk_is_no_region(opened: Open) -> None:
    """Its size is right, but its contents are gone."""
    path, file = opened()
    os.truncate(path, 0)
    os.truncate(path, LAYOUT_V1_2.region_size + 1)

    with pytest.raises(RegionRefusedError) as caught:
        file.state()

    assert Refusal.UNKNOWN_LAYOUT is caught.value.refusal


def test_file_made_anew_is_noticed(tmp_path: Path) -> None:
    """Another file under the same name is another region."""
    path = tmp_path / "r.cache"
    path.write_bytes(a_region())
    file = RegionFile.open(path)
    assert file.is_at(str(path))

    other = tmp_path / "other"
    other.write_bytes(a_region())
    other.rename(path)

    assert not file.is_at(str(path))
    path.unlink()
    assert not file.is_at(str(path))


def test_file_that_changes_its_layout_is_refused(tmp_path: Path, opened: Open) -> None:
    """A region that another version overwrote must be opened again."""
    path, file = opened(LAYOUT_V1_2)
    path.write_bytes(a_region(LAYOUT_V1_1))

    with pytest.raises(RegionRefusedError) as caught:
        file.state()

    assert Refusal.UNKNOWN_LAYOUT is caught.value.refusal


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(b"\1", Refusal.UNKNOWN_LAYOUT, id="one-byte"),
        pytest.param(b"text" * 500_000, Refusal.UNKNOWN_LAYOUT, id="something-else"),
    ],
)
def test_file_that_is_no_region_is_refused(tmp_path: Path, content: bytes, expected: Refusal) -> None:
    """With the metric's reason."""
    path = tmp_path / "r.cache"
    path.write_bytes(content)

    assert expected is refusal_of(path)


@pytest.mark.parametrize("size", [0, 2008953])
def test_file_that_no_library_has_used_is_no_error(tmp_path: Path, size: int) -> None:
    """The device plugin makes an empty region, and clears it before the container runs again."""
    path = tmp_path / "r.cache"
    path.write_bytes(bytes(size))

    with pytest.raises(RegionUnusedError):
        RegionFile.open(path)


def test_trap_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    """A container controls its directory: a link leads out of it, a pipe blocks the reader."""
    target = tmp_path / "of-the-host"
    target.write_bytes(a_region())
    (tmp_path / "link.cache").symlink_to(target)
    os.mkfifo(tmp_path / "pipe.cache")
    (tmp_path / "directory.cache").mkdir()

    found = [refusal_of(tmp_path / name) for name in ("link.cache", "pipe.cache", "directory.cache", "absent.cache")]

    assert [Refusal.UNREADABLE] * 4 == found


def test_device_in_place_of_the_file_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To open a watchdog would reboot the Node; a container may have the right to make device files."""
    trap = tmp_path / "r.cache"
    os.mkfifo(trap)
    opened: list[int] = []
    real_open = os.open

    def recorded(path: str | Path, flags: int) -> int:
        opened.append(flags)
        return real_open(path, flags)

    monkeypatch.setattr(os, "open", recorded)

    assert Refusal.UNREADABLE is refusal_of(trap)

    assert [flags & os.O_PATH for flags in opened] == [os.O_PATH]


def test_refused_file_leaves_no_descriptor_open(tmp_path: Path) -> None:
    """A bad file is tried again every round."""
    path = tmp_path / "r.cache"
    path.write_bytes(b"\0" * 100)
    before = open_descriptors()

    for _ in range(20):
        refusal_of(path)

    assert before == open_descriptors()


@given(
    data=st.data(),
    layout=st.sampled_from(RELEASED),
    patches=st.lists(st.tuples(st.integers(0, 2_100_000), st.binary(min_size=1, max_size=12)), max_size=6),
    size=st.none() | st.integers(0, 2_100_000),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.property
def test_garbled_file_is_read_or_refused(
    tmp_path: Path, data: st.DataObject, layout: Layout, patches: list[tuple[int, bytes]], size: int | None
) -> None:
    """Any file is refused, or its amounts are integers of at least 0."""
    content = a_region(layout)
    fields = [layout.proc_num, layout.device_count, layout.uuids, layout.procs, layout.procs + layout.slot_status]
    for offset, patch in patches:
        at = data.draw(st.sampled_from([offset % len(content), *fields]))
        content[at : at + len(patch)] = patch
    path = tmp_path / "garbled.cache"
    path.write_bytes(content[:size] if size is not None else content)

    try:
        file = RegionFile.open(path)
    except RegionRefusedError:
        return
    state = file.state()
    for sums in file.sums(state.slot_count, range(16)).devices.values():
        assert min(sums.context, sums.module, sums.data, sums.total, sums.sm) >= 0
    file.close()
