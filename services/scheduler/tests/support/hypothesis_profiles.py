"""
How hard laws are tried: half a minute in all by default, some seven minutes of a processor with
`HYPOTHESIS_PROFILE=thorough`.
"""

import os

from hypothesis import HealthCheck, settings

_IS_THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
_FACTOR = 20 if _IS_THOROUGH else 1
LAW_SECONDS = 1800 if _IS_THOROUGH else 120
"""How long one law may be tried, on a machine that has more to do."""


def profile(examples: int, steps: int = 50) -> settings:
    """
    Return the settings of a law that is tried on *examples*, or on twenty times as many; a machine takes *steps*.

    How long an example takes is the machine's affair, not the law's.
    """
    return settings(
        max_examples=examples * _FACTOR,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
