"""
Ask a Prometheus server.

Its answers are bounded in time and size.
Source: https://prometheus.io/docs/prometheus/latest/querying/api/
"""

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any, Final, TypeVar

from hamicommon.errors import HamiError
from hamicommon.runtime.api.http_proxy import proxy_of

T = TypeVar("T")

TIMEOUT_SECONDS: Final = 5.0
BYTES_LIMIT: Final = 1 << 20


class PrometheusError(HamiError):
    """Prometheus gave no answer; the message says why."""


def asked(
    server: str,
    kind: str,
    read: Callable[[Any], T],
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
    limit_bytes: int = BYTES_LIMIT,
    **options: str | float,
) -> T:
    """
    Return what *read* makes of the result of a `query` or `query_range` with *options*, from the URL *server*.

    Raises:
        PrometheusError: the server does not answer, or *read* cannot read its answer.
    """
    url = f"{server.rstrip('/')}/api/v1/{kind}?{urllib.parse.urlencode(options)}"
    try:
        proxy = proxy_of(url, os.environ)
        proxies = {urllib.parse.urlsplit(url).scheme: proxy} if proxy else {}
        opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
        with opener.open(url, timeout=timeout_seconds) as answer:
            text = answer.read(limit_bytes + 1)
    except urllib.error.HTTPError as error:
        raise PrometheusError(f"Prometheus at {server} refuses: {_reason(error)}") from error
    except (OSError, ValueError) as error:
        raise PrometheusError(f"Prometheus at {server} does not answer: {error}") from error
    if len(text) > limit_bytes:
        raise PrometheusError(f"Prometheus at {server} answers with more than {limit_bytes} bytes")
    try:
        return read(json.loads(text)["data"]["result"])
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise PrometheusError(f"Prometheus at {server} does not answer as Prometheus does: {error!r}") from error


def _reason(error: urllib.error.HTTPError) -> str:
    """Return what Prometheus says is wrong with a query, else the HTTP status."""
    try:
        return str(json.loads(error.read(BYTES_LIMIT))["error"])
    except (OSError, ValueError, KeyError, TypeError):
        return str(error)
