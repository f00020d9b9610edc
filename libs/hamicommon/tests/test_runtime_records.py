"""
Records say how each container was started last.
"""

from pathlib import Path

from hamicommon.runtime.host.records import IN_NAMESPACE, KINDS, UNPRELOADED, forget, record, recorded


def test_record_is_of_the_last_start(tmp_path: Path) -> None:
    """A container that restarts with the library has no record any more."""
    record(tmp_path, UNPRELOADED, "uid_a", is_so=True)
    record(tmp_path, UNPRELOADED, "uid_b", is_so=True)
    record(tmp_path, UNPRELOADED, "uid_b", is_so=True)
    record(tmp_path, UNPRELOADED, "uid_a", is_so=False)

    assert {"uid_b"} == recorded(tmp_path, UNPRELOADED)


def test_nothing_is_recorded_before_the_first_container(tmp_path: Path) -> None:
    """The folder is made with the first record, which a start with the library needs none of."""
    record(tmp_path / "containers", UNPRELOADED, "uid_a", is_so=False)

    assert frozenset() == recorded(tmp_path / "containers", UNPRELOADED)
    assert [] == list(tmp_path.iterdir())


def test_records_of_pods_that_are_gone_are_removed(tmp_path: Path) -> None:
    """Those of others stay."""
    for name in ("gone_a", "gone_b", "here_a"):
        record(tmp_path, UNPRELOADED, name, is_so=True)

    forget(tmp_path, lambda name: name.startswith("gone"))

    assert {"here_a"} == recorded(tmp_path, UNPRELOADED)


def test_kinds_are_recorded_apart_and_forgotten_together(tmp_path: Path) -> None:
    """A container may be of several."""
    record(tmp_path, UNPRELOADED, "uid_a", is_so=True)
    record(tmp_path, IN_NAMESPACE, "uid_a", is_so=True)
    record(tmp_path, IN_NAMESPACE, "uid_b", is_so=True)

    assert [{"uid_a"}, {"uid_a", "uid_b"}] == [recorded(tmp_path, kind) for kind in KINDS]
    forget(tmp_path, lambda name: name == "uid_a")
    assert [frozenset(), {"uid_b"}] == [recorded(tmp_path, kind) for kind in KINDS]
