"""Whether the kube-scheduler on this host leads."""

import pytest

from hami_scheduler.serve.background.leader import Leadership


def a_lease(holder: str | None = "host-1_abc", renewed: int = 0) -> dict[str, object]:
    """Return a Lease of 15 s."""
    return {"spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}}


def test_holder_on_this_host_leads_while_it_renews() -> None:
    """A Lease seen again unchanged is no sign of life; a renewed one is."""
    leadership = Leadership("host-1")
    assert None is leadership.term(0.0)

    leadership.put(a_lease(), 0.0)
    assert leadership.term(14.9)
    leadership.put(a_lease(), 10.0)
    assert None is leadership.term(15.0)
    leadership.put(a_lease(renewed=1), 16.0)
    assert leadership.term(30.9)
    leadership.drop()
    assert None is leadership.term(16.0)


@pytest.mark.parametrize(("hostname", "holder"), [("host-1", "host-2_x"), ("host-1", None), ("", "host-1_x"), ("", "")])
def test_other_holders_lead_elsewhere(hostname: str, holder: str | None) -> None:
    """Also nobody, and also where our own name is not known."""
    leadership = Leadership(hostname)
    leadership.put(a_lease(holder), 0.0)

    assert None is leadership.term(1.0)


@pytest.mark.parametrize(
    ("hostname", "holder", "leads"),
    [
        ("node-1", "node-1_5bd6e2c3-9f1e", True),
        ("node-1", "node-1", True),
        ("node-1", "node-10_5bd6e2c3-9f1e", False),
        ("node-10", "node-1_5bd6e2c3-9f1e", False),
        ("node-1", "node-1.example.org_5bd6e2c3-9f1e", False),
        ("node_1", "node_1_5bd6e2c3-9f1e", True),
    ],
)
def test_holder_is_known_by_its_whole_hostname(hostname: str, holder: str, leads: bool) -> None:
    """Of two hosts whose names begin alike, one leads."""
    leadership = Leadership(hostname)
    leadership.put(a_lease(holder), 0.0)

    assert leads is (leadership.term(1.0) is not None)
