"""
`python -m hamicommon` as a process: its output and its errors.
"""

import gzip
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from hamicommon import __version__
from hamicommon.__main__ import main
from hamicommon.cli.formats import FORMATS

VECTORS = Path(__file__).parents[1] / "vectors"
COMMAND = [sys.executable, "-m", "hamicommon"]


def run(*arguments: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    """Run the command and return its result."""
    return subprocess.run([*COMMAND, *arguments], input=stdin, capture_output=True, check=False, timeout=60)


def printed(capsysbinary: pytest.CaptureFixture[bytes], *arguments: str) -> str:
    """Return what the command prints; it must succeed with an empty stderr."""
    status = main(arguments)
    out, err = capsysbinary.readouterr()
    assert (0, b"") == (status, err)
    return out.decode()


def refused(capsysbinary: pytest.CaptureFixture[bytes], *arguments: str) -> str:
    """Return the one line of the command's error."""
    status = main(arguments)
    out, err = capsysbinary.readouterr()
    assert (1, b"", 1) == (status, out, err.count(b"\n"))
    return err.decode()


def test_grant_is_printed_as_one_line_of_json(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Keys are sorted, units are in the names."""
    line = printed(capsysbinary, "decode", "pod-devices", "GPU-1,NVIDIA,3000,25:;")
    assert '[[{"core_percent": 25, "memory_mib": 3000, "type": "NVIDIA", "uuid": "GPU-1"}], []]\n' == line


def test_process_prints_what_its_main_does() -> None:
    """The module is a command."""
    done = run("decode", "node-lock", "-", stdin=b"2026-08-21T06:20:39Z,default,train-0\n")
    assert (0, b"") == (done.returncode, done.stderr)
    assert {"time": "2026-08-21T06:20:39Z", "namespace": "default", "pod": "train-0"} == json.loads(done.stdout)


def test_vendor_fills_in_what_the_form_leaves_out(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Most writers do not name the vendor. A name in the text is kept."""
    text = '[{"id":"a"},{"id":"b","devicevendor":"DCU"}]'
    shape = json.loads(printed(capsysbinary, "decode", "node-devices", text, "--vendor", "NVIDIA"))
    assert ["NVIDIA", "DCU"] == [device["vendor"] for device in shape]


@pytest.mark.parametrize(
    "arguments",
    [
        ("decode", "node-devices", "--vendor", "DCU", "-"),
        ("decode", "--vendor", "DCU", "node-devices", "-"),
        ("decode", "node-devices", "-", "--vendor", "DCU"),
        ("decode", "node-devices", "--vendor=DCU"),
    ],
    ids=" ".join,
)
def test_options_may_stand_anywhere(arguments: tuple[str, ...]) -> None:
    """Before, between and after the arguments, as people write them."""
    done = run(*arguments, stdin=b'[{"id":"a"}]\n')

    assert (0, b"") == (done.returncode, done.stderr)
    assert ["DCU"] == [device["vendor"] for device in json.loads(done.stdout)]


def test_empty_list_is_printed_as_one(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """An empty list is no error."""
    assert "[]\n" == printed(capsysbinary, "decode", "node-devices", ":")


def test_output_is_one_line_whatever_is_in_it(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Characters that some readers take for a line's end are escaped."""
    line = printed(capsysbinary, "decode", "pod-devices", "a\x85\u2028\n,显卡,1,1:")
    assert 1 == len(line.splitlines())
    assert "显卡" in line


def test_formats_are_listed_in_an_aligned_table(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Each format has a row, and columns are aligned."""
    header, *rows = printed(capsysbinary, "formats").splitlines()
    assert [each.name for each in FORMATS] == [row.split()[0] for row in rows]
    for title in ("KEY OR FILE", "WRITTEN BY", "READ BY", "HAMI VERSIONS"):
        assert all("  " == row[header.index(title) - 2 : header.index(title)] for row in rows)


@pytest.mark.parametrize("arguments", [["region"], ["decode", "region"]])
def test_region_file_is_printed(
    arguments: list[str], tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """By path, in both forms of the command."""
    path = tmp_path / "a.cache"
    path.write_bytes(gzip.decompress((VECTORS / "region" / "v1.2-busy.cache.gz").read_bytes()))
    shape = json.loads(printed(capsysbinary, *arguments, str(path)))
    assert ("v1.2", 1, 2, 3) == (shape["layout"], shape["major"], shape["minor"], len(shape["uuids"]))
    assert {"context", "module", "data", "offset", "total"} == set(shape["slots"][0]["memory_bytes"]["0"])


def test_region_is_read_from_standard_input() -> None:
    """Its bytes, not a text."""
    data = gzip.decompress((VECTORS / "region" / "v0-early-one.cache.gz").read_bytes())
    done = run("region", "-", stdin=data)
    assert "v0-early" == json.loads(done.stdout)["layout"]
    assert json.loads(done.stdout)["slots"][0]["utilization_percent"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["decode", "node-devices", "x"], ["node-devices", "whole text", "':'"]),
        (["decode", "node-devices", "GPU-a,x,1,1,T,0,true:"], ["device 0, field count", "'x'"]),
        (["decode", "mig-allocations", "[{}]"], ["item 0", "gpuUUID"]),
        (["decode", "region", "/no/such/file"], ["/no/such/file", "No such file"]),
        (["region", "/"], ["Is a directory"]),
        (["region", "a\0b"], ["cannot be read"]),
        (["region", os.devnull], ["too few"]),
        (["region", "/dev/zero"], ["no region"]),
        (["decode", "node-lock", "\udcff"], ["argument, byte 0", "UTF-8"]),
    ],
)
def test_bad_input_is_refused_in_one_line(
    arguments: list[str], words: list[str], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """It names the subject, the place, the reason, and what would be right."""
    line = refused(capsysbinary, *arguments)
    assert [] == [word for word in words if word not in line]


def test_input_that_is_no_utf8_is_refused() -> None:
    """The error has the place of the first bad byte."""
    done = run("decode", "node-lock", stdin=b"abc\xff")
    assert (1, b"", 1) == (done.returncode, done.stdout, done.stderr.count(b"\n"))
    assert b"standard input, byte 3: is not UTF-8" in done.stderr


def test_lines_are_answered_one_by_one_in_order() -> None:
    """A bad line is an answer too, and the next one is read."""
    lines = [
        b'"GPU-1,NVIDIA,3000,25:;"',
        b'"x,y"',
        b"no json",
        b"\xff",
        b"",
        b'"\\ud800,T,1,1:"',
        b'"a" "b"',
        b'"GPU-2,NVIDIA,1,1:"',
    ]
    done = run("decode", "pod-devices", "--lines", stdin=b"\n".join(lines))
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert 0 == done.returncode
    assert ["value", "error", "error", "error", "error", "value", "error", "value"] == [
        next(iter(one)) for one in answers
    ]
    assert "container 0, device 0: 'x,y' has 2 fields, not uuid,type,memory,cores" == answers[1]["error"]
    assert "\ufffd" == answers[5]["value"][0][0]["uuid"]
    assert "GPU-2" == answers[7]["value"][0][0]["uuid"]


def test_closed_pipe_ends_it_quietly() -> None:
    """The reader has closed the pipe; no traceback follows."""
    process = subprocess.Popen(
        [*COMMAND, "decode", "pod-devices", "--lines"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.close()
    assert b"" == _complaint(process)


def _complaint(process: "subprocess.Popen[bytes]") -> bytes:
    """Write lines until the process has ended, and return its stderr."""
    assert process.stdin is not None
    assert process.stderr is not None
    with suppress(BrokenPipeError):
        for _ in range(20_000):
            process.stdin.write(b'"GPU-1,NVIDIA,3000,25:;"\n')
    with suppress(BrokenPipeError):
        process.stdin.close()
    err = process.stderr.read()
    process.stderr.close()
    process.wait(timeout=30)
    return err


def test_interrupt_ends_it_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit status is the shell's for an interrupt."""
    monkeypatch.setattr("hamicommon.__main__._write", _interrupted)
    assert 130 == main(["formats"])


def _interrupted(_parts: object) -> None:
    raise KeyboardInterrupt


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The distribution's own."""
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (0, f"{__version__}\n") == (ended.value.code, capsys.readouterr().out)


@pytest.mark.parametrize("arguments", [[], ["decode"], ["decode", "no-such-format"], ["shout"]])
def test_wrong_usage_is_told_from_bad_input(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, and the usage."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert 2 == ended.value.code
    assert "usage: python -m hamicommon" in capsys.readouterr().err
