"""
What a terminal obeys, in text that others wrote: tenants write annotations, and Events quote them.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

OBEYED: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that move a cursor, change colours, end a line or turn its direction."""


def safe(text: str) -> str:
    """
    Return *text* on one line, without what a terminal would obey.

    >>> safe("a\\x1b[31mb")
    'a�[31mb'
    """
    return OBEYED.sub("\ufffd", text)


def cleaned(value: Any) -> Any:
    """
    Return *value*, made of mappings and lists, with every text in it safe.

    >>> cleaned({"a": ["\\x07", 1]})
    {'a': ['�', 1]}
    """
    if isinstance(value, str):
        return safe(value)
    if isinstance(value, Mapping):
        return {safe(str(name)): cleaned(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(item) for item in value]
    return value


def escaped(json_text: str) -> str:
    """
    Return *json_text*, indented or not, which means the same and has nothing that a terminal would obey.

    >>> print(escaped('{"a": "\\u202eb"}'))
    {"a": "\\u202eb"}
    """
    return OBEYED.sub(lambda odd: odd[0] if odd[0] == "\n" else f"\\u{ord(odd[0]):04x}", json_text)
