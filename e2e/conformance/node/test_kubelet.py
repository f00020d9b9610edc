"""
kubelet, Pods: order of containers, restarts, deletion, statuses and logs.
"""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from conformance.peers.clusters import NODE, Peer
from conformance.peers.objects import Api
from conformance.peers.plugins import SECONDS, Host, host
from hamicommon.model import Object
from minicluster.client import ApiError

UNTIL_TERM = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"


@pytest_asyncio.fixture(loop_scope="session")
async def node(peer: Peer, api: Api) -> AsyncIterator[Host]:
    """Yield the Node."""
    async with host(peer, api) as found:
        yield found


def states(pod: Object, group: str = "containerStatuses") -> dict[str, Object]:
    """Return the container statuses by name."""
    return {status["name"]: status for status in pod["status"][group]}


async def test_running_pod(node: Host) -> None:
    """A running Pod is ready, and has conditions, addresses, a start time and a container with an id."""
    await node.create("p")

    status = (await node.phase("p", "Running"))["status"]

    conditions = {condition["type"]: condition["status"] for condition in status["conditions"]}
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    assert dict.fromkeys(kinds, "True") == conditions
    assert all(status[field] for field in ("podIP", "hostIP", "startTime", "podIPs", "hostIPs"))
    assert "BestEffort" == status["qosClass"]
    container = status["containerStatuses"][0]
    assert (True, True, 0, "main") == tuple(container[key] for key in ("ready", "started", "restartCount", "name"))
    assert "startedAt" in container["state"]["running"]
    assert "://" in container["containerID"]


@pytest.mark.parametrize(("code", "phase", "reason"), [(0, "Succeeded", "Completed"), (3, "Failed", "Error")])
async def test_exit_code(node: Host, code: int, phase: str, reason: str) -> None:
    """The exit codes of its containers decide the phase of a Pod with restartPolicy Never."""
    await node.create("p", node.container(script=f"exit {code}"), restartPolicy="Never")

    pod = await node.phase("p", phase)

    ended = states(pod)["main"]["state"]["terminated"]
    assert (code, reason) == (ended["exitCode"], ended["reason"])
    conditions = {each["type"]: (each["status"], each.get("reason")) for each in pod["status"]["conditions"]}
    why = "PodCompleted" if code == 0 else "PodFailed"
    assert (("False", why), ("False", why)) == (conditions["Ready"], conditions["ContainersReady"])


async def test_init_containers(node: Host) -> None:
    """Init containers run to their end one after the other, before the others, and share the Pod's volumes."""
    mount: Object = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}], "args": ["/shared/order"]}
    inits = [node.container(name, f"echo {name} >> $0", **mount) for name in ("one", "two")]
    main = node.container(script="cat $0; exec sleep 1000", **mount)
    await node.create("p", main, initContainers=inits, volumes=[{"name": "shared", "emptyDir": {}}])

    pod = await node.phase("p", "Running")

    assert "one\ntwo\n" == await node.says("p", "two")
    reasons = [one["state"]["terminated"]["reason"] for one in states(pod, "initContainerStatuses").values()]
    assert ["Completed", "Completed"] == reasons


async def test_while_initializing(node: Host) -> None:
    """While an init container runs, the Pod is Pending and not initialized, and names the incomplete containers."""
    await node.create("p", initContainers=[node.container("init")])

    pod = await node.until("p", lambda status: "running" in status["initContainerStatuses"][0]["state"])

    conditions = {each["type"]: each for each in pod["status"]["conditions"]}
    told = tuple(conditions["Initialized"].get(key) for key in ("status", "reason", "message"))
    assert ("False", "ContainersNotInitialized", "containers with incomplete status: [init]") == told
    assert {"waiting": {"reason": "PodInitializing"}} == states(pod)["main"]["state"]
    assert "Pending" == pod["status"]["phase"]


async def test_failing_init_container(node: Host) -> None:
    """A failing init container fails a Pod with restartPolicy Never, and the other containers do not start."""
    await node.create("p", initContainers=[node.container("init", "exit 1")], restartPolicy="Never")

    pod = await node.phase("p", "Failed")

    assert {"waiting": {"reason": "PodInitializing"}} == states(pod)["main"]["state"]


