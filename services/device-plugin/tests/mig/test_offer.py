"""
What a Node in mode `mig` offers: HAMi's profiles, with the driver's numbers.
"""

from dataclasses import replace

from device_plugin_mig import A100, GPU, RULES, a_gpu

from hami_device_plugin.decide.mig.offer import Offer, offer, rule_for, with_offers
from hamicommon.model import Device, MigPlacement, MigProfile
from hamicommon.vendors.nvidia import MigProfileRule


def a_device(uuid: str = GPU) -> Device:
    """Return a device as the inventory has it."""
    return Device(id=uuid, count=10, memory_mib=40960, core_percent=100, type=A100, mode="mig")


def test_a100_offers_what_hami_publishes() -> None:
    """
    Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/docs/develop/mig-dynamic-deallocate.md
    """
    found = next(profile for profile in offer(a_gpu(), RULES).profiles if profile.name == "2g.10gb")

    places = (MigPlacement(0, 2), MigPlacement(2, 2), MigPlacement(4, 2))
    assert MigProfile("2g.10gb", 9856, 29, 2, places) == found


def test_profile_that_the_gpu_does_not_have_is_left_out() -> None:
    """The allowlist names sizes of several generations."""
    rules = [MigProfileRule(("A100",), ("1g.5gb", "4g.20gb", "strange"))]

    assert ["1g.5gb"] == [profile.name for profile in offer(a_gpu(), rules).profiles]


def test_first_rule_that_names_the_model_counts() -> None:
    """A rule's model is a part of the driver's name, as in HAMi."""
    rules = [MigProfileRule(("A100",), ("1g.5gb",)), MigProfileRule(("A100-SXM4",), ("7g.40gb",))]

    assert rules[0] == rule_for(A100, rules)
    assert rule_for("Tesla T4", rules) is None


def test_placements_beside_an_unknown_instance_are_not_offered() -> None:
    """The scheduler cannot know that instance."""
    profiles = offer(a_gpu(), RULES, [MigPlacement(3, 1)]).profiles

    assert {"1g.5gb": [0, 1, 2, 4, 5, 6], "2g.10gb": [0, 4], "3g.20gb": [4], "7g.40gb": []} == {
        profile.name: [place.start for place in profile.placements] for profile in profiles
    }


def test_device_counts_its_instances_and_all_its_compute() -> None:
    """Scaling does not apply; a GPU without an offer is left out."""
    offers = {GPU: offer(a_gpu(), RULES), "GPU-none": Offer((), 0)}

    [device] = with_offers([a_device(), a_device("GPU-none"), a_device("GPU-unknown")], offers)

    assert replace(a_device(), count=7, mig_profiles=offers[GPU].profiles) == device


def test_compute_is_a_part_of_the_largest_profile() -> None:
    """It is rounded up."""
    percents = [one.core_percent for one in offer(a_gpu(), RULES).profiles]

    assert [15, 29, 43, 100] == percents
