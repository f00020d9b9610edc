"""
Decisions of HAMi about locks and handshakes: `node-lock/operations.json`, `handshake/health.json`.
"""

import json
import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from hamicommon.wire.handshake import HealthPlan, Seen, check_health, check_nvidia_health
from hamicommon.wire.node_lock import LockAction, LockPlan, plan_lock, releases

VECTORS = Path(__file__).parents[1] / "vectors"
NOW = datetime(2026, 8, 21, 12, 0, 0, 250_000, tzinfo=UTC)


HEALTH: list[dict[str, Any]] = json.loads((VECTORS / "handshake" / "health.json").read_text("utf-8"))
OPERATIONS: list[dict[str, Any]] = json.loads((VECTORS / "node-lock" / "operations.json").read_text("utf-8"))


def named(cases: list[dict[str, Any]]) -> list[Any]:
    """Return *cases* as parameters, each under its name."""
    return [pytest.param(case, id=case["case"]) for case in cases]


def spelt(layout: str, moment: datetime) -> str:
    """Return *moment* in one of the layouts of the masks."""
    if layout == "isoP8":
        return moment.astimezone(timezone(timedelta(hours=8))).isoformat(timespec="seconds")
    return moment.strftime(
        {"iso": "%Y-%m-%dT%H:%M:%SZ", "dash": "%Y-%m-%d %H:%M:%S", "dot": "%Y.%m.%d %H:%M:%S"}[layout]
    )


def unmasked(text: str) -> str:
    """Return *text* with `{iso-10s}` and its like as a time before or after NOW."""
    return re.sub(
        r"\{(iso|isoP8|dash|dot)([+-]\d+)s\}",
        lambda found: spelt(found[1], NOW + timedelta(seconds=int(found[2]))),
        text,
    )


def locked(case: dict[str, Any], value: str | None) -> LockPlan:
    """Return the plan for the case's Pod, asked again with the answer where it wants to know of the owner."""
    plan = plan_lock(value, case["ns"], case["name"], now=NOW)
    if plan.action is LockAction.ASK_OWNER:
        assert plan.owner is not None
        exists = f"{plan.owner.namespace}/{plan.owner.pod}" in case["pods"]
        plan = plan_lock(value, case["ns"], case["name"], now=NOW, owner_exists=exists)
    return plan


@pytest.mark.parametrize("case", named(OPERATIONS))
def test_lock_is_taken_waited_for_and_released_as_hami_does(case: dict[str, Any]) -> None:
    """The annotation is the same afterwards. A malformed lock is waited for, until it is old (control: below)."""
    value = None if case["lock"] is None else unmasked(case["lock"])
    if case["do"] == "lock":
        plan = locked(case, value)
        after = plan.value.replace("2026-08-21T12:00:00Z", "<now>") if plan.value else "unchanged"
        succeeds = plan.action in (LockAction.TAKE, LockAction.HELD)
    else:
        is_removed = releases(value, case["ns"], case["name"], force=case["do"] == "force-release")
        after = "absent" if is_removed or value is None else "unchanged"
        succeeds = True
    assert (case["out"]["after"], "error" not in case["out"]) == (after, succeeds)


def test_malformed_lock_is_taken_once_it_has_been_seen_for_the_timeout() -> None:
    """In HAMi it never expires, so the Node is blocked for ever; here it expires as any other."""
    seen = NOW - timedelta(minutes=5)
    assert LockAction.WAIT is plan_lock("lock", "default", "a", now=NOW, first_seen=seen).action
    plan = plan_lock("lock", "default", "a", now=NOW + timedelta(seconds=1), first_seen=seen)
    assert (LockAction.TAKE, "2026-08-21T12:00:01Z,default,a") == (plan.action, plan.value)


@pytest.mark.parametrize(
    ("value", "is_released"),
    [
        (None, False),
        ("2026-08-21T12:00:00Z,default,a", True),
        ("2026-08-21T12:00:00Z,default,b", False),
        ("2026-08-21T12:00:00Z,xdefault,a", False),
        ("2026-08-21T12:00:00Z", True),
        ("malformed", True),
        ("malformed,default,a", True),
    ],
)
def test_only_the_owner_releases_a_lock_that_names_one(value: str | None, is_released: bool) -> None:
    """Any Pod may remove a value without owner."""
    assert is_released is releases(value, "default", "a")


COUNTED = {
    "NVIDIA": "nvidia.com/gpu",
    "DCU": "hygon.com/dcunum",
    "Ascend910B3": "huawei.com/Ascend910B3",
    "MR-V100": "iluvatar.ai/MR-V100-vgpu",
    "XPU": "kunlunxin.com/vxpu",
    "Vastai": "vastaitech.com/va",
    "Biren": "birentech.com/gpu",
}
"""Vendors with a handshake, and the resource the kubelet counts for them."""


def verdict(plan: HealthPlan) -> dict[str, bool]:
    """Return the plan in the words of the vectors."""
    return {"healthy": plan.is_healthy, "need_update": plan.refresh, "writes": plan.request}


@pytest.mark.parametrize("case", named([case for case in HEALTH if case["vendor"] in COUNTED]))
def test_handshake_means_to_us_what_it_means_to_hami(case: dict[str, Any]) -> None:
    """Step after step: healthy or not, read again or not, a new request written or not."""
    seen = Seen()
    for step in case["steps"]:
        annotations = {key: unmasked(value) for key, value in step["annotations"].items()}
        value = next((text for key, text in annotations.items() if "handshake" in key), None)
        allocatable = int(step["allocatable"].get(COUNTED[case["vendor"]], "0"))
        if case["vendor"] == "NVIDIA":
            inventory = annotations.get("hami.io/node-nvidia-register", "")
            plan, seen = check_nvidia_health(value, now=NOW, allocatable=allocatable, inventory=inventory, seen=seen)
        else:
            plan = check_health(value, now=NOW, allocatable=allocatable)
        out = step["out"]
        expected = {"healthy": out["healthy"], "need_update": out["need_update"], "writes": bool(out["patched"])}
        assert expected == verdict(plan)


@pytest.mark.parametrize("case", named([case for case in HEALTH if case["vendor"] not in COUNTED]))
def test_vendor_without_handshake_writes_none(case: dict[str, Any]) -> None:
    """These vendors have no note. They are healthy if they offer devices."""
    for step in case["steps"]:
        assert [] == step["out"]["patched"]
        assert not any("handshake" in key for key in step["annotations"])