async def test_sidecar(node: Host) -> None:
    """A sidecar starts before the app containers, ends after them, and does not keep the Pod from completing."""
    sidecar = node.container("side", UNTIL_TERM, restartPolicy="Always")
    main = node.container(script="sleep 1")
    await node.create("p", main, initContainers=[sidecar], restartPolicy="Never")

    pod = await node.phase("p", "Succeeded")

    assert "up\nbye\n" == await node.log("p", "side")
    side, app = states(pod, "initContainerStatuses")["side"]["state"], states(pod)["main"]["state"]
    assert side["terminated"]["finishedAt"] >= app["terminated"]["finishedAt"]


async def test_crash_loop(node: Host) -> None:
    """A failing container is restarted at once the first time, and then waits in CrashLoopBackOff."""
    made = await node.create("p", node.container(script="exit 7"))

    def backs_off(status: Object) -> bool:
        state = status["containerStatuses"][0]["state"]
        return bool(state.get("waiting", {}).get("reason") == "CrashLoopBackOff")

    state = states(await node.until("p", backs_off))["main"]

    assert state["restartCount"] >= 1
    assert 7 == state["lastState"]["terminated"]["exitCode"]
    message = state["state"]["waiting"]["message"]
    who = f"container=main pod=p_{node.api.namespace}({made['metadata']['uid']})"
    assert message.startswith("back-off ")
    assert message.endswith(f" restarting failed {who}")


async def test_restart_on_failure(node: Host) -> None:
    """With restartPolicy OnFailure, a container that succeeds at its second attempt is not restarted."""
    mount: Object = {"volumeMounts": [{"name": "v", "mountPath": "/v"}], "args": ["/v/tried"]}
    main = node.container(script="test -e $0 && exit 0; touch $0; exit 1", **mount)
    await node.create("p", main, volumes=[{"name": "v", "emptyDir": {}}], restartPolicy="OnFailure")

    assert 1 == states(await node.phase("p", "Succeeded"))["main"]["restartCount"]


async def test_command_that_does_not_exist(node: Host) -> None:
    """A command that is not in the image is a StartError with code 128 and the command's name."""
    main = {**node.container(), "command": ["no-such"]}
    await node.create("p", main, restartPolicy="Never")

    ended = states(await node.phase("p", "Failed"))["main"]["state"]["terminated"]

    assert (128, "StartError") == (ended["exitCode"], ended["reason"])
    assert '"no-such": executable file not found' in ended["message"]


async def test_image_without_command(node: Host) -> None:
    """A container without a command runs the command of its image."""
    main = node.container()
    del main["command"]
    await node.create("p", main)

    assert states(await node.phase("p", "Running"))["main"]["ready"]


async def test_environment(node: Host) -> None:
    """The environment comes from values, expansions, fields, resources, ConfigMaps and Secrets, and later ones win."""
    api = node.api
    await api.create(api.config_maps, {"metadata": {"name": "settings"}, "data": {"A": "map", "B": "map"}})
    await api.create(f"{api.place}/secrets", {"metadata": {"name": "hidden"}, "data": {"key": "czNjcmV0"}})
    env = [
        {"name": "B", "value": "own"},
        {"name": "C", "value": "$(A)-$(B)-$(NONE)-$$(A)"},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "hidden", "key": "key"}}},
        {"name": "NO", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "x", "optional": True}}},
    ]
    main = node.container(env=env, envFrom=[{"configMapRef": {"name": "settings"}}])
    main |= {"command": ["sh", "-c"], "args": ['echo "$A $B $C $POD $NODE $CPU $KEY ${NO-unset} $(POD)"']}
    main["resources"] = {"limits": {"cpu": "500m"}}
    await node.create("p", main, restartPolicy="Never")

    await node.phase("p", "Succeeded")

    assert f"map own $(A)-own-$(NONE)-$(A) p {NODE} 500 s3cret unset p\n".replace(
        "$(A)-own-", "map-own-", 1
    ) == await node.log("p")


