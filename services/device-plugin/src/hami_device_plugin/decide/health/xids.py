"""
Decide which XIDs make a device unhealthy, by the rules of HAMi and NVIDIA's plugin, and which of them pass.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device-plugin/nvidiadevice/nvinternal/rm/health.go
"""

from dataclasses import dataclass
from datetime import timedelta

APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""
Errors of the program, not of the device.

Source: https://docs.nvidia.com/deploy/xid-errors/
"""


PASSING_XIDS = (
    frozenset({8, 60, 63, 66, 67, 69, 70, 71, 72, 75, 76, 77, 80, 92, 93, 94, 121, 137, 139, 141, 160, 161})
    | frozenset(range(82, 87))
    | frozenset(range(88, 90))
    | frozenset(range(96, 109))
    | frozenset(range(126, 136))
)
"""
Errors for which NVIDIA's catalog asks to restart the program, or for nothing; all others need a reset or more.

Source: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html (Immediate Action)
"""
PROBATION = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """Which XIDs count; `enabled` wins over `ignored`."""

    is_on: bool = True
    ignored: frozenset[int] = APPLICATION_XIDS
    enabled: frozenset[int] = frozenset()
    is_all_enabled: bool = False
    probation: timedelta = PROBATION
    """How long a fault that passes must be absent before its device is healthy again."""

    def is_critical(self, xid: int) -> bool:
        """
        Return whether *xid* makes its device unhealthy.

        >>> HealthPolicy().is_critical(31), HealthPolicy().is_critical(79)
        (False, True)
        """
        return self.is_all_enabled or xid in self.enabled or xid not in self.ignored


def health_policy(disable: str, enable: str) -> HealthPolicy:
    """
    Return the policy in the values of DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS.

    Both are comma-separated XIDs. `all` means every XID, and so does `xids` in *disable*; other words are ignored. If
    *disable* has all and *enable* single XIDs, the check is off, as in HAMi.

    >>> health_policy("all", "").is_on
    False
    >>> health_policy("79", "31").is_critical(31), health_policy("79", "31").is_critical(79)
    (True, False)
    """
    disabled, enabled = _words(disable), _words(enable)
    if disabled & {"all", "xids"} and "all" not in enabled:
        return HealthPolicy(is_on=False, ignored=frozenset())
    return HealthPolicy(
        ignored=APPLICATION_XIDS | _numbers(disabled), enabled=_numbers(enabled), is_all_enabled="all" in enabled
    )


def _words(text: str) -> frozenset[str]:
    return frozenset(word.strip() for word in text.lower().split(","))


def _numbers(words: frozenset[str]) -> frozenset[int]:
    return frozenset(int(word) for word in words if word.isascii() and word.isdigit())
