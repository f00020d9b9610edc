"""The checkpoint has the kubelet's format and Go's checksum."""

from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minicluster.kubelet.devices.checkpoint import (
    FILE_NAME,
    Checkpoint,
    CheckpointError,
    Entry,
    checksum,
    read_checkpoint,
    write_checkpoint,
)

TWO_ENTRIES = Checkpoint(
    (
        Entry("uid-1", "main", "nvidia.com/gpu", {-1: ("GPU-1-0", "GPU-1-1")}, bytes([10, 3, 7, 255])),
        Entry("uid-2", "b c", "x/y", {1: ("d",), 0: ("a",), 10: ("z",), -1: ("q",)}, b""),
    ),
    {"nvidia.com/gpu": ("GPU-1-0", "GPU-1-1"), "a/b": ()},
)

NAMES = st.text("abc-/.0123456789", min_size=1, max_size=12)
ENTRIES = st.builds(
    Entry,
    pod_uid=NAMES,
    container=NAMES,
    resource=NAMES,
    ids_by_numa_node=st.dictionaries(st.integers(-1, 12), st.lists(NAMES, max_size=3).map(tuple), max_size=3),
    response=st.binary(max_size=30),
)


@pytest.mark.parametrize(
    ("checkpoint", "expected"),
    [(Checkpoint((), {}), 3467439661), (TWO_ENTRIES, 100677166)],
    ids=["empty", "two entries"],
)
def test_checksum_is_the_one_the_kubelet_computes(checkpoint: Checkpoint, expected: int) -> None:
    """The numbers were computed with Go's hash/fnv over go-spew 1.1.1, like in pkg/util/hash."""
    assert expected == checksum(checkpoint)


def test_file_has_the_fields_of_the_kubelet(tmp_path: Path) -> None:
    """Plugins read the ids of init containers from these fields."""
    write_checkpoint(tmp_path, TWO_ENTRIES.entries[:1], {"nvidia.com/gpu": ("GPU-1-0",)})

    content = orjson.loads((tmp_path / FILE_NAME).read_bytes())

    entry = {
        "PodUID": "uid-1",
        "ContainerName": "main",
        "ResourceName": "nvidia.com/gpu",
        "DeviceIDs": {"-1": ["GPU-1-0", "GPU-1-1"]},
        "AllocResp": "CgMH/w==",
    }
    assert {"PodDeviceEntries": [entry], "RegisteredDevices": {"nvidia.com/gpu": ["GPU-1-0"]}} == content["Data"]


def test_damaged_file_is_rejected(tmp_path: Path) -> None:
    """One changed id is enough."""
    write_checkpoint(tmp_path, TWO_ENTRIES.entries, TWO_ENTRIES.registered)
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes().replace(b"GPU-1-1", b"GPU-1-2"))

    with pytest.raises(CheckpointError, match="Checksum"):
        read_checkpoint(tmp_path)


@pytest.mark.property
@given(st.lists(ENTRIES, max_size=4), st.dictionaries(NAMES, st.lists(NAMES, max_size=3).map(tuple), max_size=3))
def test_checkpoint_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, entries: list[Entry], registered: dict[str, tuple[str, ...]]
) -> None:
    """Writing and reading loses nothing."""
    directory = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(directory, entries, registered)

    assert Checkpoint(tuple(entries), registered) == read_checkpoint(directory)