async def test_annotation_as_environment(node: Host) -> None:
    """An annotation in a container's environment has its value at the start of the container."""
    field = {"fieldRef": {"fieldPath": "metadata.annotations['a.b/c']"}}
    main = node.container(script='echo "$A"', env=[{"name": "A", "valueFrom": field}])
    await node.create("p", main, restartPolicy="Never", metadata={"annotations": {"a.b/c": "said"}})

    await node.phase("p", "Succeeded")

    assert "said\n" == await node.log("p")


async def test_volumes(node: Host) -> None:
    """ConfigMaps, one of their keys by subPath, and the downward API are files in the container."""
    api = node.api
    await api.create(api.config_maps, {"metadata": {"name": "files"}, "data": {"a.txt": "AA", "b.txt": "BB"}})
    volumes = [
        {"name": "files", "configMap": {"name": "files"}},
        {"name": "down", "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]
    mounts = [
        {"name": "files", "mountPath": "/etc/test"},
        {"name": "files", "mountPath": "/etc/b", "subPath": "b.txt"},
        {"name": "down", "mountPath": "/etc/down"},
    ]
    paths = ["/etc/test/a.txt", "/etc/b", "/etc/down/n"]
    main = node.container(script='cat "$0" "$@"', args=paths, volumeMounts=mounts)
    await node.create("p", main, volumes=volumes, restartPolicy="Never")

    await node.phase("p", "Succeeded")

    assert "AABBp" == await node.log("p")


async def test_host_path(node: Host) -> None:
    """A hostPath of type DirectoryOrCreate is created on the Node, and its files stay."""
    directory = node.peer.shared / node.api.namespace
    volumes = [{"name": "v", "hostPath": {"path": str(directory), "type": "DirectoryOrCreate"}}]
    mounts = [{"name": "v", "mountPath": "/etc/host"}]
    main = node.container(script="echo kept > $0", args=["/etc/host/file"], volumeMounts=mounts)
    await node.create("p", main, volumes=volumes, restartPolicy="Never")

    await node.phase("p", "Succeeded")

    assert "kept\n" == (directory / "file").read_text()


async def test_missing_config_map(node: Host) -> None:
    """A variable from a missing ConfigMap keeps the container waiting until the ConfigMap exists."""
    env = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "a"}}}]
    await node.create("p", node.container(script="echo got $A; exec sleep 1000", env=env))
    assert 'configmap "late" not found' == await node.waits("p", "CreateContainerConfigError")

    await node.api.create(node.api.config_maps, {"metadata": {"name": "late"}, "data": {"a": "it"}})

    await node.says("p", "got it")


async def test_graceful_deletion(node: Host) -> None:
    """The containers of a deleted Pod get SIGTERM, and the Pod is gone as soon as they have ended."""
    asked = node.peer.shared / f"{node.api.namespace}-asked"
    volumes = [{"name": "v", "hostPath": {"path": str(node.peer.shared)}}]
    mounts = [{"name": "v", "mountPath": "/etc/host"}]
    script = "trap 'echo asked > $0; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    main = node.container(script=script, args=[f"/etc/host/{asked.name}"], volumeMounts=mounts)
    await node.create("p", main, volumes=volumes)
    await node.says("p", "up")
    began = time.monotonic()

    await node.api.delete(f"{node.api.pods}/p", grace_seconds=40)
    await node.gone("p")

    assert time.monotonic() - began < 30
    assert "asked\n" == asked.read_text()


async def test_last_status_of_a_deleted_pod(node: Host) -> None:
    """The last status of a deleted Pod says that its containers have ended."""
    made = await node.create("p", node.container(script=UNTIL_TERM))
    await node.says("p", "up")
    seen: list[Object] = []

    async def watch() -> None:
        async for kind, pod in node.api.watch(node.api.pods, made["metadata"]["resourceVersion"]):
            seen.append(pod)
            if kind == "DELETED":
                return

    watching = asyncio.create_task(watch())
    await node.api.delete(f"{node.api.pods}/p", grace_seconds=20)
    await asyncio.wait_for(watching, SECONDS)

    last = seen[-1]
    assert ("Succeeded", 0) == (last["status"]["phase"], last["metadata"]["deletionGracePeriodSeconds"])
    assert 0 == states(last)["main"]["state"]["terminated"]["exitCode"]


