"""
The folders of `src` use one another in one direction.

The build links each folder with the folders it may use and nothing else, and compiles it with their headers only. These
tests check that this would catch a call upwards, and that the order is one. The files use one another in one direction
too.
"""

import os
import re
import subprocess
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2]
CALLED = {
    "base": "hami_options",
    "hooks": "hami_hooks_load",
    "region": "hami_region_attach",
    "nvml": "hami_current_device",
    "time/model": "hami_timeline_mark",
    "time": "hami_limiter_enter",
    "memory/account": "hami_memory_charge",
    "memory": "hami_graph_allocates",
}
"""A function of each folder that folders above it may call."""
EXPORTED = re.compile(r"cu[A-Z]|nvml[A-Z]|dlv?sym$|dlm?open$")
"""What programs call. The library also calls it like a program: as the driver's, or as the C library's."""


@pytest.fixture(scope="module")
def described(build: Path) -> dict[str, list[set[str]]]:
    """For each folder, the folders that it may use and the folders whose headers it sees, as CMake has them."""
    text = (build / "folders.txt").read_text().replace(f"{SOURCE / 'src'}/", "")
    rows = (line.split(":") for line in text.splitlines())
    return {folder: [set(filter(None, names.split(";"))) for names in lists] for folder, *lists in rows}


def test_every_folder_is_in_the_order(described: dict[str, list[set[str]]]) -> None:
    """
    A folder of sources is one of those that are linked by themselves.
    """
    with_sources = {str(path.parent.relative_to(SOURCE / "src")) for path in SOURCE.glob("src/*/**/*.[cS]")}

    assert with_sources == set(described)


def test_no_folder_uses_a_folder_that_uses_it(described: dict[str, list[set[str]]]) -> None:
    """
    There is no circle, and each folder names all that is below it.
    """
    uses = {folder: used for folder, (used, _) in described.items()}

    assert {} == {
        folder: used
        for folder, used in uses.items()
        if folder in used or any(folder in uses[lower] or not uses[lower] <= used for lower in used)
    }


def test_a_folder_sees_no_headers_but_its_own_and_those_below(described: dict[str, list[set[str]]]) -> None:
    """
    The compiler finds no header of a folder above.
    """
    for folder, (used, seen) in described.items():
        assert (folder, {folder, *used}) == (folder, seen & set(described))


@pytest.mark.skipif(
    bool(os.environ.get("HAMI_SANITIZER_PRELOAD")), reason="libraries with a sanitizer have undefined symbols"
)
@pytest.mark.parametrize("folder", CALLED)
def test_a_call_upwards_does_not_link(
    build: Path, tmp_path: Path, described: dict[str, list[set[str]]], folder: str
) -> None:
    """
    Of one function of each folder, the linker finds those of the folder and of the folders below it.
    """
    caller = tmp_path / "caller.c"
    lines = [
        f"void {name}(void); void call_{name}(void); void call_{name}(void) {{ {name}(); }}" for name in CALLED.values()
    ]
    caller.write_text("\n".join(lines))
    found = {folder, *described[folder][0]}
    archives = [build / "tests/direction" / f"libhami_{name.replace('/', '_')}_archive.a" for name in sorted(found)]
    supplied = build / "tests/direction/CMakeFiles/supplied.dir/supplied.c.o"
    command: list[str | Path] = [os.environ.get("HAMI_CC", "cc"), "-shared", "-fPIC", "-Wl,-z,defs", caller]
    command += ["-Wl,--start-group", *archives, supplied, "-Wl,--end-group", "-ldl", "-lpthread"]
    done = subprocess.run([*command, "-o", tmp_path / "linked.so"], capture_output=True, text=True, check=False)
    missing = set(re.findall(r"undefined (?:reference to |symbol: )[`']?(\w+)", done.stderr))

    assert {CALLED[name] for name in set(CALLED) - found} == missing
    assert (not missing) == (done.returncode == 0)


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Return the files of a circle, or nothing if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_file_includes_a_file_that_includes_it() -> None:
    """
    A source and its header count as one. So a reader who follows the includes never comes back to a file.
    """
    included: dict[str, set[str]] = defaultdict(set)
    for path in SOURCE.glob("src/**/*.[chS]"):
        headers = re.findall(r'^#include "(\w+)\.h"', path.read_text(), re.MULTILINE)
        included[path.stem] |= set(headers) - {path.stem}

    assert [] == circle(included)


def test_no_file_calls_a_file_that_calls_it(build: Path, described: dict[str, list[set[str]]]) -> None:
    """
    Also where a function is declared in another file's header.
    """
    defined: dict[str, str] = {}
    missing: dict[str, set[str]] = {}
    for folder in described:
        archive = build / "tests/direction" / f"libhami_{folder.replace('/', '_')}_archive.a"
        listed = subprocess.run(["nm", "--print-file-name", archive], check=True, capture_output=True, text=True).stdout
        for place, kind, symbol in re.findall(r":(\S+)\.o: *[0-9a-f]* ([A-Zv]) (\w+)$", listed, re.MULTILINE):
            if kind == "U":
                missing.setdefault(place, set()).add(symbol)
            elif not EXPORTED.match(symbol):
                defined[symbol] = place
    called = {place: {defined[symbol] for symbol in symbols & set(defined)} for place, symbols in missing.items()}

    assert [] == circle(called)
