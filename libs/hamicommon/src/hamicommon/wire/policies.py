"""
How a device is chosen: policies in annotations and flags, and the weights of a device's score.

Policies are one word, or a comma list since 2.10. The weights of used replicas, cores and memory are in
`hami.io/device-scoring-weights`, as users write them: `slot=1,core=1,memory=3`. HAMi reads them since 2.10.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/util/util.go,
https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/util/device_scoring_weights.go
"""

from typing import Final

from hamicommon.model import ScoringWeights
from hamicommon.wire.errors import WHOLE_TEXT, DecodeError, quote
from hamicommon.wire.go.strconv import parse_int
from hamicommon.wire.go.strings import BLANKS, pieces
from hamicommon.wire.limits import check_size

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


_NAMES: Final = ("slot", "core", "memory")


def decode_scoring_weights(text: str) -> ScoringWeights:
    """
    Return the weights in *text*: `slot`, `core` and `memory`, each once, in any order.

    >>> decode_scoring_weights(" memory = 3, slot=1,core=0")
    ScoringWeights(slot=1, core=0, memory=3)

    Raises: DecodeError when a weight is missing, repeated, unknown, negative or no 64-bit integer, or all are zero.
    """
    check_size(text)
    if text.count(",") != len(_NAMES) - 1:
        raise DecodeError(WHOLE_TEXT, f"{quote(text)} is not slot=<n>,core=<n>,memory=<n>")
    weights: dict[str, int] = {}
    for index, entry in enumerate(text.split(",")):
        name, equals, value = entry.strip(BLANKS).partition("=")
        name = name.strip(BLANKS)
        if not equals:
            raise DecodeError(f"entry {index}", f"{quote(entry)} is not <name>=<weight>")
        if name not in _NAMES:
            raise DecodeError(f"entry {index}", f"unknown weight {quote(name)}, not one of {', '.join(_NAMES)}")
        if name in weights:
            raise DecodeError(f"entry {index}", f"weight {name} is given twice")
        weights[name] = parse_int(value.strip(BLANKS), f"weight {name}")
        if weights[name] < 0:
            raise DecodeError(f"weight {name}", f"{weights[name]} is negative")
    if not any(weights.values()):
        raise DecodeError(WHOLE_TEXT, "all weights are zero, at least one must be positive")
    return ScoringWeights(**weights)
