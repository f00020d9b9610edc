"""
Check the syntax of Kubernetes' label selectors.

The API server matches objects; this only finds mistakes early. Neighbours: `config` checks a flag.
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
"""A comma between two requirements, not within a list of values."""


def misspelling(text: str) -> str | None:
    """
    Return the part of *text* that is no requirement on labels, None if *text* is valid or empty.

    >>> misspelling("gpu=on,!old,zone in (a, b)"), misspelling("gpu=on,zone=a=b"), misspelling("gpu=on,")
    (None, 'zone=a=b', '')
    """
    if not text.strip():
        return None
    pieces = (piece.strip() for piece in _COMMA.split(text))
    return next((piece for piece in pieces if not _REQUIREMENT.fullmatch(piece)), None)
