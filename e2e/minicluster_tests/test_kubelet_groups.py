"""Folders that stand for control groups, as the kernel makes and removes them."""

from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

from minicluster.kubelet.runtime.groups import make_group, remove_group, write_controllers


def test_group_is_removed_while_somebody_writes_its_files(tmp_path: Path) -> None:
    """The driver may set a limit at the moment in which a container ends."""
    write_controllers(tmp_path, ["memory", "dmem"])
    group, is_over = tmp_path / "pod/leaf", Event()

    def write() -> None:
        while not is_over.is_set():
            with suppress(FileNotFoundError):
                (group / "dmem.max.new").write_text("0")

    writer = Thread(target=write)
    writer.start()
    try:
        for _ in range(300):
            make_group(tmp_path, "/pod/leaf")
            remove_group(group)
            assert not group.exists()
    finally:
        is_over.set()
        writer.join()
