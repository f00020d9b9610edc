"""A Pod on one Node: which devices its containers get."""

import pytest

from hami_scheduler.search.place_pod import place
from hami_scheduler.search.placement import Placement
from hami_scheduler.state.quota import Allowance
from hami_scheduler.values.device_use import DeviceUse
from hami_scheduler.values.policies import read_device_policy
from hami_scheduler.values.reasons import Misfit, Reason
from hamicommon.model import Object

from ..support.builders import a_container, a_mig_device, a_pod, a_request, a_use


def placed(pod: Object, *uses: DeviceUse, allowance: Allowance | None = None, **policies: str) -> Placement | Misfit:
    """Return where *pod* goes on a Node of *uses*."""
    request = a_request(pod, **policies)
    return place(request, uses, {"NVIDIA": allowance} if allowance else {})


def uuids(found: Placement | Misfit) -> list[list[str]]:
    """Return per container the devices it gets."""
    assert isinstance(found, Placement), found
    return [[share.uuid for share in container] for container in found.shares["NVIDIA"]]


def text(found: Placement | Misfit) -> str:
    """Return why a Pod cannot be placed."""
    assert isinstance(found, Misfit), found
    return found.text


def test_app_containers_see_what_their_siblings_take() -> None:
    """Two containers of 10 GiB do not share a device of 16."""
    pod = a_pod("p", a_container("a", gpu=1, gpumem=10240), a_container("b", gpu=1, gpumem=10240))

    assert [["GPU-b"], ["GPU-a"]] == uuids(placed(pod, a_use("GPU-a"), a_use("GPU-b")))
    assert "1/1 CardInsufficientMemory" == text(placed(pod, a_use("GPU-a")))


def test_container_makes_room_for_a_later_one() -> None:
    """The first would spread to the idle device, which is the only one that is large enough for the second."""
    pod = a_pod("p", a_container("a", gpu=1, gpumem=1000), a_container("b", gpu=1, gpumem=16384))
    uses = [a_use("GPU-idle"), a_use("GPU-used", promised=(1, 12000, 0))]

    assert [["GPU-used"], ["GPU-idle"]] == uuids(placed(pod, *uses, device="spread"))


def test_pod_keeps_to_its_policy_where_nobody_has_to_make_room() -> None:
    """The second container fits beside the first."""
    pod = a_pod("p", a_container("a", gpu=1, gpumem=1000), a_container("b", gpu=1, gpumem=4000))
    uses = [a_use("GPU-idle"), a_use("GPU-used", promised=(1, 12000, 0))]

    assert [["GPU-idle"], ["GPU-idle"]] == uuids(placed(pod, *uses, device="spread"))


def test_pod_whose_containers_cannot_share_is_refused_as_hami_refuses_it() -> None:
    """The reason is the one met first, with each container where it likes to be best."""
    pod = a_pod("p", a_container("a", gpu=1, gpumem=9000), a_container("b", gpu=1, gpumem=9000))
    uses = [a_use("GPU-idle"), a_use("GPU-used", promised=(1, 8000, 0))]

    assert "2/2 CardInsufficientMemory" == text(placed(pod, *uses))


def test_init_container_goes_where_a_quota_counts_it_once() -> None:
    """Of one device the namespace pays the worst moment, of two the sum; only GPU-b has compute for the app."""
    inits = [a_container("i", gpu=1, gpumem=4000)]
    pod = a_pod("p", a_container("a", gpu=1, gpumem=4000, gpucores=50), inits=inits)

    def with_limit(memory_mib: int | None) -> Placement | Misfit:
        uses = [a_use("GPU-a", promised=(1, 0, 60)), a_use("GPU-b", promised=(1, 12000, 0))]
        return placed(pod, *uses, allowance=Allowance(memory_mib))

    assert [["GPU-a"], ["GPU-b"]] == uuids(with_limit(None))
    assert [["GPU-b"], ["GPU-b"]] == uuids(with_limit(4000))
    assert isinstance(with_limit(3999), Misfit)


def test_init_container_may_take_what_the_app_takes_later() -> None:
    """They never run at the same time."""
    pod = a_pod("p", a_container("a", gpu=1, gpumem=16000), inits=[a_container("i", gpu=1, gpumem=16000)])

    assert [["GPU-a"], ["GPU-a"]] == uuids(placed(pod, a_use("GPU-a")))


@pytest.mark.parametrize("later", ["init", "app"])
def test_sidecar_keeps_its_share_beside_what_comes_later(later: str) -> None:
    """A sidecar runs until the Pod ends, so neither a later init container nor an app container gets its room."""
    sidecar, other = a_container("s", sidecar=True, gpu=1, gpumem=9000), a_container("o", gpu=1, gpumem=9000)
    inits = [sidecar, other] if later == "init" else [sidecar]
    pod = a_pod("p", a_container("a") if later == "init" else other, inits=inits)

    assert "1/1 CardInsufficientMemory" == text(placed(pod, a_use("GPU-a")))


