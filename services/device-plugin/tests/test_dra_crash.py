"""
A plugin killed at any step of Prepare or Unprepare: the kubelet's next attempt succeeds, and nothing is left behind.
"""

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from device_plugin_child import call_in_child
from device_plugin_dra_crash import (
    DIRECTORY,
    NAME,
    PREPARE_STEPS,
    REGION,
    SPEC,
    TOKEN_DIRECTORY,
    TOKEN_SPEC,
    TOKEN_STEPS,
    UNPREPARE_STEPS,
    prepare,
    prepare_token,
    prepare_token_until,
    prepare_until,
    the_claims,
    unprepare,
    unprepare_token,
    unprepare_until,
)

from hami_device_plugin.adapters.cdi_files import remove_unfinished
from hami_device_plugin.decide.allocate.cdi.spec import KIND
from hami_device_plugin.serve.dra import claims as claims_module
from hamicommon.runtime.host.removal import delete_some
from hamicommon.wire.limits_file import decode_limits_file
from testbed.waiting import eventually


def killed(function: Callable[[Path, str], None], host: Path, step: str) -> None:
    """Run *function*, which prepares a claim of devices, in a process, which must be killed before *step*."""
    die(function, host, step)
    assert all(json.loads(path.read_bytes())["kind"] == KIND for path in (host / "cdi").glob("[!.]*.json"))
    has_grant = any((host / "cdi").glob("[!.]*.json")) or (host / DIRECTORY).exists()
    assert not has_grant or list((host / "records").glob("[!.]*.json")), "the ledger does not count what exists"


def die(function: Callable[[Path, str], None], host: Path, step: str) -> None:
    """Run *function* in a process, which must be killed before *step*."""
    assert -signal.SIGKILL == call_in_child(function, host, step)


def assert_prepared(host: Path) -> None:
    """Assert that the claim has all that it needs, and nothing else exists."""
    assert [host / "cdi" / SPEC] == list((host / "cdi").iterdir())
    [device] = json.loads((host / "cdi" / SPEC).read_bytes())["devices"]
    assert "CUDA_DEVICE_MEMORY_LIMIT_0=700m" in device["containerEdits"]["env"]
    assert [REGION, "limits"] == sorted(path.name for path in (host / DIRECTORY).iterdir())
    assert 0o666 == (host / DIRECTORY / REGION).stat().st_mode & 0o777
    limits = decode_limits_file((host / DIRECTORY / "limits").read_bytes())
    assert [700 << 20] == [one.memory_bytes for one in limits.devices.values()]
    assert ["claim-c.json", "lock"] == sorted(path.name for path in (host / "records").iterdir())


def assert_gone(host: Path) -> None:
    """Assert that nothing of the claim exists."""
    while delete_some(host / "hook/vgpu/claims", 100):
        pass
    assert [] == list((host / "cdi").glob("*"))
    assert [] == list((host / "hook/vgpu/claims").glob("*"))
    assert ["lock"] == [path.name for path in (host / "records").iterdir()]


@pytest.mark.parametrize("step", PREPARE_STEPS)
def test_claim_is_prepared_by_the_next_process_after_a_kill(step: str, host: Path) -> None:
    """The files are the same in the end, and Unprepare leaves nothing of either attempt."""
    killed(prepare_until, host, step)

    remove_unfinished(host / "cdi")
    prepare(host)

    assert_prepared(host)
    unprepare(host)
    assert_gone(host)


@pytest.mark.parametrize("step", PREPARE_STEPS)
def test_claim_that_was_prepared_in_part_is_unprepared(step: str, host: Path) -> None:
    """Its Pod may be deleted before the kubelet tries again."""
    killed(prepare_until, host, step)

    remove_unfinished(host / "cdi")
    unprepare(host)

    assert [] == list((host / "cdi").glob("*"))
    assert [] == list((host / "records").glob("[!.]*.json"))
    assert not (host / DIRECTORY).exists()


@pytest.mark.parametrize("step", UNPREPARE_STEPS)
def test_claim_is_unprepared_by_the_next_process_after_a_kill(step: str, host: Path) -> None:
    """The record goes last, so the ledger counts the share until it is gone."""
    prepare(host)
    killed(unprepare_until, host, step)

    unprepare(host)

    assert_gone(host)


@pytest.mark.parametrize("step", UNPREPARE_STEPS)
def test_claim_that_was_unprepared_in_part_can_be_prepared_again(step: str, host: Path) -> None:
    """A new Pod may use it before the kubelet repeats Unprepare."""
    prepare(host)
    killed(unprepare_until, host, step)

    prepare(host)

    assert_prepared(host)


@pytest.mark.parametrize("step", TOKEN_STEPS)
def test_token_is_prepared_by_the_next_process_after_a_kill(step: str, host: Path) -> None:
    """The container has its grant, and Unprepare leaves no spec of either attempt."""
    die(prepare_token_until, host, step)

    remove_unfinished(host / "cdi")
    prepare_token(host)

    assert [host / "cdi" / TOKEN_SPEC] == list((host / "cdi").iterdir())
    [device] = json.loads((host / "cdi" / TOKEN_SPEC).read_bytes())["devices"]
    assert "CUDA_DEVICE_MEMORY_LIMIT_0=700m" in device["containerEdits"]["env"]
    limits = decode_limits_file((host / TOKEN_DIRECTORY / "limits").read_bytes())
    assert [700 << 20] == [one.memory_bytes for one in limits.devices.values()]
    unprepare_token(host)
    assert [] == list((host / "cdi").iterdir())


@pytest.mark.parametrize("step", TOKEN_STEPS)
def test_token_that_was_prepared_in_part_is_unprepared(step: str, host: Path) -> None:
    """The rest of the container's is its Pod's, and ends with it."""
    die(prepare_token_until, host, step)

    remove_unfinished(host / "cdi")
    unprepare_token(host)

    assert [] == list((host / "cdi").glob("*"))
    assert not (host / "records").exists() or [] == list((host / "records").glob("[!.]*.json"))


def _has_no_record(host: Path) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        return not any((host / "records").glob("[!.]*.json"))

    return holds


async def test_record_of_a_claim_that_is_gone_is_removed_at_the_second_look(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kubelet without its checkpoint never asks, and the claim would hold its share for ever."""
    monkeypatch.setattr(claims_module, "FORGET_SECONDS", 0.05)
    claims = the_claims(host)
    await claims.prepare([NAME])
    kube = claims._kube
    looking = asyncio.create_task(claims.forget_gone())
    await asyncio.sleep(0.3)
    assert_prepared(host)

    monkeypatch.setattr(kube, "claim", AsyncMock(return_value=None))
    await eventually(_has_no_record(host), "the record is gone", 30)
    looking.cancel()

    assert_gone(host)
