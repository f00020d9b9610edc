"""What the invariants are checked on."""

from typing import Any

from harness.invariants import running_containers


def a_pod(name: str, *states: str, **metadata: str) -> dict[str, Any]:
    """Return a Pod with a container in each of *states*."""
    statuses = [{"name": f"c{number}", "state": {state: {}}} for number, state in enumerate(states)]
    return {"metadata": {"name": name, "uid": name, **metadata}, "status": {"containerStatuses": statuses}}


def test_only_running_containers_are_looked_at() -> None:
    """The others have no environment."""
    pods = [a_pod("p", "running", "terminated", "waiting"), {"metadata": {"uid": "new"}, "status": {}}]

    assert {("p", "c0")} == running_containers(pods).keys()


def test_containers_of_a_pod_that_is_being_deleted_are_not_looked_at() -> None:
    """Until the last one has ended, its status calls those running that have ended."""
    assert {} == running_containers([a_pod("p", "running", "running", deletionTimestamp="2026-01-01T00:00:00Z")])
