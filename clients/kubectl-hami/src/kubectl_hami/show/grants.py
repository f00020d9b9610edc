"""
The table of `grants`.
"""

from collections.abc import Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from kubectl_hami.answer.grants import Comparison, Verdict
from kubectl_hami.show.table import mib, safe, table

_STYLES: Final = {Verdict.KEPT.value: "green", Verdict.UNKNOWN.value: "yellow", Verdict.BROKEN.value: "red"}


def grants_table(found: Sequence[Comparison], *, is_wide: bool = False, has_clusters: bool = False) -> Table:
    """Return a row for each share; memory in MiB, compute in percent of one device."""
    heads = [*(("CLUSTER",) if has_clusters else ()), "NAMESPACE", "POD", "CONTAINER", "NODE", ">#"]
    heads += ["UUID"] if is_wide else []
    heads += [">GRANTED MiB", ">LIMIT", ">USED", ">DRIVER", ">CORES %", "VERDICT", "~WHY"]
    rows = [
        (
            *((one.cluster,) if has_clusters else ()),
            one.share.namespace,
            one.share.pod,
            one.share.container,
            one.node,
            str(one.index) if one.index >= 0 else "-",
            *((one.device,) if is_wide else ()),
            str(one.share.memory_mib),
            mib(one.share.limit_memory_mib),
            mib(one.share.used_memory_mib),
            mib(one.share.driver_memory_mib),
            str(one.share.core_percent),
            Text(one.verdict, style=_STYLES[one.verdict]),
            Text(safe(one.why)),
        )
        for one in found
    ]
    return table(heads, rows)
