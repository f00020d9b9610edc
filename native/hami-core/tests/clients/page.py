"""
Write what the clients saw as a page of documentation.

Owns the words and the table of docs/clients.md. Neighbours: `run` runs the clients, `test_clients` judges.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from clients.catalogue import LIMIT_MIB, LIMIT_PERCENT, Client
from clients.run import Report

PAGE = """# Clients

Programs of others, each in the version named, run over the [fake driver](../native/hami-core/tests/fake_driver/), once
without the library and once with it, under a limit of {limit_mib} MiB and {limit_percent} % of each device. This page
is written by a command and not by hand:

<!-- not run: it measures for minutes, and writes this page -->
```sh
tox -e clients
```

Every step of a program had the same result both times, except those in the last two columns, in which the limit shows.
*Functions* and *calls* are those of the driver that the program used without the library. The fake driver runs no
kernel's code.

| client | version | library | functions | calls | steps | without the library | under the limit |
|---|---|---|---:|---:|---:|---|---|
{rows}

PyTorch, Triton (which needs PyTorch), CuPy, JAX and NCCL do not run here. They use NVIDIA's CUDA runtime. When it
starts, it asks the driver for a keyed hash, through a private table (`cuGetExportTable`), and fails without it. The key
is NVIDIA's and is not ours to copy, so the fake driver cannot answer. `tox -e gpu` runs PyTorch and CuPy on a machine
with a GPU. What users report of such programs is replayed as calls of the driver ([replays.md](replays.md)).
"""


@dataclass(frozen=True)
class Row:
    """A client and its two runs."""

    client: Client
    bare: Report
    limited: Report


def page(rows: Sequence[Row]) -> str:
    """Return the page."""
    return PAGE.format(limit_mib=LIMIT_MIB, limit_percent=LIMIT_PERCENT, rows="\n".join(map(_line, rows)))


def _line(row: Row) -> str:
    cells = (
        *(row.client.name, row.client.version, row.client.library),
        *(len(row.bare.calls), sum(row.bare.calls.values()), len(row.bare.steps)),
        *(_differences(row.bare), _differences(row.limited)),
    )
    return f"| {' | '.join(map(str, cells))} |"


def _differences(report: Report) -> str:
    return "<br>".join(f"{name}: {value}" for name, value in report.limited().items())
