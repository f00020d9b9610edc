"""
The scores of the links between a Node's GPUs: the Node annotation `hami.io/node-nvidia-score`.

HAMi's NVIDIA plugin writes `[{"uuid":"GPU-a","score":{"GPU-b":100}}]` since 2.6 if `ENABLE_TOPOLOGY_SCORE` is `true`.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/devices.go
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hamicommon.wire.go import json_reader as json
from hamicommon.wire.go.json_writer import compact


@dataclass(frozen=True, slots=True)
class _PairScore:
    uuid: str = ""
    score: Mapping[str, int] = field(default_factory=dict)


_SCORES: Final = json.array(
    json.struct(_PairScore(), {"uuid": ("uuid", json.string), "score": ("score", json.mapping(json.whole_number(64)))})
)


def decode_pair_scores(text: str) -> dict[str, dict[str, int]]:
    """
    Return the scores by the UUIDs of both GPUs. If a UUID is listed twice, its last entry applies.

    >>> decode_pair_scores('[{"uuid":"GPU-a","score":{"GPU-b":100}}]')
    {'GPU-a': {'GPU-b': 100}}

    Raises: DecodeError when the text is not that list.
    """
    return {entry.uuid: dict(entry.score) for entry in json.decode(text, _SCORES)}


def encode_pair_scores(scores: Mapping[str, Mapping[str, int]]) -> str:
    """
    Return *scores* as the annotation's text.

    >>> encode_pair_scores({"GPU-a": {"GPU-b": 100}})
    '[{"uuid":"GPU-a","score":{"GPU-b":100}}]'
    """
    entries: list[dict[str, Any]] = []
    for uuid, score in scores.items():
        entry: dict[str, Any] = {"uuid": uuid, "score": dict(score)}
        entries.append({key: value for key, value in entry.items() if value})
    return compact(entries)
