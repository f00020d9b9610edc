"""
Read what kind of machine this is.

Neighbours: `decide.hardware.platform` judges it.
"""

from pathlib import Path

ROOT = Path("/")
KERNEL_RELEASE = "proc/sys/kernel/osrelease"
SOC_FAMILY = "sys/devices/soc0/family"


def kernel_release() -> str:
    """Return what `uname -r` prints."""
    return _text(KERNEL_RELEASE)


def soc_family() -> str:
    """Return the family of the system on a chip; empty on machines that are none."""
    return _text(SOC_FAMILY)


def _text(path: str) -> str:
    try:
        return (ROOT / path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
