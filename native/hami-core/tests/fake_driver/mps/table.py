"""
The two formats of lists: tables, which cut long values, and csv.

Source: https://docs.nvidia.com/deploy/mps/mpsv3-interface.html. That tables cut pids of seven digits to `316...` was
measured, https://github.com/kai-scheduler/gpu-fractioning, `mpsctl/control.go`.
"""

from collections.abc import Iterable, Mapping, Sequence

from fake_driver.mps.model import MpsError

_CUT = "..."


def write(columns: Mapping[str, int], rows: Iterable[Sequence[str]], text: str) -> str:
    """
    Return *rows* in the format *text*: `table` or `csv`, with `,noheader` behind it or not.

    *columns* are headings and the widths of a table's columns.

    Raises:
        MpsError: there is no such format.
    """
    kind, _, option = text.partition(",")
    if kind not in ("table", "csv") or option not in ("", "noheader"):
        raise MpsError(f"Invalid format '{text}': use table or csv, with ,noheader or without.")
    lines = [*([] if option else [tuple(columns)]), *rows]
    if kind == "csv":
        return "\n".join(",".join(line) for line in lines)
    widths = [max(width, len(heading)) for heading, width in columns.items()]
    return "\n".join(_line(line, widths) for line in lines)


def _line(values: Sequence[str], widths: Sequence[int]) -> str:
    return " ".join(f"{_cut(value, width):{width}}" for value, width in zip(values, widths, strict=True)).rstrip()


def _cut(value: str, width: int) -> str:
    return value if len(value) <= width else value[: width - len(_CUT)] + _CUT
