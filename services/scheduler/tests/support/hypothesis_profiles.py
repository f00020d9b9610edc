"""
Settings of property tests: half a minute by default, some seven minutes with `HYPOTHESIS_PROFILE=thorough`.
"""

import os

from hypothesis import settings

_IS_THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
_FACTOR = 20 if _IS_THOROUGH else 1
LAW_SECONDS = 1800 if _IS_THOROUGH else 600
"""Time limit of one property test on a busy machine. Hypothesis shortens the example of a failing one for 5 minutes."""


def profile(examples: int, steps: int = 50) -> settings:
    """
    Return settings for *examples*, or twenty times as many if thorough, with *steps* of a state machine.
    """
    return settings(
        max_examples=examples * _FACTOR,
        stateful_step_count=steps,
    )
