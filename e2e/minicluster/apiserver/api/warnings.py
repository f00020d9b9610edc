"""
What a client is warned of, beside the answer to its request.

Owns the form of the header. Unlike the real server, it does not shorten many long warnings.
Source: k8s.io/apiserver/pkg/endpoints/filters/warning.go, NewWarningHeader in k8s.io/apimachinery/pkg/util/net/http.go.
"""

from collections.abc import Iterable
from contextvars import ContextVar

HEADER = "Warning"
WARNINGS: ContextVar[list[str]] = ContextVar("WARNINGS")
"""The warnings of the present request."""


def headers(warnings: Iterable[str]) -> list[str]:
    """Return the value of a header for each different warning, without those that no header can have."""
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in dict.fromkeys(warnings) if text.isprintable())
    return [f'299 - "{text}"' for text in quoted]
