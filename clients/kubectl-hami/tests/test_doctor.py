"""
Each check: good where all is well, and its verdict with a fix where one thing is broken.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import yaml

from hamicommon.dra.names import DRIVER
from hamicommon.dra.partitions import Partition, encode_pool
from hamicommon.dra.slices import Description, OfferedDevice
from hamicommon.model import MigPlacement, MigProfile
from hamicommon.wire import keys
from kubectl_hami.answer.doctor import CHECKS, checks
from kubectl_hami.values.diagnosis import Check, Examined, Service

from .builders import NOW, a_cluster, a_device, a_node, a_pod, a_share
from .fakes import a_service

DEVICE_CONFIG = "nvidia:\n  resourceCountName: nvidia.com/gpu\n"
VERSION = "app.kubernetes.io/version"

METRICS: dict[str, dict[str, float]] = {
    "hami-webhook": {
        "hami_webhook_certificate_expiry_timestamp_seconds": (NOW + timedelta(days=30)).timestamp(),
        "hami_webhook_unasked_resources": 0,
        'hami_device_config_info{hash="h"}': 1,
    },
    "hami-scheduler": {
        "hami_scheduler_leader": 1,
        "hami_scheduler_ledger_drift_total": 0,
        "hami_scheduler_edited_pods_total": 0,
        'hami_scheduler_watch_age_seconds{collection="pods"}': 3,
        'hami_device_config_info{hash="h"}': 1,
    },
    "hami-device-plugin": {
        "hami_device_plugin_driver_available": 1,
        'hami_device_plugin_allocation_mode{mode="identity"}': 1,
        'hami_device_plugin_allocation_mode{mode="lock"}': 0,
        'hami_device_plugin_cdi_edits_total{result="missing"}': 0,
        'hami_device_config_info{hash="h"}': 1,
    },
    "hami-monitor": {"hami_monitor_watchdog_active": 1, 'hami_monitor_regions_refused{reason="version"}': 0},
}
"""The samples of a service where all is well."""


def a_running(component: str, **samples: float) -> Service:
    """Return a ready service whose metrics are those of METRICS, with *samples* changed."""
    pod = a_service(component.removeprefix("hami-"), component)
    pod["metadata"]["labels"][VERSION] = "0.1.0"
    pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    values = {**METRICS[component], **samples}
    return Service(component, pod, "".join(f"{name} {value}\n" for name, value in values.items()).encode())


def scheduler_config(**fields: Any) -> dict[str, Any]:
    """Return the ConfigMap of kube-scheduler, with *fields* changed."""
    extender = {"filterVerb": "filter", "bindVerb": "bind", "managedResources": [{"name": "nvidia.com/gpu"}]}
    found = {"kind": "KubeSchedulerConfiguration", "percentageOfNodesToScore": 100, "extenders": [extender], **fields}
    return {"data": {"config.yaml": yaml.safe_dump(found)}}


def a_hook(**fields: Any) -> dict[str, Any]:
    """Return the registration of the webhook."""
    hook = {"name": "vgpu.hami.io", "clientConfig": {"caBundle": "YQ=="}, "failurePolicy": "Fail", **fields}
    return {"metadata": {"name": "hami-webhook"}, "webhooks": [hook]}


def a_lease(age_seconds: float = 3) -> dict[str, Any]:
    """Return the Lease of the kubelet of n1."""
    renewed = NOW - timedelta(seconds=age_seconds)
    return {"metadata": {"name": "n1"}, "spec": {"renewTime": renewed.isoformat()}}


def well() -> Examined:
    """Return a cluster in which all is well."""
    return Examined(
        cluster=a_cluster(nodes=(a_node("n1", a_device()),), pods=(a_pod("p", a_share()),)),
        services=tuple(a_running(component) for component in METRICS),
        webhooks=(a_hook(),),
        config_maps=({"data": {"device-config.yaml": DEVICE_CONFIG}}, scheduler_config()),
        node_leases=(a_lease(),),
        version={"minor": "34", "gitVersion": "v1.34.1"},
    )


def with_services(*changed: Service) -> Examined:
    """Return a cluster in which all is well but for *changed* services."""
    others = {service.component: service for service in well().services}
    return replace(well(), services=tuple({**others, **{one.component: one for one in changed}}.values()))


def with_node(**annotations: str) -> Examined:
    """Return a cluster whose Node has more *annotations*."""
    node = a_node("n1", a_device())
    node["metadata"]["annotations"] |= annotations
    return replace(well(), cluster=a_cluster(nodes=(node,)))


def with_pending(phase: str) -> Examined:
    """Return a cluster with a bound Pod of this bind phase, which started 10 minutes ago."""
    pod = a_pod("p", a_share(), status={"phase": "Pending", "startTime": (NOW - timedelta(minutes=10)).isoformat()})
    pod["metadata"]["annotations"]["hami.io/bind-phase"] = phase
    return replace(well(), cluster=a_cluster(nodes=(a_node("n1", a_device()),), pods=(pod,)))


def without(component: str) -> Examined:
    """Return a cluster without a Pod of *component*."""
    return replace(well(), services=tuple(one for one in well().services if one.component != component))


def old_version() -> Service:
    """Return a monitor of another version."""
    service = a_running("hami-monitor")
    labels = {**service.pod["metadata"]["labels"], VERSION: "0.0.9"}
    return replace(service, pod={**service.pod, "metadata": {**service.pod["metadata"], "labels": labels}})


def with_offer(**allocatable: str) -> Examined:
    """Return a cluster whose only Node lists a device, and whose kubelet offers *allocatable*."""
    node = a_node("n1", a_device())
    node["status"]["allocatable"] = {
        "cpu": "8",
        **{name.replace("__", "/"): text for name, text in allocatable.items()},
    }
    return replace(well(), cluster=a_cluster(nodes=(node,)))


def a_slice(*uuids: str, node: str = "n1", driver: str = DRIVER, faults: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the ResourceSlice that offers devices on a Node."""
    devices = [OfferedDevice(a_device(uuid), Description(minor), faults) for minor, uuid in enumerate(uuids)]
    made = encode_pool({"metadata": {"name": node, "uid": "u"}}, devices, 1)[0]
    return {**made, "metadata": {"name": f"{node}-x"}, "spec": {**made["spec"], "driver": driver}}


