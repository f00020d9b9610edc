"""
Device policies in annotations and flags: one word, or a comma list since 2.10.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/util/util.go
"""

from typing import Final

from hamicommon.wire.go.strings import BLANKS, pieces

DEVICE_POLICIES: Final = ("binpack", "spread", "topology-aware", "mutex", "numa")
"""The policies that have an effect in a list."""


def decode_device_policies(text: str) -> tuple[str, ...]:
    """
    Return the policies in *text*, in its order, each once.

    >>> decode_device_policies("binpack, numa,numa,BINPACK")
    ('binpack', 'numa')
    """
    named = (member.strip(BLANKS) for member in pieces(text, ","))
    return tuple(dict.fromkeys(name for name in named if name in DEVICE_POLICIES))
