"""A Pod's containers run in order, are restarted, end and are reported as the kubelet does it."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from minicluster.client import ApiError
from minicluster_tests.kubelet_peers import (
    NODE,
    Cluster,
    Object,
    Process,
    a_cluster,
    a_container,
    a_pod,
    eventually,
    processes,
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Process]]:
    """One API server and one kubelet for all tests of this module."""
    root = tmp_path_factory.mktemp("pods")
    with processes(root, "--cpu", "2") as kubelet:
        yield root, kubelet


@pytest.fixture
async def cluster(running: tuple[Path, Process]) -> AsyncIterator[Cluster]:
    """The module's cluster, with a client of the test's own."""
    async with a_cluster(*running) as cluster:
        yield cluster


def states(pod: Object, group: str = "containerStatuses") -> dict[str, Object]:
    """Return the containers' statuses by name."""
    return {status["name"]: status for status in pod["status"][group]}


async def test_pod_that_runs_is_ready_and_has_addresses(cluster: Cluster) -> None:
    """Everything users and controllers look at is there."""
    await cluster.create(a_pod("ready"))

    status = (await cluster.phase("ready", "Running"))["status"]

    conditions = {condition["type"]: condition["status"] for condition in status["conditions"]}
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    assert dict.fromkeys(kinds, "True") == conditions
    assert ("127.0.0.1", "127.0.0.1") == (status["podIP"], status["hostIP"])
    container = status["containerStatuses"][0]
    assert (True, True, 0, "main") == tuple(container[key] for key in ("ready", "started", "restartCount", "name"))
    assert "startedAt" in container["state"]["running"]


@pytest.mark.parametrize(("code", "phase", "reason"), [(0, "Succeeded", "Completed"), (3, "Failed", "Error")])
async def test_exit_code_decides_the_phase(cluster: Cluster, code: int, phase: str, reason: str) -> None:
    """With restartPolicy Never, once all containers have ended."""
    name = f"exit-{code}"
    await cluster.create(a_pod(name, a_container(script=f"exit {code}"), restartPolicy="Never"))

    ended = states(await cluster.phase(name, phase))["main"]["state"]["terminated"]

    assert (code, reason) == (ended["exitCode"], ended["reason"])


async def test_signal_that_ends_a_container_is_its_exit_code(cluster: Cluster) -> None:
    """128 and the signal's number; `$$$$` is the shell's `$$`, for Kubernetes expands commands itself."""
    await cluster.create(a_pod("signal", a_container(script="kill -9 $$$$"), restartPolicy="Never"))

    assert 137 == states(await cluster.phase("signal", "Failed"))["main"]["state"]["terminated"]["exitCode"]


async def test_init_containers_run_in_order_before_the_others(cluster: Cluster) -> None:
    """One after the other to their end, sharing the Pod's volumes."""
    mount: Object = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}], "args": ["/shared/order"]}
    inits = [a_container(name, f"echo {name} >> $0", **mount) for name in ("one", "two")]
    main = a_container(script="cat $0; exec sleep 1000", **mount)
    await cluster.create(a_pod("inits", main, initContainers=inits, volumes=[{"name": "shared", "emptyDir": {}}]))

    pod = await cluster.phase("inits", "Running")

    assert "one\ntwo\n" == await cluster.says("inits", "two")
    reasons = [one["state"]["terminated"]["reason"] for one in states(pod, "initContainerStatuses").values()]
    assert ["Completed", "Completed"] == reasons


async def test_init_container_that_fails_fails_a_pod_that_never_restarts(cluster: Cluster) -> None:
    """The app containers are not started."""
    init = a_container("init", "exit 1")
    await cluster.create(a_pod("init-fails", initContainers=[init], restartPolicy="Never"))

    pod = await cluster.phase("init-fails", "Failed")

    assert {"waiting": {"reason": "PodInitializing"}} == states(pod)["main"]["state"]