async def test_stubborn_container(node: Host) -> None:
    """A container that ignores SIGTERM is killed after the grace period."""
    await node.create("p", node.container(script="trap '' TERM; echo up; while :; do sleep 0.05; done"))
    await node.says("p", "up")
    began = time.monotonic()

    await node.api.delete(f"{node.api.pods}/p", grace_seconds=2)
    await node.gone("p")

    assert 2 <= time.monotonic() - began < 30


async def test_forced_deletion(node: Host) -> None:
    """A Pod deleted with grace 0 is gone at once, and a new Pod may have its name."""
    first = await node.create("p")
    await node.phase("p", "Running")

    await node.api.delete(f"{node.api.pods}/p", grace_seconds=0)
    with pytest.raises(ApiError):
        await node.api.pod("p")
    second = await node.create("p")

    running = await node.phase("p", "Running")
    assert first["metadata"]["uid"] != second["metadata"]["uid"] == running["metadata"]["uid"]


async def test_too_much_cpu(node: Host) -> None:
    """A Pod bound to a Node with too little cpu fails with OutOfcpu."""
    main = node.container()
    main["resources"] = {"requests": {"cpu": "1000"}, "limits": {"cpu": "1000"}}
    await node.create("p", main)

    status = (await node.phase("p", "Failed"))["status"]

    assert "OutOfcpu" == status["reason"]
    text = "Pod was rejected: Node didn't have enough resource: cpu, requested: 1000000, used: "
    assert status["message"].startswith(text)


async def test_logs(node: Host) -> None:
    """The API server returns a log, its last lines, and the log of the previous attempt."""
    mount: Object = {"volumeMounts": [{"name": "v", "mountPath": "/v"}], "args": ["/v/tried"]}
    script = "test -e $0 && echo again && exec sleep 1000; touch $0; for i in 1 2 3; do echo $i; done; exit 1"
    await node.create("p", node.container(script=script, **mount), volumes=[{"name": "v", "emptyDir": {}}])

    await node.says("p", "again")
    await node.until("p", lambda status: status["containerStatuses"][0].get("lastState", {}).get("terminated"))

    logs = [await node.log("p"), await node.log("p", previous="true")]
    assert ["again\n", "1\n2\n3\n"] == logs
    assert "2\n3\n" == await node.log("p", previous="true", tailLines="2")


async def test_node_object(node: Host) -> None:
    """The kubelet writes labels, addresses, port and Lease of its Node, and keeps what others wrote."""
    path = f"/api/v1/nodes/{NODE}"
    await node.api.patch(path, {"metadata": {"annotations": {"x.y/other": "kept"}, "labels": {"mine": "too"}}})
    await node.api.patch(f"{path}/status", {"status": {"capacity": {"x.y/z": "1"}}})

    found = await node.api.get(path)
    lease = await node.api.get(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}")

    assert "kept" == found["metadata"]["annotations"]["x.y/other"]
    labels = found["metadata"]["labels"]
    assert (NODE, "too", "linux") == (
        labels["kubernetes.io/hostname"],
        labels["mine"],
        labels["kubernetes.io/os"],
    )
    assert found["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] > 0
    assert {"InternalIP", "Hostname"} <= {address["type"] for address in found["status"]["addresses"]}
    ready = [condition for condition in found["status"]["conditions"] if condition["type"] == "Ready"]
    assert ["True"] == [condition["status"] for condition in ready]
    assert NODE == lease["spec"]["holderIdentity"]


async def test_many_pods(node: Host) -> None:
    """Eight Pods at once all run, and all can be deleted."""
    names = [f"p{index}" for index in range(8)]
    await asyncio.gather(*(node.create(name) for name in names))
    await asyncio.gather(*(node.phase(name, "Running") for name in names))

    await asyncio.gather(*(node.api.delete(f"{node.api.pods}/{name}", grace_seconds=1) for name in names))

    await asyncio.gather(*(node.gone(name) for name in names))
