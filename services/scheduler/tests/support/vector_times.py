"""
The masked times in HAMi's answers about locks and handshakes.
"""

import re
from datetime import UTC, datetime, timedelta, timezone

NOW = datetime(2026, 8, 21, 12, 0, 0, 250_000, tzinfo=UTC)
"""The time at which the cases are run."""

_FORMATS = {"iso": "%Y-%m-%dT%H:%M:%SZ", "dash": "%Y-%m-%d %H:%M:%S", "dot": "%Y.%m.%d %H:%M:%S"}


def unmasked(text: str) -> str:
    """Return *text* with `{iso-10s}` and its like as a time before or after NOW."""
    return re.sub(
        r"\{(iso|isoP8|dash|dot)([+-]\d+)s\}",
        lambda found: _written(found[1], NOW + timedelta(seconds=int(found[2]))),
        text,
    )


def _written(mask: str, moment: datetime) -> str:
    if mask == "isoP8":
        return moment.astimezone(timezone(timedelta(hours=8))).isoformat(timespec="seconds")
    return moment.strftime(_FORMATS[mask])
