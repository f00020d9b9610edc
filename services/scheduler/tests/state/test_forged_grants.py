"""
Grants without a request count as in HAMi, and are reported.
"""

from typing import Any

import pytest

from hami_scheduler.state.cluster import Cluster
from hami_scheduler.values.grant import read_grant
from hami_scheduler.values.inventory import Problem
from hamicommon.model import Object
from testbed.waiting import eventually

from ..support.api_server import ApiServer
from ..support.builders import a_cluster, a_container, a_device, a_node, a_pod, promises, vendors
from ..support.service import Running

NVIDIA = "hami.io/vgpu-devices-allocated"
AMD = "hami.io/amd-devices-allocated"
SHARE = "GPU-a,NVIDIA,1000,10:;"
HELD = {"GPU-a": [1, 1000, 10]}


class Told(list[tuple[str, Problem]]):
    """What was told, as (Pod, problem), and the cluster that told it."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(vendors(), lambda _kind, name, problem: self.append((name, problem)))
        self.cluster.put_node(a_node("n1", a_device()))


@pytest.fixture
def told() -> Told:
    """A cluster of one Node with one device."""
    return Told()


def an_idle_container(**resources: Any) -> Object:
    """Return a container that asks for no device."""
    return {"name": "app", "resources": resources}


def test_grant_of_a_pod_that_asks_for_nothing_counts_and_is_reported(told: Told) -> None:
    """As in HAMi, the ledger counts what a bound Pod says; the operator gets a warning."""
    told.cluster.put_pod(a_pod("p", an_idle_container(), node="n1", allocated=SHARE))

    assert HELD == promises(told.cluster, "n1")
    assert [("default/p", NVIDIA)] == [(name, problem.key) for name, problem in told]
    assert told[0][1].reason == (
        "names devices of NVIDIA on n1, and no container asks for any by a resource of the device config; "
        "they count as taken until the Pod ends"
    )


def test_it_is_reported_once(told: Told) -> None:
    """Whatever changes of the Pod, and however often the list of all Pods is read."""
    pod = a_pod("p", an_idle_container(), node="n1", allocated=SHARE)

    told.cluster.put_pod(pod)
    told.cluster.put_pod(pod)
    told.cluster.put_pod({**pod, "spec": {**pod["spec"], "priority": 7}})
    told.cluster.replace_pods([{**pod, "spec": {**pod["spec"], "priority": 8}}], 0.0)

    assert 1 == len(told)


def test_next_pod_of_the_name_is_reported_again(told: Told) -> None:
    """It is another one, and what was remembered of the first went with it."""
    for uid in ("u1", "u2"):
        pod = a_pod("p", an_idle_container(), node="n1", allocated=SHARE, uid=uid)
        told.cluster.put_pod(pod)
        told.cluster.drop_pod(pod)

    assert 2 == len(told)
    assert {} == promises(told.cluster, "n1")


def test_only_the_vendor_that_nobody_asks_is_named(told: Told) -> None:
    """A Pod may have a grant, and another that was written beside it."""
    told.cluster.put_pod(a_pod(node="n1", allocated=SHARE, annotations={AMD: "AMD-a,AMDGPU,1000,10:;"}))

    assert [AMD] == [problem.key for _, problem in told]
    assert "devices of AMD on n1" in told[0][1].reason


def test_grant_of_a_resource_that_was_renamed_is_reported(told: Told) -> None:
    """The Pod asks by a name that the device config no longer has; that is what the text says, too."""
    named_before = an_idle_container(limits={"team.example/gpu": "1"})
    told.cluster.put_pod(a_pod("p", named_before, node="n1", allocated=SHARE))

    assert HELD == promises(told.cluster, "n1")
    assert "no container asks for any by a resource of the device config" in told[0][1].reason


INIT = a_container("i", gpu=1, gpumem=500)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(a_pod(node="n1", allocated=SHARE), id="2.4"),
        pytest.param(
            a_pod("p", an_idle_container(), a_container(gpu=1), node="n1", allocated=f",,0,0:;{SHARE}"),
            id="2.5 with a placeholder",
        ),
        pytest.param(a_pod(node="n1", allocated="GPU-a[0-1],NVIDIA,1000,10:;"), id="2.7 with a MIG slot"),
        pytest.param(a_pod(inits=[INIT], node="n1", allocated=f";{SHARE}"), id="2.9 with init"),
        pytest.param(a_pod("p", an_idle_container(), inits=[INIT], node="n1", allocated=f"{SHARE};"), id="init alone"),
        pytest.param(a_pod(node="n1", allocated=f"{SHARE};;"), id="2.10 with surplus empty slots"),
        pytest.param(
            a_pod("p", an_idle_container(requests={"nvidia.com/gpu": "1"}), node="n1", allocated=SHARE),
            id="asked in the requests",
        ),
        pytest.param(a_pod("p", an_idle_container(), node="n1", allocated=",,0,0:;"), id="no device named"),
        pytest.param(a_pod("p", an_idle_container(), node="n1", allocated=";"), id="nothing granted"),
        pytest.param(a_pod("p", an_idle_container(), allocated=SHARE), id="not bound"),
        pytest.param(a_pod("p", an_idle_container(), node="n1", allocated=SHARE, phase="Failed"), id="over"),
    ],
)
def test_pod_that_asks_or_holds_nothing_is_not_told_of(pod: Object, told: Told) -> None:
    """In every form that HAMi wrote."""
    told.cluster.put_pod(pod)

    assert [] == told


def test_edited_grant_of_another_vendor_is_reported_as_edited(told: Told) -> None:
    """The first one counts, so there is one thing to say of it."""
    told.cluster.put_pod(a_pod(node="n1", allocated=SHARE))
    told.cluster.put_pod(a_pod(node="n1", allocated=SHARE, annotations={AMD: "AMD-a,AMDGPU,1000,10:;"}))

    assert HELD == promises(told.cluster, "n1")
    assert ["allocation"] == [problem.key for _, problem in told]


async def test_what_nobody_asked_for_is_counted(api: ApiServer, scheduler: Running) -> None:
    """By the key, so that an alert can name it."""
    api.put("pods", a_pod("p", an_idle_container(), node="exact", allocated=SHARE))
    await eventually(lambda: scheduler.cluster.ledger.grant("uid-p"))
    _, text = await scheduler.get(scheduler.metrics_url + "/metrics")

    assert f'hami_scheduler_contained_problems_total{{key="{NVIDIA}",kind="Pod"}} 1.0' in text


def test_pods_that_ask_have_the_same_grant_as_ever() -> None:
    """What a Pod was reserved and what it carries once bound are equal, so that binding changes nothing."""
    cluster = a_cluster(a_node("n1", a_device()))
    grant = read_grant(a_pod(node="n1", allocated=SHARE), cluster.vendors)

    assert grant is not None
    assert () == grant.granted_unrequested
