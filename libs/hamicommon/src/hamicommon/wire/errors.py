"""
What a decoder raises, and nothing else.
"""

from hamicommon.errors import HamiError


class DecodeError(HamiError):
    """
    Text or bytes that are not in the format asked for.

    `place` names where in the input (`"device 2, field memory"`, `"byte 56"`), `reason` what is wrong there.
    """

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        self.place = place
        self.reason = reason