def by_claims(*slices: dict[str, Any], kubelet: str = "v1.37.2", **changes: Any) -> Examined:
    """Return a cluster whose Node n1 gives its device by claims; its kubelet has no count of it."""
    node = a_node("n1", a_device(healthy=False), **{keys.NODE_KIND: "dra"})
    node["status"] |= {"allocatable": {"nvidia.com/gpu": "0"}, "nodeInfo": {"kubeletVersion": kubelet}}
    version = {"minor": "37", "gitVersion": "v1.37.2"}
    cluster = a_cluster(nodes=(node,), slices=changes.pop("slices", slices))
    return replace(well(), **{"cluster": cluster, "version": version, **changes})


def in_both_ways() -> Examined:
    """Return a cluster whose kubelet counts the devices that the Node gives by claims."""
    examined = by_claims(a_slice("GPU-a"))
    examined.cluster.nodes[0]["status"]["allocatable"]["nvidia.com/gpu"] = "10"
    return examined


def cut_into_instances(*faults: str, is_occupied: bool = False) -> Examined:
    """Return the same whose device can be cut into two MIG instances."""
    gpu = OfferedDevice(a_device("GPU-a"), Description(0), faults)
    profile = MigProfile("1g.5gb", 4864, 15, 1, (MigPlacement(0, 1), MigPlacement(1, 1)))
    offered = [Partition(gpu, profile, place, 14, is_occupied) for place in profile.placements]
    made = encode_pool({"metadata": {"name": "n1", "uid": "u"}}, offered, 1)
    return by_claims(*(item | {"metadata": {"name": f"n1-{number}"}} for number, item in enumerate(made)))


def of_another_pool() -> dict[str, Any]:
    """Return a slice of n1 that names the pool of another Node."""
    found = a_slice("GPU-a")
    found["spec"]["pool"]["name"] = "n2"
    return found


def with_fault() -> dict[str, Any]:
    """Return a Node that gives its device by claims, with a fault of the device."""
    fault = {"xid": {"reason": "XID 79", "since": "2026-11-25T11:00:00Z", "load": ""}}
    annotations = {keys.NODE_KIND: "dra", keys.DEVICE_FAULTS: json.dumps({"GPU-a": fault})}
    return a_node("n1", a_device(healthy=False), **annotations)


def test_all_is_good_where_a_node_gives_its_devices_by_claims() -> None:
    """Its inventory calls them unhealthy and its kubelet counts none: nothing of that is a fault."""
    examined = by_claims(a_slice("GPU-a"), a_slice("GPU-z", driver="gpu.nvidia.com"))

    assert [] == [check for check in checks(examined) if check.health != "good"]


