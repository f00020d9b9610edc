"""How hard laws are tried: a few seconds by default, far longer with `HYPOTHESIS_PROFILE=thorough`."""

import os

from hypothesis import HealthCheck, settings

_FACTOR = {"thorough": 50}.get(os.environ.get("HYPOTHESIS_PROFILE", ""), 1)


def effort(examples: int, steps: int = 50) -> settings:
    """
    Return the settings of a law that is tried on *examples*, or on fifty times as many; a machine takes *steps*.

    How long an example takes is the machine's affair, not the law's.
    """
    return settings(
        max_examples=examples * _FACTOR,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