async def test_sidecar_stays_until_the_others_are_done(cluster: Cluster) -> None:
    """It starts before the app containers, and does not keep the Pod from completing."""
    sidecar = a_container("side", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.02; done")
    sidecar["restartPolicy"] = "Always"
    main = a_container(script="sleep 0.3")
    await cluster.create(a_pod("sidecar", main, initContainers=[sidecar], restartPolicy="Never"))

    pod = await cluster.phase("sidecar", "Succeeded")

    assert "up\nbye\n" == await cluster.log("sidecar", "side")
    side, main_state = states(pod, "initContainerStatuses")["side"]["state"], states(pod)["main"]["state"]
    assert side["terminated"]["finishedAt"] >= main_state["terminated"]["finishedAt"]


async def test_container_that_fails_is_started_again_and_backs_off(cluster: Cluster) -> None:
    """The first restart comes at once, from the second on the container waits in CrashLoopBackOff."""
    await cluster.create(a_pod("crash", a_container(script="exit 7")))

    def backs_off(status: Object) -> bool:
        waiting = status["containerStatuses"][0]["state"].get("waiting", {})
        return waiting.get("reason") == "CrashLoopBackOff" and "back-off 20s" in waiting["message"]

    state = states(await cluster.until("crash", backs_off))["main"]

    assert (2, 7) == (state["restartCount"], state["lastState"]["terminated"]["exitCode"])
    assert "restarting failed container=main pod=crash_default" in state["state"]["waiting"]["message"]


async def test_container_that_succeeds_is_not_started_again_on_failure_policy(cluster: Cluster) -> None:
    """OnFailure restarts the first attempt, which fails, and not the second."""
    mount: Object = {"volumeMounts": [{"name": "v", "mountPath": "/v"}], "args": ["/v/tried"]}
    main = a_container(script="test -e $0 && exit 0; touch $0; exit 1", **mount)
    await cluster.create(a_pod("retry", main, volumes=[{"name": "v", "emptyDir": {}}], restartPolicy="OnFailure"))

    assert 1 == states(await cluster.phase("retry", "Succeeded"))["main"]["restartCount"]


async def test_command_that_does_not_exist_is_a_start_error(cluster: Cluster) -> None:
    """Exit code 128, with the executable's name in the message."""
    await cluster.create(a_pod("typo", {"name": "main", "image": "x", "command": ["no-such"]}, restartPolicy="Never"))

    ended = states(await cluster.phase("typo", "Failed"))["main"]["state"]["terminated"]

    assert (128, "StartError") == (ended["exitCode"], ended["reason"])
    assert '"no-such": executable file not found' in ended["message"]


async def test_container_without_a_command_pauses(cluster: Cluster) -> None:
    """There is no image whose entrypoint could run."""
    await cluster.create(a_pod("pause", {"name": "main", "image": "pause"}))

    assert states(await cluster.phase("pause", "Running"))["main"]["ready"]


async def test_environment_comes_from_all_its_sources(cluster: Cluster) -> None:
    """Values, expansions, fields, resources, ConfigMaps and Secrets; later ones win."""
    await cluster.client.create(
        "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "settings"}, "data": {"A": "map", "B": "map"}}
    )
    secret = {"metadata": {"name": "hidden"}, "data": {"key": "czNjcmV0"}}
    await cluster.client.create("/api/v1/namespaces/default/secrets", secret)
    env = [
        {"name": "B", "value": "own"},
        {"name": "C", "value": "$(A)-$(B)-$(NONE)-$$(A)"},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "hidden", "key": "key"}}},
        {"name": "NO", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "x", "optional": True}}},
    ]
    main = a_container(script="", env=env, envFrom=[{"configMapRef": {"name": "settings"}}])
    main |= {"command": ["sh", "-c"], "args": ['echo "$A $B $C $POD $NODE $CPU $KEY ${NO-unset} $(POD)"']}
    main["resources"] = {"limits": {"cpu": "500m"}}
    await cluster.create(a_pod("environment", main, restartPolicy="Never"))

    expected = f"map own map-own-$(NONE)-$(A) environment {NODE} 500 s3cret unset environment\n"

    await cluster.phase("environment", "Succeeded")
    assert expected == await cluster.log("environment")


async def test_volumes_are_files_in_the_container(cluster: Cluster) -> None:
    """ConfigMap and downwardAPI volumes, one key by subPath."""
    await cluster.client.create(
        "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "files"}, "data": {"a.txt": "AA", "b.txt": "BB"}}
    )
    volumes = [
        {"name": "files", "configMap": {"name": "files"}},
        {"name": "down", "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]
    mounts = [
        {"name": "files", "mountPath": "/etc/minicluster-test"},
        {"name": "files", "mountPath": "/etc/minicluster-b", "subPath": "b.txt"},
        {"name": "down", "mountPath": "/etc/minicluster-down"},
    ]
    paths = ["/etc/minicluster-test/a.txt", "/etc/minicluster-b", "/etc/minicluster-down/n"]
    main = a_container(script='cat "$0" "$@"', args=paths, volumeMounts=mounts)
    await cluster.create(a_pod("volumes", main, volumes=volumes, restartPolicy="Never"))

    await cluster.phase("volumes", "Succeeded")
    assert "AABBvolumes" == await cluster.log("volumes")


async def test_missing_configmap_keeps_the_container_waiting_until_it_is_there(cluster: Cluster) -> None:
    """The reason is CreateContainerConfigError, and it heals by itself."""
    env = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "a"}}}]
    await cluster.create(a_pod("late", a_container(script="echo got $A; sleep 1000", env=env)))

    pod = await cluster.until(
        "late", lambda status: status["containerStatuses"][0]["state"]["waiting"]["reason"].endswith("ConfigError")
    )
    waiting = states(pod)["main"]["state"]["waiting"]
    assert {"reason": "CreateContainerConfigError", "message": 'configmap "late" not found'} == waiting

    await cluster.client.create(
        "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "late"}, "data": {"a": "it"}}
    )
    await cluster.says("late", "got it")


