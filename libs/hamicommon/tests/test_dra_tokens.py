"""Tokens in slices and claims: counted, and never taken for devices."""

from typing import Any

from hamicommon.dra.claims import read_claim
from hamicommon.dra.names import DRIVER
from hamicommon.dra.partitions import encode_pool
from hamicommon.dra.slices import Description, OfferedDevice, decode_slice, pools, token_count
from hamicommon.dra.tokens import TOKENS_MAX
from hamicommon.model import Device

NODE = {"metadata": {"name": "n1", "uid": "u"}}
DEVICE = OfferedDevice(Device("GPU-a", 10, 40960, 100, "NVIDIA A100"), Description(0))


def a_pool(tokens: int) -> list[Any]:
    """Return the slices of a Node with one device and so many *tokens*, read."""
    made = encode_pool(NODE, [DEVICE], 3, tokens)
    return [decode_slice({**item, "metadata": {"name": f"s{n}"}}) for n, item in enumerate(made)]


def test_node_has_its_devices_and_as_many_tokens_as_it_said() -> None:
    """However many slices that takes, and no token is a device."""
    for tokens in (0, 1, TOKENS_MAX, TOKENS_MAX + 1, 300):
        slices = a_pool(tokens)
        found, problems = pools(slices)

        assert (["hami-gpu-0"], ()) == (list(found["n1"]), problems)
        assert tokens == token_count(slices)


def test_tokens_of_a_pool_that_is_being_written_do_not_count() -> None:
    """kube-scheduler uses none of them either."""
    assert 0 == token_count(a_pool(300)[:-1])


def test_tokens_of_a_claim_are_no_devices() -> None:
    """What they take of devices, their Pod says."""
    results = [
        {"request": "r", "driver": DRIVER, "pool": "n1", "device": name} for name in ("hami-token-3", "hami-token-0")
    ]
    claim, problems = read_claim(
        {
            "metadata": {"namespace": "ns", "name": "c", "uid": "u"},
            "status": {"allocation": {"devices": {"results": results}}},
        }
    )

    assert ((), ["hami-token-3", "hami-token-0"]) == (problems, [token.device for token in claim.tokens])
    assert ((), ()) == (claim.results, claim.requests)