def test_gpu_that_can_be_cut_into_instances_is_named_once() -> None:
    """What stands in the place of an instance is no fault: its Pod runs on."""
    assert {
        ("doubtful", "takes no new claims: GPU-a on n1 (hami.io/device-xid)"),
        ("good", "1 devices are offered by claims on 1 Nodes"),
    } == {
        (check.health, check.found)
        for examined in (cut_into_instances("xid"), cut_into_instances(is_occupied=True))
        for check in checks(examined)
        if check.name == "claims"
    }


@pytest.mark.parametrize(
    ("allocatable", "health"),
    [
        ({}, "bad"),
        ({"nvidia.com__gpu": "0"}, "bad"),
        ({"nvidia.com__gpumem": "1G"}, "bad"),
        ({"nvidia.com__gpu": "10"}, "good"),
    ],
)
def test_inventory_without_a_living_plugin_is_named(allocatable: dict[str, str], health: str) -> None:
    """Nobody else says so once the plugin has left."""
    found = next(check for check in checks(with_offer(**allocatable)) if check.name == "inventories")

    assert health == found.health
    assert ("n1" in found.found) is (health == "bad")


FINDING = 'hami_monitor_watchdog_findings{namespace="a",pod="p",kind="memory-above-grant"}'
BROKEN: list[tuple[str, str, str, Callable[[], Examined]]] = [
    ("services", "bad", "no Pod of hami-webhook", lambda: without("hami-webhook")),
    (
        "services",
        "bad",
        "not ready: hami/hami-monitor",
        lambda: with_services(Service("hami-monitor", a_service("monitor", "hami-monitor"))),
    ),
    ("inventories", "bad", "no plugin runs, on n1", lambda: with_offer(nvidia_com__gpu="0")),
    ("webhook", "bad", "has the webhook vgpu.hami.io", lambda: replace(well(), webhooks=({"webhooks": []},))),
    ("webhook", "bad", "no caBundle", lambda: replace(well(), webhooks=(a_hook(clientConfig={}),))),
    ("webhook", "doubtful", "is Ignore", lambda: replace(well(), webhooks=(a_hook(failurePolicy="Ignore"),))),
    (
        "webhook",
        "bad",
        "lacks resources",
        lambda: with_services(a_running("hami-webhook", hami_webhook_unasked_resources=2)),
    ),
    (
        "certificate",
        "bad",
        "has ended, or none is served",
        lambda: with_services(a_running("hami-webhook", hami_webhook_certificate_expiry_timestamp_seconds=0)),
    ),
    (
        "extender",
        "bad",
        "no extender",
        lambda: replace(well(), config_maps=(scheduler_config(extenders=[]),)),
    ),
    (
        "extender",
        "bad",
        "lack nvidia.com/gpu of the device config",
        lambda: replace(
            well(),
            config_maps=(
                {"data": {"device-config.yaml": DEVICE_CONFIG}},
                scheduler_config(extenders=[{"filterVerb": "filter", "bindVerb": "bind"}]),
            ),
        ),
    ),
    (
        "percentageOfNodesToScore",
        "doubtful",
        "is 50",
        lambda: replace(well(), config_maps=(scheduler_config(percentageOfNodesToScore=50),)),
    ),
    (
        "leader",
        "bad",
        "none of 1 schedulers leads",
        lambda: with_services(a_running("hami-scheduler", hami_scheduler_leader=0)),
    ),
    (
        "drift",
        "bad",
        "has corrected 2 numbers",
        lambda: with_services(a_running("hami-scheduler", hami_scheduler_ledger_drift_total=2)),
    ),
    (
        "drift",
        "bad",
        "is 900 s old",
        lambda: with_services(
            a_running("hami-scheduler", **{'hami_scheduler_watch_age_seconds{collection="pods"}': 900})
        ),
    ),
    (
        "drift",
        "doubtful",
        "of 1 bound Pods was edited",
        lambda: with_services(a_running("hami-scheduler", hami_scheduler_edited_pods_total=1)),
    ),
    ("nodes", "bad", "no device plugin runs", lambda: without("hami-device-plugin")),
    ("nodes", "doubtful", "only one of device plugin and monitor", lambda: without("hami-monitor")),
    ("nodes", "bad", "no device is offered on n1", lambda: replace(well(), cluster=a_cluster(nodes=(a_node("n1"),)))),
    ("claims", "bad", "no complete ResourceSlice offers the devices of n1", by_claims),
    ("claims", "bad", "in no ResourceSlice: GPU-a on n1", lambda: by_claims(a_slice("GPU-z"))),
    ("claims", "bad", "pool.name", lambda: by_claims(of_another_pool())),
    ("claims", "bad", "by claims and as nvidia.com/gpu, on n1", in_both_ways),
    (
        "claims",
        "bad",
        "this is Kubernetes 1.35",
        lambda: by_claims(a_slice("GPU-a"), version={"minor": "35", "gitVersion": "v1.35.0"}),
    ),
    ("claims", "bad", "kubelets older than 1.36", lambda: by_claims(a_slice("GPU-a"), kubelet="v1.35.9+k3s1")),
    ("claims", "unknown", "no ResourceSlice can be read", lambda: by_claims(slices=None)),
    (
        "claims",
        "doubtful",
        "GPU-a on n1 (hami.io/device-xid)",
        lambda: by_claims(a_slice("GPU-a", faults=("xid",))),
    ),
    (
        "devices",
        "bad",
        "unhealthy: GPU-a on n1",
        lambda: by_claims(a_slice("GPU-a"), cluster=a_cluster(nodes=(with_fault(),))),
    ),
    (
        "driver",
        "bad",
        "does not answer on n1",
        lambda: with_services(a_running("hami-device-plugin", hami_device_plugin_driver_available=0)),
    ),
    (
        "devices",
        "bad",
        "unhealthy: GPU-a on n1",
        lambda: replace(well(), cluster=a_cluster(nodes=(a_node("n1", a_device(healthy=False)),))),
    ),
    (
        "devices",
        "unknown",
        "no Node can be read",
        lambda: replace(well(), cluster=a_cluster(pods=(a_pod("p", a_share()),))),
    ),
    (
        "devices",
        "bad",
        "more memory is granted than offered",
        lambda: replace(
            well(), cluster=a_cluster(nodes=(a_node("n1", a_device()),), pods=(a_pod("p", a_share(memory_mib=20000)),))
        ),
    ),
    (
        "cdi",
        "bad",
        "without their CDI edits on n1",
        lambda: with_services(
            a_running("hami-device-plugin", **{'hami_device_plugin_cdi_edits_total{result="missing"}': 3})
        ),
    ),
    (
        "cdi",
        "doubtful",
        "without CDI: n1",
        lambda: with_services(
            a_running(
                "hami-device-plugin",
                **{
                    'hami_device_plugin_allocation_mode{mode="identity"}': 0,
                    'hami_device_plugin_allocation_mode{mode="lock"}': 1,
                },
            )
        ),
    ),
    ("allocations", "bad", "failed: default/p", lambda: with_pending("failed")),
    ("allocations", "bad", "more than 5 minutes: default/p", lambda: with_pending("allocating")),
    ("locks", "doubtful", "on n1", lambda: with_node(**{"hami.io/mutex.lock": "2026-11-25T11:00:00Z,a,p"})),
    ("locks", "doubtful", "unreadable, on n1", lambda: with_node(**{"hami.io/mutex.lock": "yesterday"})),
    (
        "enforcement",
        "bad",
        "a/p (memory-above-grant)",
        lambda: with_services(a_running("hami-monitor", **{FINDING: 1})),
    ),
    (
        "enforcement",
        "doubtful",
        "nobody compares processes",
        lambda: with_services(a_running("hami-monitor", hami_monitor_watchdog_active=0)),
    ),
    (
        "device config",
        "doubtful",
        "2 different ones",
        lambda: with_services(
            Service(
                "hami-scheduler",
                a_running("hami-scheduler").pod,
                b'hami_device_config_info{hash="other"} 1\nhami_scheduler_leader 1\n',
            )
        ),
    ),
    (
        "device config",
        "bad",
        "has errors",
        lambda: with_services(a_running("hami-webhook", hami_device_config_refused=1)),
    ),
    ("versions", "bad", "Kubernetes 1.30", lambda: replace(well(), version={"minor": "30+"})),
    ("versions", "doubtful", "different versions", lambda: with_services(old_version())),
    ("clocks", "doubtful", "ahead of this machine's", lambda: replace(well(), node_leases=(a_lease(-60),))),
    ("clocks", "doubtful", "behind this machine's", lambda: replace(well(), node_leases=(a_lease(600),))),
]