async def test_deleted_pod_gets_its_grace_period(cluster: Cluster, tmp_path: Path) -> None:
    """SIGTERM first; the Pod is gone as soon as its containers have ended, and with it its files."""
    asked = tmp_path / "asked"
    script = f"trap 'echo asked > {asked}; exit 0' TERM; echo up; while :; do sleep 0.02; done"
    pod = await cluster.create(a_pod("graceful", a_container(script=script)))
    await cluster.says("graceful", "up")
    began = time.monotonic()

    await cluster.delete("graceful", grace_seconds=20)

    assert time.monotonic() - began < 10
    assert "asked\n" == asked.read_text()
    await eventually(lambda: not (cluster.root / "pods" / pod["metadata"]["uid"]).exists())


async def test_container_that_ignores_sigterm_is_killed_after_the_grace_period(cluster: Cluster) -> None:
    """One second here, then the Pod is gone."""
    await cluster.create(a_pod("stubborn", a_container(script="trap '' TERM; echo up; while :; do sleep 0.02; done")))
    await cluster.says("stubborn", "up")
    began = time.monotonic()

    await cluster.delete("stubborn", grace_seconds=1)

    assert 1 <= time.monotonic() - began < 5


async def test_pod_that_asks_for_more_than_the_node_has_is_rejected(cluster: Cluster) -> None:
    """The kubelet checks again what the scheduler should have checked."""
    big = a_container()
    big["resources"] = {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}
    await cluster.create(a_pod("big", big))

    status = (await cluster.phase("big", "Failed"))["status"]

    amounts = "requested: 3, used: 0, capacity: 2"
    message = f"Pod was rejected: Node didn't have enough resource: cpu, {amounts}"
    assert ("OutOfcpu", message) == (status["reason"], status["message"])


async def test_logs_are_served_through_the_api_server(cluster: Cluster) -> None:
    """Whole, the last lines only, and of the attempt before."""
    await cluster.create(a_pod("logs", a_container(script="for i in 1 2 3; do echo $i; done; exit 1")))
    await cluster.until("logs", lambda status: status["containerStatuses"][0]["restartCount"] >= 1)
    path = "/api/v1/namespaces/default/pods/logs/log"

    async def read(**query: str) -> str:
        async with cluster.client._session.get(cluster.client.server + path, params=query) as response:
            assert response.status == 200
            return await response.text()

    async def all_there() -> bool:
        return await read(container="main") == "1\n2\n3\n"

    await eventually(all_there)
    assert ("2\n3\n", "1\n2\n3\n") == (await read(tailLines="2"), await read(previous="true"))


async def test_node_keeps_what_others_wrote_and_its_lease_is_renewed(cluster: Cluster) -> None:
    """Annotations of others stay; labels, addresses and the log port are the kubelet's."""
    path = f"/api/v1/nodes/{NODE}"
    await cluster.client.patch(path, {"metadata": {"annotations": {"other": "kept"}, "labels": {"mine": "too"}}})
    await cluster.client.patch(f"{path}/status", {"status": {"capacity": {"cpu": "1"}}})

    node = await cluster.client.get(path)
    lease = await cluster.client.get(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}")

    assert "kept" == node["metadata"]["annotations"]["other"]
    assert (NODE, "too") == (node["metadata"]["labels"]["kubernetes.io/hostname"], node["metadata"]["labels"]["mine"])
    assert node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] > 0
    assert (NODE, 40) == (lease["spec"]["holderIdentity"], lease["spec"]["leaseDurationSeconds"])


async def test_forty_pods_at_once_all_run(cluster: Cluster) -> None:
    """And all are gone again."""
    names = [f"many-{index}" for index in range(40)]
    await asyncio.gather(*(cluster.create(a_pod(name)) for name in names))
    await asyncio.gather(*(cluster.phase(name, "Running", 60) for name in names))

    await asyncio.gather(*(cluster.delete(name, 5) for name in names))

    with pytest.raises(ApiError):
        await cluster.pod(names[0])


async def test_long_root_is_refused_with_the_reason(tmp_path: Path) -> None:
    """A Unix socket's path has 107 bytes."""
    config = tmp_path / "kubeconfig"
    config.write_text("{}")
    arguments = ["kubelet", "--kubeconfig", str(config), "--node", "n", "--root", str(tmp_path / ("x" * 100))]
    kubelet = Process(arguments, tmp_path / "log")
    kubelet.start()

    assert 1 == kubelet.wait()
    assert "is too long: its sockets would need" in kubelet.log.read_text()
