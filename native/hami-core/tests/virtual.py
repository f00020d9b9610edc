"""
Virtual time for a test's programs: what to put into their environment.
"""

import os

from containers import Container


def virtual(container: Container, processes: int = 1, rank: int = 0) -> dict[str, str]:
    """
    Return the environment of one of so many processes that share a virtual clock, in order of their ranks.

    It preloads the clock and not `libvgpu.so`: start the program with `preload=False`.
    """
    sanitizer = os.environ.get("HAMI_SANITIZER_PRELOAD", "")
    libraries = [path for path in (sanitizer, str(container.build / "libfake_time.so")) if path]
    return {"FAKE_TIME": f"virtual:{processes}", "FAKE_TIME_RANK": str(rank), "LD_PRELOAD": ":".join(libraries)}
