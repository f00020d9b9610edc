"""Amounts that the webhook moved out of limits are read wherever a Pod is read."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamicommon.config.device_config import load_device_config
from hamicommon.model import Request
from hamicommon.pod.moved import decode_moved, encode_moved, moved_out
from hamicommon.pod.reading import read_pod
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.keys import DEVICE_AMOUNTS

CONFIG = Path(__file__).parents[1] / "vectors/device-config/default.yaml"
VENDORS = load_device_config(CONFIG.read_text()).vendors()
AMOUNTS = {"nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "25"}


def a_pod(annotation: str | None, **limits: str) -> dict[str, Any]:
    """Return a Pod with one container, `main`, that limits NVIDIA's resources of these names."""
    named = {f"nvidia.com/{name}": amount for name, amount in limits.items()}
    annotations = {} if annotation is None else {DEVICE_AMOUNTS: annotation}
    container = {"name": "main", "resources": {"limits": named}}
    return {"metadata": {"name": "p", "annotations": annotations}, "spec": {"containers": [container]}}


def asked(pod: dict[str, Any]) -> tuple[Request, ...]:
    """Return what the container of *pod* asks."""
    return read_pod(pod, VENDORS).containers[0].requests


def test_pod_asks_the_same_before_and_after_its_amounts_were_moved() -> None:
    """The count stays in the limits."""
    before = a_pod(None, gpu="1", gpumem="3000", gpucores="25")

    assert asked(before) == asked(a_pod(encode_moved({"main": AMOUNTS}), gpu="1"))
    assert asked(before) != asked(a_pod(None, gpu="1"))


def test_limit_of_the_container_itself_counts() -> None:
    """The API server knows it, and nobody can change it later."""
    assert asked(a_pod(None, gpu="1", gpumem="500")) == asked(
        a_pod(encode_moved({"main": {"nvidia.com/gpumem": "9"}}), gpu="1", gpumem="500")
    )


def test_container_without_limits_asks_for_nothing() -> None:
    """Its kubelet would give it nothing."""
    assert () == asked(a_pod(encode_moved({"main": {"nvidia.com/gpu": "1", **AMOUNTS}})))


@pytest.mark.parametrize(
    "text", ["", "x", "[]", '{"main":[]}', '{"main":{"nvidia.com/gpumem":true}}', '{"main":{"nvidia.com/gpumem":null}}']
)
def test_text_of_another_form_moves_nothing_and_is_an_error_with_its_place(text: str) -> None:
    """A Pod that has it asks for whole devices."""
    with pytest.raises(DecodeError, match=DEVICE_AMOUNTS):
        decode_moved(text)
    assert {} == moved_out({DEVICE_AMOUNTS: text})
    assert asked(a_pod(None, gpu="1")) == asked(a_pod(text, gpu="1"))


@pytest.mark.property
@given(st.dictionaries(st.text(max_size=8), st.dictionaries(st.text(max_size=8), st.text() | st.integers(0, 2**40))))
def test_what_was_moved_is_read_as_it_was_written(moved: dict[str, dict[str, str | int]]) -> None:
    """Whatever names and quantities have in them."""
    assert moved == decode_moved(encode_moved(moved))
