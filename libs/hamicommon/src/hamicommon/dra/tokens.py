"""
Tokens: devices of a ResourceSlice that stand for one replica of any device, as a device plugin's replicas do.

kube-scheduler gives them to Pods that ask for devices by resources, the first that is free. The Pod's annotations say
which device it gets, and how much of it. So a token has no amounts, and all of a Node are alike.
"""

from typing import Final

from hamicommon.dra.names import TOKEN_TYPE
from hamicommon.model import Object

TOKENS_MAX: Final = 128
"""Of one slice: the API server's limit for devices without taints."""
_PREFIX: Final = f"{TOKEN_TYPE}-"


def is_token(device: str) -> bool:
    """
    Return whether the device of this name is a token.

    >>> is_token("hami-token-7"), is_token("hami-gpu-0")
    (True, False)
    """
    return device.startswith(_PREFIX)


def encode_tokens(count: int) -> tuple[Object, ...]:
    """Return *count* tokens, what each slice of them contains."""
    entries = [
        {"name": f"{_PREFIX}{number}", "attributes": {"type": {"string": TOKEN_TYPE}}} for number in range(count)
    ]
    return tuple({"devices": entries[start : start + TOKENS_MAX]} for start in range(0, count, TOKENS_MAX))
