"""
A ConfigMap volume as the kubelet writes it: every file lies behind one symbolic link, which is swapped.

A reader finds either all old files or all new ones.
Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/volume/util/atomic_writer.go
"""

import itertools
import shutil
from collections.abc import Mapping
from pathlib import Path

_DATA = "..data"
_numbers = itertools.count(1)


def mount(folder: Path, files: Mapping[str, str]) -> None:
    """Replace the content of *folder* by *files*, text by name."""
    folder.mkdir(parents=True, exist_ok=True)
    before = (folder / _DATA).resolve()
    fresh = folder / f"..2026_11_22_00_00_00.{next(_numbers)}"
    fresh.mkdir()
    for name, text in files.items():
        (fresh / name).write_text(text)
    (folder / "..data_tmp").symlink_to(fresh.name)
    (folder / "..data_tmp").rename(folder / _DATA)
    for name in files:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"{_DATA}/{name}")
    for path in folder.iterdir():
        if not path.name.startswith("..") and path.name not in files:
            path.unlink()
    if before.is_dir() and before != folder / _DATA:
        shutil.rmtree(before)
