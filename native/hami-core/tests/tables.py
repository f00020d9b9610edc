"""
The rows of `hooks_cuda.def` and `hooks_nvml.def` for the tests.
"""

import re
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parents[1]


class Row(NamedTuple):
    """One row: the symbol, and for CUDA the version that introduced it."""

    symbol: str
    since: int

    @property
    def name(self) -> str:
        """The name for cuGetProcAddress."""
        return split(self.symbol)[0]


def cuda_rows() -> list[Row]:
    """Return the rows of `hooks_cuda.def`, in their order."""
    return _rows("hooks_cuda.def", "HOOK")


def nvml_rows() -> list[Row]:
    """Return the rows of `hooks_nvml.def`, in their order, with 0 for the version."""
    return _rows("hooks_nvml.def", "HOOK")


def driver_rows() -> list[Row]:
    """Return all that CUDA's driver exports, with or without a hook."""
    return _rows("tests/fake_driver/exports/names_cuda.def", "NAME")


def split(symbol: str) -> tuple[str, int, str]:
    """
    Return a symbol's name, number and stream variant.

    >>> split("cuMemcpyHtoD_v2_ptds")
    ('cuMemcpyHtoD', 2, '_ptds')
    """
    name, number, variant = re.fullmatch(r"(\w+?)(_v\d+)?(_ptsz|_ptds)?", symbol).groups()  # type: ignore[union-attr]
    return name, int(number[2:]) if number else 1, variant or ""


def _rows(file: str, macro: str) -> list[Row]:
    text = (SOURCE / file).read_text()
    return [Row(symbol, int(since or 0)) for symbol, since in re.findall(rf"^{macro}\((\w+)(?:, (\d+))?", text, re.M)]
