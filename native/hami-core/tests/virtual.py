"""
Virtual time for test programs: what their environment must contain.
"""

import pytest
from containers import IS_THREAD_SANITIZED, SANITIZER, Container

not_under_tsan = pytest.mark.skipif(
    IS_THREAD_SANITIZED, reason="ThreadSanitizer's own waits are not on the virtual clock"
)
"""For tests whose programs have several threads."""


def virtual(container: Container, processes: int = 1, rank: int = 0) -> dict[str, str]:
    """
    Return the environment of one of several processes that share a virtual clock, in the order of their ranks.

    It preloads the clock but not `libvgpu.so`: start the program with `preload=False`.
    """
    libraries = [path for path in (SANITIZER, str(container.build / "libfake_time.so")) if path]
    return {"FAKE_TIME": f"virtual:{processes}", "FAKE_TIME_RANK": str(rank), "LD_PRELOAD": ":".join(libraries)}
