"""
The history of the storage is exact, pages are consistent, and the journal loses nothing.
"""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minicluster.apiserver.api.errors import StatusError
from minicluster.apiserver.api.resources import CONFIG_MAPS
from minicluster.apiserver.serve.lists import page_of
from minicluster.apiserver.serve.requests import Target
from minicluster.apiserver.store.journal import Journal
from minicluster.apiserver.store.storage import CompactedError, Storage

NAMES = st.sampled_from([f"c{i}" for i in range(6)])
WRITES = st.lists(st.tuples(st.sampled_from(["put", "remove"]), NAMES), max_size=25)


def write(storage: Storage, writes: list[tuple[str, str]]) -> list[dict[str, bytes]]:
    """Apply *writes*, and return the state after each version, by name."""
    states = [state_of(storage)]
    for verb, name in writes:
        key = CONFIG_MAPS.key("default", name)
        if verb == "put":
            storage.put(CONFIG_MAPS, key, {"metadata": {"name": name, "namespace": "default", "uid": name}})
        elif storage.get(CONFIG_MAPS, key):
            storage.remove(CONFIG_MAPS, key)
        else:
            continue
        states.append(state_of(storage))
    return states


def state_of(storage: Storage) -> dict[str, bytes]:
    """Return the stored objects, by name."""
    return {key: entry.data for key, entry in storage.collections[CONFIG_MAPS].entries.items()}


@pytest.mark.property
@given(WRITES)
def test_a_past_state_is_restored_exactly(writes: list[tuple[str, str]]) -> None:
    """
    Undoing the changes since a version restores the state at that version.
    """
    storage = Storage()
    states = write(storage, writes)

    for age, expected in enumerate(states):
        entries, keys = storage.collections[CONFIG_MAPS].state_at(1 + age)
        assert expected == {key: entry.data for key, entry in entries.items()}
        assert sorted(expected) == keys


@pytest.mark.property
@given(WRITES, WRITES, st.integers(1, 4))
def test_pages_show_one_version_despite_writes_between_them(
    before: list[tuple[str, str]], between: list[tuple[str, str]], limit: int
) -> None:
    """
    All pages together are the list at the first page, in order, with each object once.
    """
    storage = Storage()
    write(storage, before)
    expected = sorted(state_of(storage).items())
    target = Target(CONFIG_MAPS, "default", "", "")
    shown: list[bytes] = []

    page = page_of(storage, target, {"limit": str(limit)})
    while True:
        shown += [entry.data for entry in page.entries]
        assert len(page.entries) <= limit
        if not page.token:
            break
        write(storage, between)
        page = page_of(storage, target, {"limit": str(limit), "continue": page.token})

    assert [data for _, data in expected] == shown


def test_a_page_of_a_compacted_version_is_410() -> None:
    """
    After compaction a list must start again.
    """
    storage = Storage()
    write(storage, [("put", f"c{i}") for i in range(4)])
    target = Target(CONFIG_MAPS, "default", "", "")
    page = page_of(storage, target, {"limit": "2"})
    write(storage, [("put", "c5")])
    storage.compact()

    with pytest.raises(StatusError, match="continue parameter is too old") as caught:
        page_of(storage, target, {"limit": "2", "continue": page.token})
    assert (410, "Expired") == (caught.value.code, caught.value.reason)


def test_history_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Old changes are dropped, and a request for them is an error.
    """
    monkeypatch.setattr("minicluster.apiserver.store.storage.HISTORY_CHANGES", 10)
    storage = Storage()
    write(storage, [("put", "c0")] * 30)

    with pytest.raises(CompactedError):
        storage.collections[CONFIG_MAPS].since(2)
    assert 5 == len(list(storage.collections[CONFIG_MAPS].since(storage.version - 5)))


@pytest.mark.property
@given(WRITES, WRITES, st.integers(0, 40))
def test_a_journal_cut_anywhere_in_its_last_line_restores_every_other_write(
    tmp_path_factory: Any, first: Any, second: Any, cut: int
) -> None:
    """
    A kill during a write loses at most that write, which was not acknowledged.
    """
    folder = tmp_path_factory.mktemp("journal")
    storage = journaled(folder)
    write(storage, first)
    storage = journaled(folder)
    states = write(storage, second)
    path = folder / "journal"
    content = path.read_bytes()
    last_line = len(content.splitlines(keepends=True)[-1]) if content else 0
    path.write_bytes(content[: len(content) - min(cut, last_line)])

    restored = state_of(journaled(folder))

    assert restored == (states[-1] if not cut or not content else states[-2])


def journaled(folder: Path) -> Storage:
    """Return a storage with the objects in *folder*."""
    journal = Journal(folder)
    storage = Storage(journal.append)
    journal.load(storage)
    return storage


def test_versions_continue_after_those_of_the_journal(tmp_path: Path) -> None:
    """
    A resourceVersion is never used twice, not even that of the last removal.
    """
    storage = journaled(tmp_path)
    write(storage, [("put", "c1"), ("remove", "c1")])

    assert storage.version == journaled(tmp_path).version
