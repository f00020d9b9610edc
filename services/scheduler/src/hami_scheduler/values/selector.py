"""
Kubernetes' label selectors, as far as telling whether a text is one.

Owns the grammar; which objects match is the API server's to say. Neighbours: `config` asks about a flag.
Source: https://github.com/kubernetes/apimachinery/blob/v0.34.1/pkg/labels/selector.go (`Parse`)
"""

import re

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_DNS_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_KEY = rf"(?=[^/]{{1,253}}/|[^/]*$)(?:{_DNS_LABEL}(?:\.{_DNS_LABEL})*/)?{_NAME}"
_VALUE = rf"(?:{_NAME})?"
_REQUIREMENT = re.compile(
    rf"!\s*(?P<absent>{_KEY})"
    rf"|(?P<key>{_KEY})(?:\s*(?:=|==|!=)\s*{_VALUE}|\s*[<>]\s*-?[0-9]{{1,18}}"
    rf"|\s+(?:in|notin)\s*\(\s*{_VALUE}(?:\s*,\s*{_VALUE})*\s*\))?"
)
_COMMA = re.compile(r",(?![^(]*\))")
"""One between two requirements, not one within a list of values."""


def misspelling(text: str) -> str | None:
    """
    Return what of *text* is no requirement on labels, None where all is well; an empty text asks nothing.

    >>> misspelling("gpu=on,!old,zone in (a, b)"), misspelling("gpu=on,zone=a=b"), misspelling("gpu=on,")
    (None, 'zone=a=b', '')
    """
    if not text.strip():
        return None
    pieces = (piece.strip() for piece in _COMMA.split(text))
    return next((piece for piece in pieces if not _REQUIREMENT.fullmatch(piece)), None)