def test_all_is_good_where_all_is_well() -> None:
    """A healthy cluster has no finding."""
    assert [] == [check for check in checks(well()) if check.health != "good"]


@pytest.mark.parametrize(("name", "health", "text", "make"), BROKEN, ids=[f"{row[0]}: {row[2]}" for row in BROKEN])
def test_what_is_broken_is_found_with_a_fix(name: str, health: str, text: str, make: Callable[[], Examined]) -> None:
    """The sentence names what is wrong, and the fix what to do."""
    found = {check.name: check for check in checks(make())}[name]

    assert health == found.health
    assert text in found.found
    assert found.fix


def test_nothing_is_good_where_nothing_could_be_read() -> None:
    """A check that could not be made must not calm anybody."""
    found: list[Check] = list(checks(Examined(a_cluster())))

    known = {"allocations"}  # it reads only Pods, without which nothing is checked
    assert known == {check.name for check in found if check.health == "good"}


SILENT = "no answer within 8 s"


def silent(component: str, number: int = 0, *, is_forbidden: bool = False) -> Service:
    """Return a service that its kubelet calls ready, and that does not answer."""
    pod = a_running(component).pod
    pod["metadata"]["name"] = f"{component}-{number}"
    return Service(component, pod, None, SILENT, is_forbidden)


