"""
Count the MIG instances of a Node for its metrics, by GPU, profile and state.

Neighbours: `serve.mig.reports` shows the counts.
"""

from collections.abc import Mapping

from hami_device_plugin.decide.mig.geometry import slices_of
from hami_device_plugin.decide.mig.journal import Journal, State
from hami_device_plugin.decide.mig.offer import Offer

OFFERED = "offered"
"""Besides the states of the journal: how many places the Node offers."""

Counts = dict[tuple[str, str, str], int]


def counts(offers: Mapping[str, Offer], journal: Journal) -> Counts:
    """
    Return how many instances of *journal* there are by GPU, profile and state, and how many of *offers* there can be.

    An offered profile has every state. A Pod's author may spell the profile of an instance in any way that means the
    same slices, so an instance counts under the name that the Node offers, else under its slices.
    """
    found: Counts = {}
    names: dict[tuple[str, int | None], str] = {}
    for uuid, offer in offers.items():
        for profile in offer.profiles:
            found[uuid, profile.name, OFFERED] = len(profile.placements)
            names[uuid, slices_of(profile.name)] = profile.name
            found |= {(uuid, profile.name, state.value): 0 for state in State}
    for entry in journal:
        slices = slices_of(entry.profile)
        name = names.get((entry.gpu_uuid, slices), f"{slices}g")
        key = (entry.gpu_uuid, name, entry.state.value)
        found[key] = found.get(key, 0) + 1
    return found
