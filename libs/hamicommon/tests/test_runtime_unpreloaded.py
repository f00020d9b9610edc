"""
The record of containers without the library says how each was started last.
"""

from pathlib import Path

from hamicommon.runtime.host.unpreloaded import forget, record, recorded


def test_record_is_of_the_last_start(tmp_path: Path) -> None:
    """A container that restarts with the library has no record any more."""
    record(tmp_path, "uid_a", is_preloaded=False)
    record(tmp_path, "uid_b", is_preloaded=False)
    record(tmp_path, "uid_b", is_preloaded=False)
    record(tmp_path, "uid_a", is_preloaded=True)

    assert {"uid_b"} == recorded(tmp_path)


def test_nothing_is_recorded_before_the_first_container(tmp_path: Path) -> None:
    """The folder is made with the first record, which a start with the library needs none of."""
    record(tmp_path / "containers", "uid_a", is_preloaded=True)

    assert frozenset() == recorded(tmp_path / "containers")
    assert [] == list(tmp_path.iterdir())


def test_records_of_pods_that_are_gone_are_removed(tmp_path: Path) -> None:
    """Those of others stay."""
    for name in ("gone_a", "gone_b", "here_a"):
        record(tmp_path, name, is_preloaded=False)

    forget(tmp_path, lambda name: name.startswith("gone"))

    assert {"here_a"} == recorded(tmp_path)