@pytest.mark.parametrize(
    ("component", "names"),
    [
        ("hami-webhook", {"services", "webhook", "certificate"}),
        ("hami-scheduler", {"services", "leader", "drift"}),
        ("hami-device-plugin", {"services", "driver", "cdi"}),
        ("hami-monitor", {"services", "enforcement"}),
    ],
)
def test_service_that_does_not_answer_is_bad(component: str, names: set[str]) -> None:
    """Also where another Pod of it does: what one says is not what all say."""
    alone, beside = with_services(silent(component)), replace(well(), services=(*well().services, silent(component, 1)))
    for examined in (alone, beside):
        found = {check.name: check for check in checks(examined) if check.health == "bad"}

        assert names == found.keys()
        assert all(SILENT in found[name].found for name in names - {"services"})
        assert all(component in found[name].found and found[name].fix for name in names)


def test_what_nobody_may_ask_is_unknown() -> None:
    """It is no fault of the cluster, and nothing to rest on."""
    examined = replace(well(), services=(*well().services, silent("hami-monitor", 1, is_forbidden=True)))

    found = {check.name: check for check in checks(examined) if check.health != "good"}

    assert {"enforcement": "unknown"} == {name: check.health for name, check in found.items()}
    assert "ask for get on pods/proxy in namespace hami" in found["enforcement"].fix


@pytest.mark.parametrize(
    ("kind", "amounts"),
    [("DaemonSet", {"status": {"desiredNumberScheduled": 2}}), ("Deployment", {"spec": {"replicas": 2}})],
)
def test_service_with_fewer_pods_than_it_should_have_is_bad(kind: str, amounts: dict[str, Any]) -> None:
    """Those that are there may all be well."""
    labels = {"app.kubernetes.io/component": "hami-scheduler"}
    examined = replace(well(), workloads=({"kind": kind, "metadata": {"labels": labels}, **amounts},))

    found = next(check for check in checks(examined) if check.name == "services")

    assert ("bad", "1 of 2 Pods of hami-scheduler are there") == (found.health, found.found)


def test_every_verdict_but_good_has_a_fix() -> None:
    """Of what is broken, and of what nobody can read."""
    broken = [make() for _, _, _, make in BROKEN]
    nothing = [Examined(a_cluster()), Examined(a_cluster(nodes=(a_node("n1"),)))]
    found = [check for examined in (*broken, *nothing) for check in checks(examined) if check.health != "good"]

    assert [] == [check for check in found if not check.fix]


def test_clock_of_a_node_whose_kubelet_has_stopped_is_not_judged() -> None:
    """Its Lease is old, whatever its clock says."""
    stopped = a_node("n1", a_device())
    stopped["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    other = {**a_lease(), "metadata": {"name": "n2"}}
    cluster = a_cluster(nodes=(stopped, a_node("n2")))

    found = {
        check.name: check.health
        for check in checks(replace(well(), cluster=cluster, node_leases=(a_lease(600), other)))
    }

    assert "good" == found["clocks"]


def test_clocks_are_judged_by_when_the_leases_were_read() -> None:
    """However long the rest took."""
    read_at = NOW + timedelta(seconds=120)
    fresh = {"metadata": {"name": "n1"}, "spec": {"renewTime": (read_at - timedelta(seconds=3)).isoformat()}}

    found = next(
        one for one in checks(replace(well(), node_leases=(fresh,), leases_read_at=read_at)) if one.name == "clocks"
    )

    assert "good" == found.health


def test_there_are_a_dozen_checks_and_each_has_a_broken_case() -> None:
    """So that none is only ever seen good."""
    assert len(CHECKS) >= 12
    assert {check.name for check in checks(well())} == {row[0] for row in BROKEN}
