"""
Our declarations equal NVIDIA's: sizes, offsets, numbers and function types, in each release that has them.
"""

import subprocess
from pathlib import Path

import pytest
from abi.declarations import CUDA_ABI, FAKE_NVML_ABI, NVML_ABI, evaluate, facts, implemented, prototypes
from abi.nvidia import COMPILER, NEWEST, RELEASES, Release, functions, inline_variants, preprocessed
from tables import cuda_rows, nvml_rows

each_release = pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
each_api = pytest.mark.parametrize("api", ["cuda", "nvml", "fake nvml"])


def theirs(release: Release, api: str) -> Path:
    """Return NVIDIA's header."""
    return release.cuda_h if api == "cuda" else release.nvml_h


def ours(api: str) -> Path:
    """Return our header."""
    return {"cuda": CUDA_ABI, "nvml": NVML_ABI, "fake nvml": FAKE_NVML_ABI}[api]


@each_api
@each_release
def test_types_and_numbers_are_nvidias(release: Release, api: str, tmp_path: Path) -> None:
    """
    Every size, offset and number in a release has our value. The newest release has all of them.
    """
    asked = facts(ours(api))
    here = evaluate(ours(api), asked, tmp_path)
    there = evaluate(theirs(release, api), asked, tmp_path)

    assert len(asked) == len(here) > 50
    assert there == {fact: value for fact, value in here.items() if fact in there}
    if release is NEWEST:
        assert [] == [fact for fact in here if fact not in there]


@each_api
@each_release
def test_functions_have_nvidias_types(release: Release, api: str, tmp_path: Path) -> None:
    """
    A compiler that has read NVIDIA's header accepts our prototypes as declarations of the same functions.
    """
    header = theirs(release, api)
    declared = implemented() if api == "fake nvml" else prototypes(ours(api))
    known = [prototype for symbol, prototype in declared.items() if symbol in functions(header)]
    code = tmp_path / "prototypes.c"
    code.write_text("\n".join([preprocessed(header), *known, ""]))

    checked = subprocess.run(
        [*COMPILER, "-std=gnu11", "-fsyntax-only", "-w", code], capture_output=True, text=True, check=False
    )

    assert len(known) > 10
    assert "" == checked.stderr


def test_every_hook_has_a_prototype_that_was_compared() -> None:
    """
    The types that a body relies on are in our header, and NVIDIA declares the function.
    """
    for header, rows, api in ((CUDA_ABI, cuda_rows(), "cuda"), (NVML_ABI, nvml_rows(), "nvml")):
        headers = [theirs(release, api) for release in RELEASES]
        known = set().union(*(functions(header) | inline_variants(header) for header in headers))

        assert {row.symbol for row in rows} <= prototypes(header).keys() & known
