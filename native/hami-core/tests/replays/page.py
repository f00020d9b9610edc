"""
The table of the replays: `python -m replays.page` in this folder's parent writes docs/replays.md.

Owns the words of the page. Neighbour: `test_replays` has the rows.
"""

import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from containers import ROOT
from replays.replay import LIMIT_MIB, Complaint

PAGE = ROOT / "docs/replays.md"
TEXT = """# Replays

What users report of programs that no package shows here, as sequences of calls. Each is a program in
[tests/replays](../native/hami-core/tests/replays/). It is run over the
[fake driver](../native/hami-core/tests/fake_driver/), once without the library and once with it, under a limit of
{limit_mib} MiB. Every step has the same result both times, except the numbers in which the limit shows. The programs of
others are in [clients.md](clients.md). This page is written by a command, in `native/hami-core/tests`:

<!-- not run: it writes this page, which its test compares -->
```sh
python -m replays.page
```

| program | what users report | where |
|---|---|---|
{rows}
"""


def page() -> str:
    """Return the page."""
    return TEXT.format(limit_mib=LIMIT_MIB, rows="\n".join(_row(test) for test in _tests()))


def _tests() -> Iterator[Callable[..., Any]]:
    module = importlib.import_module("replays.test_replays")
    functions = [value for value in vars(module).values() if inspect.isfunction(value)]
    yield from (value for value in functions if hasattr(value, "complaint"))


def _row(test: Callable[..., Any]) -> str:
    complaint: Complaint = test.complaint  # type: ignore[attr-defined]
    reported = " ".join((test.__doc__ or "").split())
    return f"| {complaint.program} | {reported} | {', '.join(map(_link, complaint.threads))} |"


def _link(thread: str) -> str:
    repository, _, number = thread.partition("#")
    return f"[{repository.partition('/')[2]}#{number}](https://github.com/{repository}/issues/{number})"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
