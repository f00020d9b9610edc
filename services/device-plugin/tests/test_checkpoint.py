"""
The kubelet's device checkpoint.
"""

from pathlib import Path

import pytest

from hami_device_plugin.adapters.checkpoint import Checkpoint, CheckpointError, decode_checkpoint

ROW = (
    b'{"Data":{"PodDeviceEntries":'
    b'[{"PodUID":%s,"ContainerName":"c","ResourceName":"r","DeviceIDs":%s,"AllocResp":""}]}}'
)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"Data": null}',
        b'{"Data": {"PodDeviceEntries": [{}]}}',
        b'{"Data":{"PodDeviceEntries":[1]}}',
        ROW % (b'{"a":1}', b'["a"]'),
        ROW % (b'"u"', b'[["a"]]'),
        ROW % (b'"u"', b'{"0":[1]}'),
    ],
)
def test_unknown_checkpoint_is_an_error(text: bytes) -> None:
    """A file in another form is not guessed at."""
    with pytest.raises(CheckpointError, match="unknown form"):
        decode_checkpoint(text)


def test_checkpoint_of_an_old_kubelet_is_read() -> None:
    """Before Kubernetes 1.20 IDs were not grouped by NUMA node."""
    text = (
        b'{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"r",'
        b'"DeviceIDs":["a","b"],"AllocResp":""}]},"Checksum":1}'
    )

    assert frozenset({"a", "b"}) == decode_checkpoint(text)[0].replicas


def test_missing_checkpoint_is_named(host: Path) -> None:
    """The message has the path."""
    with pytest.raises(CheckpointError, match=f"kubelet checkpoint {host}/x: No such file"):
        Checkpoint(host / "x").read()


def test_checkpoint_is_decoded_only_when_it_has_changed(host: Path) -> None:
    """A kubelet that starts many containers is asked often, and writes the file only for a new allocation."""
    path, text = (
        host / "x",
        b'{"Data":{"PodDeviceEntries":[{"PodUID":"%s","ContainerName":"c","ResourceName":"r",'
        b'"DeviceIDs":["a"],"AllocResp":""}]},"Checksum":1}',
    )
    checkpoint = Checkpoint(path)
    path.write_bytes(text % b"u")
    first = checkpoint.read()
    assert first is checkpoint.read()

    path.write_bytes(text % b"v")

    assert ["u", "v"] == [entries[0].pod_uid for entries in (first, checkpoint.read())]


def test_checkpoint_that_became_unreadable_is_an_error(host: Path) -> None:
    """What it said before does not count."""
    (host / "x").write_bytes(b'{"Data":{"PodDeviceEntries":[]}}')
    checkpoint = Checkpoint(host / "x")
    checkpoint.read()
    (host / "x").write_bytes(b"{}")

    with pytest.raises(CheckpointError, match=f"kubelet checkpoint {host}/x: unknown form"):
        checkpoint.read()
