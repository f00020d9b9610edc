"""
The weights of used replicas, cores and memory in a device's score: `hami.io/device-scoring-weights`.

Users write `slot=1,core=1,memory=3`. HAMi reads it since 2.10.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/util/device_scoring_weights.go
"""

from typing import Final

from hamicommon.model import ScoringWeights
from hamicommon.wire.errors import WHOLE_TEXT, DecodeError, quote
from hamicommon.wire.go.strconv import parse_int
from hamicommon.wire.go.strings import BLANKS
from hamicommon.wire.limits import check_size

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
