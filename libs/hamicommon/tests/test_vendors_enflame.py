"""
Enflame's profiles: which one a request gets, and what it counts before that is known.
"""

import pytest

from hamicommon.model import Request
from hamicommon.vendors import functions_of
from hamicommon.vendors.enflame import DRS_KEY, Profile, amounts_before_placement, decode_drs_devices, profile_for
from hamicommon.wire.errors import DecodeError

SMALL, LARGE = Profile("1g.12gb", "0", 1, 12, 50), Profile("2g.24gb", "1", 2, 24, 100)


def asking(memory: int = 0, size: int = 0, cores: int = 0) -> Request:
    """Return a request for an amount of memory, for parts of the device, or for cores."""
    return Request(DRS_KEY, 1, memory, None, cores, profile_size=size)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        pytest.param(asking(12), SMALL, id="memory-fits-exactly"),
        pytest.param(asking(13), LARGE, id="one-GiB-more"),
        pytest.param(asking(48), None, id="twice-the-largest-is-GiB"),
        pytest.param(asking(49), SMALL, id="above-twice-the-largest-is-MiB"),
        pytest.param(asking(12289), LARGE, id="MiB-are-rounded-up"),
        pytest.param(asking(size=1), SMALL, id="size-is-exact"),
        pytest.param(asking(size=3), None, id="no-such-size"),
        pytest.param(asking(12, cores=50), SMALL, id="cores-fit-exactly"),
        pytest.param(asking(12, cores=51), LARGE, id="more-cores"),
    ],
)
def test_request_gets_the_smallest_profile_that_satisfies_it(request_: Request, expected: Profile | None) -> None:
    """By memory and cores, or by the number of parts."""
    assert expected == profile_for(request_, (SMALL, LARGE))


def test_device_without_profiles_satisfies_nothing() -> None:
    """There is no largest one that says what unit an amount has."""
    assert profile_for(asking(13000), ()) is None


def test_memory_of_a_profile_is_in_mib() -> None:
    """Its name has GiB."""
    assert 12288 == SMALL.memory_mib


def test_least_counts_before_the_profile_is_known() -> None:
    """Every profile has at least 1 GiB and some cores."""
    assert ((10240, 1), (1024, 1)) == (amounts_before_placement(asking(10)), amounts_before_placement(asking(size=2)))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"devices":[],"profiles":{"big":"0"}}', "field profiles"),
        ('{"devices":[{"capacity":true}],"profiles":{"1g.8gb":"0"}}', "device 0, field capacity"),
        ('{"devices":[{"capacity":0}],"profiles":{"1g.8gb":"0"}}', "device 0, field capacity"),
        ('{"devices":[null],"profiles":{"1g.8gb":"0"}}', "device 0, field capacity"),
    ],
    ids=["no-size", "no-number", "zero", "null"],
)
def test_devices_without_size_or_capacity_are_refused_by_place(text: str, place: str) -> None:
    """Nothing can be computed from the rest."""
    with pytest.raises(DecodeError) as refused:
        decode_drs_devices(text, "n1")

    assert place == refused.value.place


def test_capacity_may_be_text_and_an_index_is_the_place_if_it_is_no_number() -> None:
    """Both forms are on clusters."""
    text = '{"devices":[{"index":"x","capacity":" 6 "}],"profiles":{"2g":"0","1g.8gb":"1"}}'

    [device] = decode_drs_devices(text, "n1")

    assert ("n1-enflame-drs-0", 6, 8192) == (device.id, device.count, device.memory_mib)


def test_vendor_has_functions_only_in_packages_with_a_module_for_it() -> None:
    """A service adds a module where it needs more than the description."""
    found = functions_of("enflame", "hamicommon.vendors")

    assert found is not None
    assert "hamicommon.vendors.enflame" == found.__name__
    assert functions_of("nobody", "hamicommon.vendors") is None
