"""
The journal of MIG instances as a file.
"""

import asyncio
import sys
from pathlib import Path

import pytest

from hami_device_plugin.adapters import mig_journal
from hami_device_plugin.adapters.mig_journal import LOCK_NAME, NAME, JournalFile
from hami_device_plugin.decide.mig.journal import Entry, JournalError, Owner, State
from hamicommon.model import MigPlacement

ENTRY = Entry("GPU-a", "1g.5gb", MigPlacement(0, 1), Owner("uid-p", "default", "p"), State.LIVE, (), 1, 0, "MIG-a")
HOLD = """
import fcntl, sys, time
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print(flush=True)
time.sleep(60)
"""


def test_journal_is_there_for_the_next_process(tmp_path: Path) -> None:
    """A file that a killed process was writing is removed."""
    first = JournalFile(tmp_path)
    first.write((ENTRY,))
    first.close()
    (tmp_path / f".{NAME}.1-1.tmp").write_bytes(b"half")

    assert (ENTRY,) == JournalFile(tmp_path).read()
    assert {NAME, LOCK_NAME} == {path.name for path in tmp_path.iterdir()}


def test_journal_of_an_earlier_boot_says_nothing(tmp_path: Path) -> None:
    """Instances do not survive a reboot."""
    boot = tmp_path / "boot_id"
    boot.write_text("first\n")
    before = JournalFile(tmp_path, boot)
    before.write((ENTRY,))
    before.close()
    boot.write_text("second\n")

    assert () == JournalFile(tmp_path, boot).read()


def test_unreadable_journal_is_kept_aside(tmp_path: Path) -> None:
    """Its instances are unknown then, so nothing destroys them."""
    (tmp_path / NAME).write_bytes(b"{")
    journal = JournalFile(tmp_path)

    assert () == journal.read()
    assert b"{" == (tmp_path / NAME).with_suffix(".unreadable").read_bytes()


async def test_journal_that_another_process_holds_is_waited_for_until_that_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two plugins overlap while one replaces the other, and the younger one serves before the older one ends."""
    monkeypatch.setattr(mig_journal, "HELD_SECONDS", 0.2)
    journal = JournalFile(tmp_path)
    command = [sys.executable, "-c", HOLD, str(tmp_path / LOCK_NAME)]
    other = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert other.stdout is not None
    await other.stdout.readline()
    with pytest.raises(JournalError, match="another device plugin holds the journal"):
        async with journal.held():
            pass
    other.kill()
    await other.wait()

    async with journal.held():
        pass


def test_journal_on_a_full_or_read_only_host_names_the_file(tmp_path: Path) -> None:
    """A change that cannot be written down is not made."""
    journal = JournalFile(tmp_path)
    journal.path.mkdir()

    with pytest.raises(JournalError, match=NAME):
        journal.write((ENTRY,))
