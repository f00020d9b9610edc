"""
The library and `hamicommon` read the same from a limits file, and refuse the same files.
"""

import json
import random
import subprocess
import threading
from pathlib import Path
from typing import Any

from containers import ROOT

from hamicommon.wire.errors import DecodeError
from hamicommon.wire.limits_file import decode_limits_file

VECTORS = ROOT / "libs/hamicommon/vectors/limits-file/files.json"
PIECES = [
    "GPU-1",
    "MIG-1",
    "GPU-2",
    "A",
    "=",
    " ",
    " ",
    "\n",
    "\n",
    "0",
    "7",
    "30",
    "100",
    "101",
    "18446744073709551615",
    "\r",
]


def read_by_library(build: Path, folder: Path, texts: list[str]) -> list[dict[str, Any]]:
    """Return what `print_limits` says about each text."""
    paths = [folder / str(index) for index in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text.encode())
    output = subprocess.run([build / "print_limits", *paths], capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in output.splitlines()]


def read_by_hamicommon(text: str) -> dict[str, Any]:
    """Return the same from the codec."""
    try:
        file = decode_limits_file(text.encode())
    except DecodeError:
        return {"is_read": False, "devices": [], "A": b"unset".hex()}
    devices = [[uuid.encode().hex(), each.memory_bytes, each.core_percent] for uuid, each in file.devices.items()]
    return {"is_read": True, "devices": devices, "A": file.environment.get("A", "unset").encode().hex()}


def test_library_reads_the_vectors_as_the_codec_does(build: Path, tmp_path: Path) -> None:
    """
    Every vector, accepted or refused.
    """
    texts = [case["text"] for case in json.loads(VECTORS.read_text("utf-8"))]

    assert [read_by_hamicommon(text) for text in texts] == read_by_library(build, tmp_path, texts)


def test_file_that_is_replaced_while_it_is_read_is_one_or_the_other(build: Path, tmp_path: Path) -> None:
    """
    The library reads two thousand times while the file is renamed into place, with more or fewer devices.
    """
    texts = ["hami-limits 1\n" + "".join(f"GPU-{index} {count} 1\n" for index in range(count)) for count in (1, 16)]
    path, is_over = tmp_path / "limits", threading.Event()

    def replace() -> None:
        while not is_over.is_set():
            for text in texts:
                (tmp_path / "new").write_text(text)
                (tmp_path / "new").rename(path)

    path.write_text(texts[0])
    writer = threading.Thread(target=replace)
    writer.start()
    try:
        output = subprocess.run([build / "print_limits", *[path] * 2000], capture_output=True, text=True, check=True)
    finally:
        is_over.set()
        writer.join()
    seen = [json.loads(line) for line in output.stdout.splitlines()]

    assert 2000 == len(seen)
    assert all(each in [read_by_hamicommon(text) for text in texts] for each in seen)


def test_library_reads_random_texts_as_the_codec_does(build: Path, tmp_path: Path) -> None:
    """
    A thousand texts of the format's pieces, of which some are valid.
    """
    chance = random.Random(1)
    texts = [
        "hami-limits 1\n" + "".join(chance.choices(PIECES, k=chance.randrange(12))) + chance.choice(["\n", ""])
        for _ in range(1000)
    ]
    expected = [read_by_hamicommon(text) for text in texts]

    assert 20 < sum(each["is_read"] for each in expected) < 980
    assert expected == read_by_library(build, tmp_path, texts)