def test_sidecar_does_not_keep_room_from_earlier_init_containers() -> None:
    """An init container before it has ended when the sidecar starts."""
    inits = [a_container("i", gpu=1, gpumem=16000), a_container("s", sidecar=True, gpu=1, gpumem=8000)]
    pod = a_pod("p", a_container("a", gpu=1, gpumem=8000), inits=inits)

    assert [["GPU-a"], ["GPU-a"], ["GPU-a"]] == uuids(placed(pod, a_use("GPU-a")))


def test_devices_of_one_container_are_distinct() -> None:
    """Two devices asked are two devices given."""
    pod = a_pod("p", a_container(gpu=2, gpumem=1000))

    assert [["GPU-b", "GPU-a"]] == uuids(placed(pod, a_use("GPU-a"), a_use("GPU-b")))
    assert "NodeInsufficientDevice" == text(placed(pod, a_use("GPU-a")))


def test_too_few_acceptable_devices_are_counted_beside_the_reasons() -> None:
    """The text says how many would do and what ails the rest."""
    pod = a_pod("p", a_container(gpu=3, gpumem=8000))
    uses = [a_use("GPU-a"), a_use("GPU-b", promised=(1, 9000, 0)), a_use("GPU-c", healthy=False)]

    assert "1/3 AllocatedCardsInsufficientRequest, 1/3 CardInsufficientMemory, 1/3 CardNotHealth" == text(
        placed(pod, *uses)
    )


def test_numa_bound_devices_come_from_one_numa_node() -> None:
    """What was collected on another NUMA node is put back and told."""
    annotations = {"nvidia.com/numa-bind": "true"}
    pod = a_pod("p", a_container(gpu=2, gpumem=1000), annotations=annotations)
    split = [a_use("GPU-a", numa=0), a_use("GPU-b", numa=1)]
    pair = [a_use("GPU-a", numa=0), a_use("GPU-b", numa=1), a_use("GPU-c", numa=0)]

    assert "1/2 AllocatedCardsInsufficientRequest, 1/2 NumaNotFit" == text(placed(pod, *split))
    assert {"GPU-a", "GPU-c"} == set(uuids(placed(pod, *pair))[0])


def test_numa_bound_topology_takes_the_numa_node_that_has_enough() -> None:
    """HAMi chooses on the NUMA node it tries last, and refuses where that has too few; the text is its own."""
    annotations = {"nvidia.com/numa-bind": "1", "hami.io/gpu-scheduler-policy": "topology-aware"}
    pod = a_pod("p", a_container(gpu=2, gpumem=1000), annotations=annotations)
    uses = [a_use("GPU-a", numa=0), a_use("GPU-b", numa=0), a_use("GPU-c", numa=1)]

    assert {"GPU-a", "GPU-b"} == set(uuids(placed(pod, *uses))[0])
    assert {"GPU-a", "GPU-b"} == set(uuids(placed(pod, *uses, device="binpack"))[0])
    assert {"GPU-y", "GPU-z"} == set(uuids(placed(pod, a_use("GPU-x"), *(a_use(f"GPU-{n}", numa=1) for n in "yz")))[0])
    assert "1/2 AllocatedCardsInsufficientRequest" == text(placed(pod, *uses[1:]))


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param("binpack", "GPU-full", id="binpack takes the fullest"),
        pytest.param("spread", "GPU-idle", id="spread takes the emptiest"),
        pytest.param("bogus", "GPU-idle", id="an unknown word spreads"),
        pytest.param("mutex", "GPU-idle", id="mutex takes an unused one"),
        pytest.param("binpack,numa", "GPU-full", id="a list sorts by its first word first"),
        pytest.param("numa,binpack", "GPU-idle", id="numa first takes the highest numa node"),
        pytest.param(",", "GPU-idle", id="an empty list spreads"),
    ],
)
def test_policy_chooses_the_device(policy: str, expected: str) -> None:
    """The device tried first is the one the policy likes best."""
    uses = [a_use("GPU-full", promised=(5, 8000, 50)), a_use("GPU-idle", numa=1)]

    assert [[expected]] == uuids(placed(a_pod(), *uses, device=policy))


def test_pod_annotation_replaces_the_policy_of_the_flag() -> None:
    """The whole policy is the Pod's then."""
    pod = a_pod(annotations={"hami.io/gpu-scheduler-policy": "binpack"})
    uses = [a_use("GPU-full", promised=(5, 8000, 50)), a_use("GPU-idle")]

    assert [["GPU-full"]] == uuids(placed(pod, *uses, device="spread"))


