"""
Write `names_cuda.def` and `names_nvml.def`: what NVIDIA's libraries export, and since which version.

Names and numbers only, from headers that are installed for this. Run from `native/hami-core/tests`:

    python -m fake_driver.exports.names
"""

from pathlib import Path

from abi.nvidia import RELEASES, functions, interface_versions, versions

HERE = Path(__file__).resolve().parent
UNDECLARED = {"nvmlInternalGetExportTable": 11080}
"""Exported, but in no header."""

CUDA_HEAD = """\
/*
 * What libcuda.so.1 exports: NAME(symbol, since), with the CUDA version whose API it is, as 1000 * major + 10 * minor.
 *
 * Written by names.py from cuda.h and cudaTypedefs.h of CUDA {releases}, and from the typedefs for OpenGL, EGL,
 * VDPAU and the profiler.
 */
"""
NVML_HEAD = """\
/*
 * What libnvidia-ml.so.1 exports: NAME(symbol, since), with the first CUDA release of {releases} that has it in nvml.h.
 *
 * Written by names.py.
 */
"""


def cuda() -> str:
    """Return the text of `names_cuda.def`."""
    return CUDA_HEAD.format(releases=_releases()) + _rows(versions() | interface_versions())


def nvml() -> str:
    """Return the text of `names_nvml.def`."""
    since = dict(UNDECLARED)
    for release in RELEASES:
        major, minor = map(int, release.version.split("."))
        for symbol in functions(release.nvml_h):
            since.setdefault(symbol, 1000 * major + 10 * minor)
    return NVML_HEAD.format(releases=_releases()) + _rows(since)


def _releases() -> str:
    return ", ".join(release.version for release in RELEASES)


def _rows(since: dict[str, int]) -> str:
    return "".join(f"NAME({symbol}, {version})\n" for symbol, version in sorted(since.items()))


if __name__ == "__main__":
    (HERE / "names_cuda.def").write_text(cuda())
    (HERE / "names_nvml.def").write_text(nvml())
