"""
A campaign finds what a killed process leaves.
"""

import asyncio

import pytest

from killpoints.campaign import Campaign, draw_kills
from killpoints.planted import DEFECTS
from killpoints.points import all_points, named

DEFECT = "unfinished specs stay"
SEED = 1
REST_SECONDS = 8.0
"""How long the file may stay. Without the defect it is gone in a second."""


@pytest.mark.embedded_only
@pytest.mark.timeout(600)
def test_what_a_killed_process_leaves_is_found() -> None:
    """The plugin dies between writing a spec and giving it its name; the next one, with a defect, leaves the file."""
    defect = DEFECTS[DEFECT]
    points = [(part, point) for part, point in all_points() if (part, point.step) == (defect.part, defect.step)]

    campaign = Campaign(draw_kills(points, SEED, 1), SEED, print, defects=[defect])
    campaign.rest_seconds = REST_SECONDS

    result = asyncio.run(campaign.run())

    [(part, point)] = points
    assert 1 == result.points[named(part, point)].hits
    assert any(defect.sign in each for each in result.problems), result.problems


def test_same_seed_draws_the_same_kills() -> None:
    """Another seed draws others."""
    assert draw_kills(all_points(), 7, 3) == draw_kills(all_points(), 7, 3)
    assert draw_kills(all_points(), 7, 3) != draw_kills(all_points(), 8, 3)
