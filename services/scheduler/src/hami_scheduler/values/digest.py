"""
Remember what was read without keeping it.

The texts that a Node or a Pod was read from take more memory than what was read. Neighbours: `inventory` for Nodes,
`state.cluster` for Pods.
"""

from hashlib import blake2b

_BYTES = 16


def digest(*parts: object) -> bytes:
    """Return 16 bytes that are equal for equal *parts*, plain values in the same order, and else differ."""
    return blake2b(repr(parts).encode(), digest_size=_BYTES).digest()