def test_words_after_the_known_ones_change_nothing() -> None:
    """Duplicates and unknown words in a list are skipped."""
    assert ("numa", "spread") == read_device_policy("numa, numa,bogus,spread").chain
    assert read_device_policy("topology-aware,mutex").is_mutex
    assert read_device_policy("topology-aware").is_topology_aware


def test_quota_counts_the_pod_as_it_will_run() -> None:
    """Both app containers together must stay within the quota; an init container counts only where it is the peak."""
    pod = a_pod(
        "p",
        a_container("a", gpu=1, gpumem=2000),
        a_container("b", gpu=1, gpumem=2000),
        inits=[a_container("i", gpu=1, gpumem=3000)],
    )

    assert isinstance(placed(pod, a_use("GPU-a"), allowance=Allowance(4000, None)), Placement)
    assert "1/1 ResourceQuotaNotFit" == text(placed(pod, a_use("GPU-a"), allowance=Allowance(3999, None)))


def test_quota_of_cores_counts_like_memory() -> None:
    """Either limit refuses."""
    pod = a_pod("p", a_container(gpu=2, gpucores=30, gpumem=1))
    uses = [a_use("GPU-a"), a_use("GPU-b")]

    assert isinstance(placed(pod, *uses, allowance=Allowance(None, 60)), Placement)
    assert "1/2 AllocatedCardsInsufficientRequest, 1/2 ResourceQuotaNotFit" == text(
        placed(pod, *uses, allowance=Allowance(None, 59))
    )


def test_mig_device_serves_one_container_several_times() -> None:
    """Two instances of one device do where two devices are asked, and each is what its profile is."""
    pod = a_pod("p", a_container("web"), a_container(gpu=2, gpumem=5000))
    found = placed(pod, DeviceUse(a_mig_device()))

    assert isinstance(found, Placement)
    assert [(9856, 28), (9856, 28)] == [(s.memory_mib, s.core_percent) for s in found.shares["NVIDIA"][1]]
    assert [(1, 0, 0), (1, 1, 2)] == [(m.container_index, m.device_index, m.placement.start) for m in found.mig]


def test_mig_instances_go_where_they_leave_most_room() -> None:
    """On an A100: 3g from the top, 2g from the bottom, 1g from the top of what is left."""
    pod = a_pod(
        "p",
        a_container("a", gpu=1, gpumem=19968),
        a_container("b", gpu=1, gpumem=9856),
        a_container("c", gpu=2, gpumem=4864),
    )
    found = placed(pod, DeviceUse(a_mig_device()))

    assert isinstance(found, Placement)
    assert [("3g.20gb", 4), ("2g.10gb", 0), ("1g.5gb", 3), ("1g.5gb", 2)] == [
        (allocation.profile, allocation.placement.start) for allocation in found.mig
    ]


def test_mig_instance_larger_than_asked_counts_against_the_quota_as_what_it_is() -> None:
    """The smallest instance with 5000 MiB has 9856, and 28 % of the compute."""
    pod = a_pod("p", a_container(gpu=1, gpumem=5000))
    enough = Allowance(memory_mib=9856, core_percent=28)

    assert [["GPU-m"]] == uuids(placed(pod, DeviceUse(a_mig_device()), allowance=enough))
    for allowance in (Allowance(memory_mib=9855), Allowance(core_percent=27)):
        assert "1/1 ResourceQuotaNotFit" == text(placed(pod, DeviceUse(a_mig_device()), allowance=allowance))


def test_full_mig_device_is_a_topology_misfit() -> None:
    """Memory left in sum does not help when no profile has a place."""
    pod = a_pod("p", a_container(gpu=2, gpumem=30000))

    assert "1/1 AllocatedCardsInsufficientRequest, 1/1 CardMigTopologyInfeasible" == text(
        placed(pod, DeviceUse(a_mig_device()))
    )


def test_pod_that_excludes_mig_needs_as_many_devices_as_it_asks() -> None:
    """The mode annotation decides before the count."""
    pod = a_pod("p", a_container(gpu=2), annotations={"nvidia.com/vgpu-mode": "hami-core"})

    assert "NodeInsufficientDevice" == text(placed(pod, DeviceUse(a_mig_device())))


def test_reason_of_another_vendors_node_is_missing_devices() -> None:
    """A Node without any device of the vendor lacks devices."""
    use = a_use("DCU-a", vendor="DCU")

    assert Misfit.of_node(Reason.NODE_DEVICES) == placed(a_pod(), use)
