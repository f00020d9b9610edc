"""
The plugin as a process, between a kubelet, an API server and a driver.
"""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import grpc
import pytest
from device_plugin_apiserver import ApiServer
from device_plugin_kubelet import RESOURCE, Kubelet
from device_plugin_process import A100, DEADLINE_SECONDS, NODE, T4, PluginProcess, a_node, a_pod, needs_fake_driver

pytestmark = needs_fake_driver

REGISTER, OLD_MARK = "hami.io/node-nvidia-register", "hami.io/node-allocation"
PHASE, TO_ALLOCATE = "hami.io/bind-phase", "hami.io/vgpu-devices-to-allocate"


def is_marked(api: ApiServer) -> bool:
    """Return whether the Node's inventory says that its plugin needs no lock."""
    return '"allocation":"identity"' in api.annotations("nodes", "", NODE).get(REGISTER, "")


async def test_inventory_is_registered_and_announced(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """The kubelet gets three replicas of each device at HAMi's socket name, the Node gets HAMi's JSON."""
    api.put("nodes", a_node())
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        await plugin.until(lambda: REGISTER in api.annotations("nodes", "", NODE))

    assert {f"{uuid}-{n}": "Healthy" for uuid in (A100, T4) for n in range(3)} == kubelet.devices
    assert ("nvidia-gpu.sock", RESOURCE, "v1beta1") == tuple(
        getattr(kubelet.registrations[0], name) for name in ("endpoint", "resource_name", "version")
    )
    assert [
        {
            "id": A100,
            "count": 3,
            "devmem": 40960,
            "devcore": 100,
            "type": "NVIDIA A100-SXM4-40GB",
            "mode": "hami-core",
            "health": True,
            "allocation": "identity",
        },
        {
            "id": T4,
            "index": 1,
            "count": 3,
            "devmem": 16384,
            "devcore": 100,
            "type": "NVIDIA-Tesla T4",
            "mode": "hami-core",
            "health": True,
            "allocation": "identity",
        },
    ] == json.loads(api.annotations("nodes", "", NODE)[REGISTER])


async def test_node_is_written_once_and_again_only_when_someone_removes_it(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """
    Other changes of the Node cause no write.
    """
    api.put("nodes", a_node())
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        await plugin.until(lambda: REGISTER in api.annotations("nodes", "", NODE))
        node = api.objects["nodes", "", NODE]
        api.put("nodes", node | {"spec": {"unschedulable": True}})
        await asyncio.sleep(0.3)
        assert 1 == len(api.patches)

        metadata = node["metadata"] | {"annotations": {}}
        api.put("nodes", node | {"metadata": metadata})
        await plugin.until(lambda: REGISTER in api.annotations("nodes", "", NODE))
        assert 2 == len(api.patches)


async def test_each_container_gets_its_own_share_whatever_the_order(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """Allocate returns a new device name, and PreStartContainer writes the spec of the container that got it."""
    api.put("nodes", a_node())
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        second = await kubelet.allocate("uid-b", "b", "main", f"{A100}-0")
        first = await kubelet.allocate("uid-a", "a", "main", f"{T4}-0")
        api.put("pods", a_pod("a", f"{A100},NVIDIA,1000,10:;", "main=1"))
        api.put("pods", a_pod("b", f"{A100},NVIDIA,2000,20:;", "main=1"))
        await kubelet.pre_start(f"{A100}-0")
        await kubelet.pre_start(f"{T4}-0")

        environments = [plugin.environment(answer) for answer in (first, second)]

    assert [("1000m", "10", A100), ("2000m", "20", A100)] == [
        (env["CUDA_DEVICE_MEMORY_LIMIT_0"], env["CUDA_DEVICE_SM_LIMIT"], env["NVIDIA_VISIBLE_DEVICES"])
        for env in environments
    ]
    assert "void" == first.envs["NVIDIA_VISIBLE_DEVICES"]
    assert first.cdi_devices[0].name != second.cdi_devices[0].name


async def test_directory_is_made_ahead_when_the_pod_is_bound(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """Before the kubelet calls. A Pod without a grant, and one that runs, get none."""
    api.put("nodes", a_node())
    containers = host / "hook/vgpu/containers"
    runs = a_pod("r", f"{A100},NVIDIA,1000,10:;", "main=1")
    api.put("pods", runs | {"status": {"phase": "Running"}})
    api.put("pods", a_pod("w", "", "main=0"))
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        api.put("pods", a_pod("a", f"{A100},NVIDIA,1000,10:;", "main=1"))

        await plugin.until(lambda: len(list(containers.glob("uid-a_main/*"))) == 2)

    assert [containers / "uid-a_main"] == list(containers.iterdir())


async def test_no_directory_is_made_ahead_for_a_container_without_the_library(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """Such as one with a whole device. Its start makes none either."""
    api.put("nodes", a_node())
    api.put("pods", a_pod("whole", f"{T4},NVIDIA,16384,100:;", "main=1"))
    containers = host / "hook/vgpu/containers"
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        api.put("pods", a_pod("part", f"{T4},NVIDIA,16384,99:;", "main=1"))

        await plugin.until((containers / "uid-part_main").exists)

    assert [containers / "uid-part_main"] == list(containers.iterdir())


async def test_start_of_a_known_pod_needs_no_api_server(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """It has ended when the kubelet calls."""
    api.put("nodes", a_node())
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        api.put("pods", a_pod("a", f"{A100},NVIDIA,1000,10:;", "main=1"))
        await plugin.until((host / "hook/vgpu/containers/uid-a_main").exists)
        await api.stop()

        answer = await kubelet.allocate("uid-a", "a", "main", f"{A100}-0")
        await kubelet.pre_start(f"{A100}-0")

        assert "1000m" == plugin.environment(answer)["CUDA_DEVICE_MEMORY_LIMIT_0"]


async def test_pod_is_confirmed_with_one_patch(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """Phase, consumed allocation and label arrive together; a second container writes nothing."""
    api.put("nodes", a_node())
    shares = f"{A100},NVIDIA,1000,10:;;{T4},NVIDIA,2000,20:;"
    api.put("pods", a_pod("p", shares, "a=1", "b", "c=1"))
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        await plugin.until(lambda: len(api.patches) == 1)
        for container, replica in (("a", f"{A100}-0"), ("c", f"{A100}-1")):
            await kubelet.allocate("uid-p", "p", container, replica)
            await kubelet.pre_start(replica)
        await plugin.until(lambda: len(api.patches) > 1)
        await asyncio.sleep(0.2)

    [(key, patch)] = api.patches[1:]
    assert ("pods", "default", "p") == key
    assert {
        "uid": "uid-p",
        "annotations": {PHASE: "success", TO_ALLOCATE: ";;;"},
        "labels": {"hami.io/vgpu-node": NODE},
    } == patch["metadata"]


async def test_init_container_that_shares_replicas_has_a_share_of_its_own(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """The kubelet lists the main container at both calls; each container gets the spec of its own Allocate answer."""
    api.put("nodes", a_node())
    shares = f"{A100},NVIDIA,700,5:;{T4},NVIDIA,2500,50:;"
    api.put("pods", a_pod("p", shares, "main=1", init=("prepare=1",)))
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        init = await kubelet.allocate("uid-p", "p", "prepare", f"{A100}-0", is_listed=False)
        main = await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")
        await kubelet.pre_start(f"{A100}-0")
        at_init = plugin.environment(init)
        await kubelet.pre_start(f"{A100}-0")
        at_main = plugin.environment(main)

    assert ("700m", A100) == (at_init["CUDA_DEVICE_MEMORY_LIMIT_0"], at_init["NVIDIA_VISIBLE_DEVICES"])
    assert ("2500m", T4) == (at_main["CUDA_DEVICE_MEMORY_LIMIT_0"], at_main["NVIDIA_VISIBLE_DEVICES"])


async def test_init_container_that_nobody_lists_is_served(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """If only an init container has devices, PodResources lists no owner, but the checkpoint does."""
    api.put("nodes", a_node())
    api.put("pods", a_pod("p", f"{A100},NVIDIA,700,5:;;", "main", init=("prepare=1",)))
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        answer = await kubelet.allocate("uid-p", "p", "prepare", f"{A100}-0", is_listed=False)
        await kubelet.pre_start(f"{A100}-0")

        assert "700m" == plugin.environment(answer)["CUDA_DEVICE_MEMORY_LIMIT_0"]


async def test_container_without_allocation_is_refused_with_a_sentence(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """The kubelet shows the error in the Pod's events and retries; nothing is left behind."""
    api.put("nodes", a_node())
    pod = a_pod("p", "", "main=1")
    del pod["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"]
    api.put("pods", pod)
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        answer = await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await kubelet.pre_start(f"{A100}-0")
        assert {} == plugin.specs()

        api.put("pods", a_pod("p", f"{A100},NVIDIA,700,5:;", "main=1"))
        for _attempt in range(50):
            with_share = await _pre_start_or_none(kubelet, f"{A100}-0")
            if with_share:
                break
            await asyncio.sleep(0.05)
        assert "700m" == plugin.environment(answer)["CUDA_DEVICE_MEMORY_LIMIT_0"]

    assert (
        "Pod default/p has no annotation hami.io/vgpu-devices-allocated: was it bound by HAMi's scheduler?"
        == refusal.value.details()
    )


@pytest.mark.parametrize(
    ("allocated", "message"),
    [
        pytest.param("GPU-x,NVIDIA,1,1:;", "granted device GPU-x is not one of Node n1", id="foreign device"),
        pytest.param(
            f"{A100},NVIDIA,1,1:{T4},NVIDIA,1,1:;", "grants 2 devices, the kubelet granted 1", id="two for one"
        ),
        pytest.param(f"{A100},NVIDIA,1:;", "fields, not uuid,type,memory,cores", id="undecodable"),
    ],
)
async def test_allocation_that_does_not_fit_is_refused(
    host: Path, api: ApiServer, kubelet: Kubelet, allocated: str, message: str
) -> None:
    """Number and devices are checked before anything is written."""
    api.put("nodes", a_node())
    api.put("pods", a_pod("p", allocated, "main=1"))
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await kubelet.pre_start(f"{A100}-0")

        assert message in (refusal.value.details() or "")
        assert {} == plugin.specs()


async def test_pod_resources_that_are_rate_limited_are_asked_again(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """Many containers that start at once exceed the kubelet's limit for a moment."""
    api.put("nodes", a_node())
    api.put("pods", a_pod("p", f"{A100},NVIDIA,700,5:;", "main=1"))
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        answer = await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")
        kubelet.refused_lists = 3
        await kubelet.pre_start(f"{A100}-0")

        assert "700m" == plugin.environment(answer)["CUDA_DEVICE_MEMORY_LIMIT_0"]


async def test_allocation_edited_after_binding_is_not_believed(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """A user who may edit the Pod cannot enlarge its share by a restart."""
    api.put("nodes", a_node())
    api.put("pods", a_pod("p", f"{A100},NVIDIA,700,5:;", "main=1"))
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        answer = await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")
        await kubelet.pre_start(f"{A100}-0")
        api.put("pods", a_pod("p", f"{A100},NVIDIA,40000,100:;", "main=1"))
        await plugin.until(lambda: "A Pod's allocation was edited, the first one holds" in plugin.events())
        await kubelet.pre_start(f"{A100}-0")

        assert "700m" == plugin.environment(answer)["CUDA_DEVICE_MEMORY_LIMIT_0"]


async def test_specs_go_with_their_pod(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """Also specs that a killed process left for a Pod that is gone; other files stay."""
    api.put("nodes", a_node())
    api.put("pods", a_pod("p", f"{A100},NVIDIA,700,5:;", "main=1"))
    (host / "cdi").mkdir()
    (host / "cdi/hami.io-vgpu_uid-gone_a-1.json").write_text("{}")
    (host / "cdi/nvidia.json").write_text("{}")
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")
        await kubelet.pre_start(f"{A100}-0")
        await plugin.until(lambda: len(list((host / "cdi").iterdir())) == 2)

        api.remove("pods", "default", "p")
        await plugin.until(lambda: [host / "cdi/nvidia.json"] == list((host / "cdi").iterdir()))


async def test_lock_of_an_older_scheduler_is_released_as_soon_as_its_pod_is_bound(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """This Node needs no lock; the lock of a Pod that is not here yet stays."""
    lock = {"hami.io/mutex.lock": "2026-08-21T06:20:39Z,default,p"}
    api.put("nodes", a_node(**lock))
    unbound = a_pod("p", f"{A100},NVIDIA,700,5:;", "main=1")
    del unbound["spec"]["nodeName"]
    api.put("pods", unbound)
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        await plugin.until(lambda: REGISTER in api.annotations("nodes", "", NODE))
        assert lock.items() <= api.annotations("nodes", "", NODE).items()

        api.put("pods", a_pod("p", f"{A100},NVIDIA,700,5:;", "main=1"))
        await plugin.until(lambda: "hami.io/mutex.lock" not in api.annotations("nodes", "", NODE))


async def test_lock_of_a_pod_that_is_gone_is_released(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """The Pod was bound, rejected by the kubelet and deleted while the plugin was down."""
    api.put("nodes", a_node(**{"hami.io/mutex.lock": "2026-08-21T06:20:39Z,default,gone"}))
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.until(lambda: "hami.io/mutex.lock" not in api.annotations("nodes", "", NODE))


async def test_kubelet_restart_is_survived(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """The kubelet removes the plugin's socket; the plugin serves and registers again, and old containers restart."""
    api.put("nodes", a_node())
    api.put("pods", a_pod("p", f"{A100},NVIDIA,700,5:;", "main=1"))
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        answer = await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")
        await kubelet.stop()
        kubelet.devices = {}
        await plugin.readiness(503)
        await kubelet.start()
        await plugin.until(lambda: len(kubelet.registrations) == 2 and len(kubelet.devices) == 6)
        await plugin.readiness(200)
        await kubelet.pre_start(f"{A100}-0")

        assert "700m" == plugin.environment(answer)["CUDA_DEVICE_MEMORY_LIMIT_0"]


async def test_plugin_registers_again_when_the_kubelet_stops_listening(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """The end of an older plugin can make the kubelet drop the younger one's stream."""
    api.put("nodes", a_node())
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        await kubelet.disconnect()
        await plugin.until(lambda: len(kubelet.registrations) == 2)

        await plugin.readiness(200)


async def test_older_instance_that_ends_leaves_the_younger_ones_socket(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """Both use the same name while a DaemonSet replaces one by the other."""
    api.put("nodes", a_node())
    async with PluginProcess(host, api, kubelet) as older:
        await older.serving()
        async with PluginProcess(host, api, kubelet) as younger:
            await younger.until(lambda: len(kubelet.registrations) == 2)
            assert 0 == await older.terminate()
            await asyncio.sleep(1.0)

            assert (kubelet.socket.with_name("nvidia-gpu.sock")).exists()
            assert 6 == len(kubelet.devices)
            assert "Starting a new session" not in younger.events()


async def test_sigterm_takes_the_mark_of_identity_back(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """The next plugin on this Node may need the lock; the inventory stays."""
    api.put("nodes", a_node())
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        await plugin.until(lambda: is_marked(api))

        assert 0 == await plugin.terminate()

    assert [REGISTER] == list(api.annotations("nodes", "", NODE))
    assert [A100, T4] == [device["id"] for device in json.loads(api.annotations("nodes", "", NODE)[REGISTER])]
    assert not is_marked(api)
    assert not kubelet.socket.with_name("nvidia-gpu.sock").exists()


async def test_sighup_reads_the_settings_again(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """A Node's override takes effect in the same process; invalid settings leave the last good ones."""
    api.put("nodes", a_node())
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        (host / "config.json").write_text(json.dumps({"nodeconfig": [{"name": NODE, "devicesplitcount": 5}]}))
        plugin.process.send_signal(signal.SIGHUP)
        await plugin.until(lambda: len(kubelet.devices) == 10)
        (host / "config.json").write_text("{")
        plugin.process.send_signal(signal.SIGHUP)
        await plugin.until(lambda: len(kubelet.registrations) == 3)
        await plugin.until(lambda: "New device config not used, the old one stays" in plugin.events())
        assert 10 == len(kubelet.devices)


async def test_node_without_cdi_follows_the_lock_protocol(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """An old containerd resolves no CDI names: Allocate serves the pending Pod, and the Node has no mark."""
    node = a_node(**{OLD_MARK: "identity", "hami.io/mutex.lock": "2026-08-21T06:20:39Z,default,p"})
    node["status"]["nodeInfo"]["containerRuntimeVersion"] = "containerd://1.7.29"
    api.put("nodes", node)
    api.put("pods", a_pod("p", f"{A100},NVIDIA,700,5:;", "main=1"))
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        await plugin.until(lambda: REGISTER in api.annotations("nodes", "", NODE))
        answer = await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")
        await kubelet.pre_start(f"{A100}-0")

    assert ("700m", A100) == (answer.envs["CUDA_DEVICE_MEMORY_LIMIT_0"], answer.envs["NVIDIA_VISIBLE_DEVICES"])
    assert not answer.cdi_devices
    assert "success" == api.annotations("pods", "default", "p")[PHASE]
    assert {REGISTER, "hami.io/node-nvidia-device-list", "hami.io/node-enforcement"} == api.annotations(
        "nodes", "", NODE
    ).keys()


@pytest.mark.parametrize("left", [f"{T4},NVIDIA,16000,0:;;", f"{A100},NVIDIA,700,5:;{T4},NVIDIA,300,5:;", "", "?,"])
async def test_container_under_the_lock_gets_its_grant_whatever_is_left(
    host: Path, api: ApiServer, kubelet: Kubelet, left: str
) -> None:
    """The author of a Pod writes the annotation that HAMi's plugin serves from, before the first or the second call."""
    api.put("nodes", a_node(**{"hami.io/mutex.lock": "2026-08-21T06:20:39Z,default,p"}))
    pod = a_pod("p", f"{A100},NVIDIA,700,5:;{T4},NVIDIA,300,5:;", "one=1", "two=1")
    api.put("pods", pod)
    async with PluginProcess(host, api, kubelet, "--allocation=lock") as plugin:
        await plugin.serving()
        answers = []
        for container, replica in (("one", f"{A100}-0"), ("two", f"{T4}-0")):
            metadata = api.objects["pods", "default", "p"]["metadata"]
            edited = metadata | {"annotations": metadata["annotations"] | {TO_ALLOCATE: left}}
            api.put("pods", api.objects["pods", "default", "p"] | {"metadata": edited})
            answers.append(await kubelet.allocate("uid-p", "p", container, replica))

    assert [("700m", A100), ("300m", T4)] == [
        (answer.envs["CUDA_DEVICE_MEMORY_LIMIT_0"], answer.envs["NVIDIA_VISIBLE_DEVICES"]) for answer in answers
    ]
    assert "success" == api.annotations("pods", "default", "p")[PHASE]
    assert "hami.io/mutex.lock" not in api.annotations("nodes", "", NODE)
    assert "A Pod's annotation is not what is left of its grant, and the grant counts" in plugin.events()


async def test_grant_under_the_lock_is_the_one_that_the_watch_saw_first(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """Where no admission policy keeps it from being edited."""
    api.put("nodes", a_node(**{"hami.io/mutex.lock": "2026-08-21T06:20:39Z,default,p"}))
    api.put("pods", a_pod("p", f"{A100},NVIDIA,700,5:;", "main=1"))
    async with PluginProcess(host, api, kubelet, "--allocation=lock") as plugin:
        await plugin.serving()
        await until_answer(kubelet, [f"{A100}-0", f"{T4}-0"], [f"{A100}-0"])
        api.put("pods", a_pod("p", f"{T4},NVIDIA,16000,5:;", "main=1"))
        answer = await kubelet.allocate("uid-p", "p", "main", f"{T4}-0")

    assert ("700m", A100) == (answer.envs["CUDA_DEVICE_MEMORY_LIMIT_0"], answer.envs["NVIDIA_VISIBLE_DEVICES"])


@pytest.mark.parametrize("allocation", ["identity", "lock"])
async def test_privileged_container_gets_no_share(
    host: Path, api: ApiServer, kubelet: Kubelet, allocation: str
) -> None:
    """It has every device file of the Node. The webhook rejects it, and a label or a namespace can switch that off."""
    api.put("nodes", a_node(**{"hami.io/mutex.lock": "2026-08-21T06:20:39Z,default,p"}))
    pod = a_pod("p", f"{A100},NVIDIA,700,5:;", "main=1", "beside")
    for container in pod["spec"]["containers"]:
        container["securityContext"] = {"privileged": container["name"] == "main"}
    api.put("pods", pod)
    async with PluginProcess(host, api, kubelet, f"--allocation={allocation}") as plugin:
        await plugin.serving()
        with pytest.raises(grpc.aio.AioRpcError, match="Pod default/p, container main is privileged"):
            await started(kubelet, "p", f"{A100}-0")

    assert not plugin.specs()


async def test_variables_of_a_pod_do_not_win_under_the_lock(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """The kubelet applies them over an answer's, the runtime applies a CDI device's over both."""
    api.put("nodes", a_node(**{"hami.io/mutex.lock": "2026-08-21T06:20:39Z,default,p"}))
    api.put("pods", a_pod("p", f"{A100},NVIDIA,700,5:;", "main=1"))
    async with PluginProcess(host, api, kubelet, "--allocation=lock") as plugin:
        await plugin.serving()
        answer = await started(kubelet, "p", f"{A100}-0")
        (device,) = answer.cdi_devices
        edits = plugin.specs()[device.name]

    variables = dict(entry.split("=", 1) for entry in edits["env"])
    assert dict(answer.envs) == variables
    assert ("700m", A100) == (variables["CUDA_DEVICE_MEMORY_LIMIT_0"], variables["NVIDIA_VISIBLE_DEVICES"])
    assert f"{host}/hook/vgpu/limits" in {
        mount["containerPath"] for mount in edits["mounts"] if "ro" in mount["options"]
    }


async def test_answer_under_the_lock_is_enough_for_a_runtime_without_cdi(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """It mounts the limits file's directory below the region's, where nothing else may have that name, at any start."""
    api.put("nodes", a_node(**{"hami.io/mutex.lock": "2026-08-21T06:20:39Z,default,p"}))
    api.put("pods", a_pod("p", f"{A100},NVIDIA,700,5:;", "main=1"))
    async with PluginProcess(host, api, kubelet, "--allocation=lock") as plugin:
        await plugin.serving()
        answer = await started(kubelet, "p", f"{A100}-0")
        await kubelet.pre_start(f"{A100}-0")
        (device,) = answer.cdi_devices
        edits = plugin.specs()[device.name]

    given = {each.container_path: each.host_path for each in answer.mounts}
    assert given.items() <= {each["containerPath"]: each["hostPath"] for each in edits["mounts"]}.items()
    region, limits = (Path(given[f"{host}/hook/vgpu{name}"]) for name in ("", "/limits"))
    assert not (region / "limits").exists()
    assert (limits / "limits").is_file()


async def test_limits_of_a_container_are_in_a_file_that_it_cannot_change_without_cdi(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """The library reads it before the Pod's variables. It goes with the Pod."""
    node = a_node(**{"hami.io/mutex.lock": "2026-08-21T06:20:39Z,default,p"})
    node["status"]["nodeInfo"]["containerRuntimeVersion"] = "containerd://1.7.29"
    api.put("nodes", node)
    api.put("pods", a_pod("p", f"{A100},NVIDIA,700,5:;", "main=1"))
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        answer = await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")
        (mount,) = [each for each in answer.mounts if each.container_path.endswith("/vgpu/limits")]
        limits = Path(mount.host_path, "limits").read_text()
        api.remove("pods", "default", "p")
        await plugin.until(lambda: not Path(mount.host_path).exists())

    assert not answer.cdi_devices
    assert mount.read_only
    assert not mount.host_path.startswith(f"{host}/hook/vgpu/containers/uid-p_main")
    assert f"{A100} {700 << 20} 5" in limits
    assert "CUDA_DEVICE_MEMORY_SHARED_CACHE" in limits


@pytest.mark.parametrize("allocation", ["identity", "lock"])
async def test_start_above_the_capacity_of_a_device_is_refused(
    host: Path, api: ApiServer, kubelet: Kubelet, allocation: str
) -> None:
    """The Pod that starts later waits or fails; one that has started may restart, also under a new process."""
    api.put("nodes", a_node(**{"hami.io/mutex.lock": "2026-08-21T06:20:39Z,default,first"}))
    for name, allocated in (("first", f"{A100},NVIDIA,30000,0:;"), ("second", f"{A100},NVIDIA,20000,0:;")):
        api.put("pods", a_pod(name, allocated, "main=1"))
    async with PluginProcess(host, api, kubelet, f"--allocation={allocation}") as plugin:
        await plugin.serving()
        await started(kubelet, "first", f"{A100}-0")
        await plugin.kill()
    async with PluginProcess(host, api, kubelet, f"--allocation={allocation}") as plugin:
        await plugin.until(lambda: len(kubelet.registrations) > 1)
        api.put("nodes", a_node(**{"hami.io/mutex.lock": "2026-08-21T06:20:39Z,default,second"}))
        with pytest.raises(grpc.aio.AioRpcError, match="has 40960 MiB of memory, of which 30000 are taken"):
            await started(kubelet, "second", f"{A100}-1")
        await kubelet.pre_start(f"{A100}-0")
        _, metrics = await plugin.get("/metrics")
        await plugin.until(lambda: bool(api.events("DeviceAboveCapacity")))

    assert "hami_device_plugin_starts_refused_total 1.0" in metrics
    assert ["second"] == [item["involvedObject"]["name"] for item in api.events("DeviceAboveCapacity")]


async def test_node_that_registers_after_the_plugin_started_is_waited_for(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """Its versions decide the mode, so nothing is offered before."""
    async with PluginProcess(host, api, kubelet) as plugin:
        await asyncio.sleep(1.0)
        assert [] == kubelet.registrations
        api.put("nodes", a_node())
        await plugin.serving()
        await plugin.until(lambda: is_marked(api))


async def test_preferred_replicas_are_of_the_device_that_waits(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """So that tools which read the kubelet's IDs see the device that is used."""
    api.put("nodes", a_node())
    api.put("pods", a_pod("p", f"{T4},NVIDIA,700,5:;", "main=1"))
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        chosen = await kubelet.preferred([f"{A100}-0", f"{T4}-2"], 1)

    assert [f"{T4}-2"] == chosen


@pytest.mark.parametrize("allocation", ["identity", "lock"])
async def test_policy_prefers_replicas_if_no_annotation_does(
    host: Path, api: ApiServer, kubelet: Kubelet, allocation: str
) -> None:
    """A Pod that waits still decides; its device is not the one that the policy takes."""
    api.put("nodes", a_node())
    free = [f"{uuid}-{number}" for uuid in (A100, T4) for number in range(3)]
    flags = (f"--allocation={allocation}", "--shared-devices-allocation-policy=packed")
    async with PluginProcess(host, api, kubelet, *flags) as plugin:
        await plugin.serving()
        by_policy = await kubelet.preferred(free, 2)
        api.put("pods", a_pod("p", f"{T4},NVIDIA,700,5:;", "main=1"))
        await until_answer(kubelet, free, [f"{T4}-0"])

    assert [f"{A100}-0", f"{A100}-1"] == by_policy


async def test_device_with_a_critical_error_is_unhealthy_for_kubelet_and_scheduler(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """All its replicas at once; an error of a program changes nothing."""
    api.put("nodes", a_node())
    (host / "hardware").mkdir()
    (host / "hardware/xid").write_text("")
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        await plugin.until(lambda: REGISTER in api.annotations("nodes", "", NODE))
        await asyncio.sleep(0.3)
        (host / "hardware/xid").write_text(f"{A100} 31\n{T4} 79\n")
        await plugin.until(lambda: "Unhealthy" in kubelet.devices.values())
        await plugin.until(lambda: _healthy(api) == {A100})
        _, metrics = await plugin.get("/metrics")

    assert {f"{T4}-{n}" for n in range(3)} == {id_ for id_, health in kubelet.devices.items() if health == "Unhealthy"}
    assert 'hami_device_plugin_devices{health="unhealthy"} 1.0' in metrics


async def test_disabled_health_check_lets_errors_pass(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """HAMi's switch is DP_DISABLE_HEALTHCHECKS."""
    api.put("nodes", a_node())
    async with PluginProcess(host, api, kubelet, DP_DISABLE_HEALTHCHECKS="all") as plugin:
        await plugin.serving()

        assert "Health is not watched: DP_DISABLE_HEALTHCHECKS switches it off" in plugin.events()


@pytest.mark.parametrize("value", ["true", "false"])
async def test_driver_that_is_missing_ends_the_process_or_is_waited_for(
    value: str, host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """As --fail-on-init-error says, like in HAMi."""
    api.put("nodes", a_node())
    async with PluginProcess(host, api, kubelet, f"--fail-on-init-error={value}", LD_LIBRARY_PATH="/nowhere") as plugin:
        if value == "true":
            async with asyncio.timeout(20):
                assert 1 == await plugin.process.wait()
        else:
            await plugin.until(lambda: "Waiting for the driver" in plugin.events())
            status, text = await plugin.get("/readyz")
            assert (503, True) == (status, text.startswith("libnvidia-ml.so.1 cannot be used"))


async def test_version_and_metrics_are_served(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """For the chart's probes and for Prometheus."""
    api.put("nodes", a_node())
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        status, metrics = await plugin.get("/metrics")
        _, version = await plugin.get("/version")

    assert 200 == status
    assert 'hami_device_plugin_devices{health="healthy"} 2.0' in metrics
    assert 'hami_device_plugin_allocation_mode{mode="identity"} 1.0' in metrics
    assert "hami-device-plugin" == json.loads(version)["name"]


def _healthy(api: ApiServer) -> set[str]:
    devices = json.loads(api.annotations("nodes", "", NODE)[REGISTER])
    return {device["id"] for device in devices if device.get("health")}


async def _pre_start_or_none(kubelet: Kubelet, replica: str) -> bool:
    try:
        await kubelet.pre_start(replica)
    except grpc.aio.AioRpcError:
        return False
    return True


async def started(kubelet: Kubelet, pod: str, replica: str) -> Any:
    """Start the container `main` of a Pod as the kubelet does, and return the answer of Allocate."""
    answer = await kubelet.allocate(f"uid-{pod}", pod, "main", replica)
    await kubelet.pre_start(replica)
    return answer


async def until_answer(kubelet: Kubelet, available: list[str], expected: list[str]) -> None:
    """Wait until *expected* is preferred for a container of as many devices."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while expected != await kubelet.preferred(available, len(expected)):  # noqa: ASYNC110 - the watch is the plugin's
            await asyncio.sleep(0.02)
