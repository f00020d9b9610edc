"""
Runtime: CDI devices that a plugin names.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest_asyncio

from conformance.peers.clusters import Peer
from conformance.peers.objects import Api
from conformance.peers.plugins import SECONDS, Host, host
from hamicommon.runtime.kubelet_api._proto import deviceplugin_v1beta1_pb2 as api
from testbed.waiting import eventually

SAY = "echo $VALUE; exec sleep 1000"


@pytest_asyncio.fixture(loop_scope="session")
async def node(peer: Peer, api: Api) -> AsyncIterator[Host]:
    """Yield the Node."""
    async with host(peer, api) as found:
        yield found


def naming(*devices: str, **more: Any) -> Callable[[list[str]], api.ContainerAllocateResponse]:
    """Return an answer to Allocate that names CDI devices."""
    cdi_devices = [api.CDIDevice(name=device) for device in devices]
    return lambda ids: api.ContainerAllocateResponse(cdi_devices=cdi_devices, **more)


async def test_spec_written_in_time(node: Host) -> None:
    """The container gets the spec that PreStartContainer writes, although there was another before."""
    plugin = await node.plugin()
    plugin.respond = naming(node.cdi_device())
    node.write_cdi(env=["VALUE=stale"])
    plugin.before_start = lambda ids: node.write_cdi(env=["VALUE=fresh"])
    await node.create("p", node.container(script=SAY, devices=1))

    assert "fresh\n" == await node.says("p", "\n")


async def test_every_start_reads_the_spec(node: Host) -> None:
    """A restarted container gets the spec that exists at its restart."""
    plugin = await node.plugin()
    plugin.respond = naming(node.cdi_device())
    plugin.before_start = lambda ids: node.write_cdi(env=[f"VALUE=start {len(plugin.starts)}"])
    await node.create(
        "p", node.container(script='echo "$VALUE"; test "$VALUE" = "start 2" && exec sleep 1000', devices=1)
    )
    await node.until("p", lambda status: status["containerStatuses"][0]["restartCount"] == 1)

    assert "start 2\n" == await node.says("p", "\n")
    assert "start 1\n" == await node.log("p", previous="true")


async def test_missing_spec(node: Host) -> None:
    """A missing CDI spec is a CreateContainerError with the runtime's text, and PreStartContainer is retried."""
    plugin = await node.plugin()
    plugin.respond = naming(node.cdi_device())
    await node.create("p", node.container(script=SAY, devices=1))
    message = await node.waits("p", "CreateContainerError")

    node.write_cdi(env=["VALUE=there"])

    assert "there\n" == await node.says("p", "\n")
    assert f"CDI device injection failed: unresolvable CDI devices {node.cdi_device()}" in message
    assert len(plugin.starts) > 1


async def test_missing_device(node: Host) -> None:
    """If one of two CDI devices is in no spec, the error names only that one."""
    plugin = await node.plugin()
    node.write_cdi(env=["VALUE=1"])
    plugin.respond = naming(node.cdi_device(), node.cdi_device("other"))
    await node.create("p", node.container(script=SAY, devices=1))

    message = await node.waits("p", "CreateContainerError")

    assert message.endswith(f"unresolvable CDI devices {node.cdi_device('other')}")


async def test_mounts_of_a_spec(node: Host) -> None:
    """A spec's mounts are in the container, and a read-only one cannot be written."""
    (node.peer.shared / "cdi").mkdir(exist_ok=True)
    (node.peer.shared / "cdi/file").write_text("mounted\n")
    plugin = await node.plugin()
    plugin.respond = naming(node.cdi_device())
    mounts = [
        {"hostPath": str(node.peer.shared / "cdi"), "containerPath": f"/etc/{name}", "options": [mode, "rbind"]}
        for name, mode in (("writable", "rw"), ("fixed", "ro"))
    ]
    node.write_cdi(mounts=mounts)
    script = 'cat "$0/file"; echo new > "$0/new"; (echo no > "$1/no") 2>/dev/null || echo refused'
    main = node.container(script=script, args=["/etc/writable", "/etc/fixed"], devices=1)
    await node.create("p", main, restartPolicy="Never")

    await node.phase("p", "Succeeded")

    assert "mounted\nrefused\n" == await node.log("p")
    assert "new\n" == (node.peer.shared / "cdi/new").read_text()


async def test_precedence_of_environment(node: Host) -> None:
    """A variable in the CDI spec overrides those of image, plugin and Pod."""
    plugin = await node.plugin()
    plugin.respond = naming(node.cdi_device(), envs={"A": "plugin", "B": "plugin", "C": "plugin"})
    node.write_cdi(env=["A=spec", "B=spec"])
    env = [{"name": "A", "value": "pod"}, {"name": "C", "value": "pod"}]
    main = node.container(script='echo "$A $B $C"', devices=1, env=env)
    await node.create("p", main, restartPolicy="Never")

    await node.phase("p", "Succeeded")

    assert "spec spec pod\n" == await node.log("p")


async def test_device_by_annotation(node: Host) -> None:
    """A CDI device that Allocate returns in an annotation is injected too."""
    plugin = await node.plugin()
    node.write_cdi(env=["VALUE=annotated"])
    plugin.respond = lambda ids: api.ContainerAllocateResponse(
        annotations={"cdi.k8s.io/conformance": node.cdi_device()}
    )
    await node.create("p", node.container(script=SAY, devices=1))

    assert "annotated\n" == await node.says("p", "\n")


async def test_removed_spec(node: Host) -> None:
    """A removed spec is no longer used."""
    plugin = await node.plugin()
    plugin.respond = naming(node.cdi_device())
    node.write_cdi(env=["VALUE=1"])
    await node.create("first", node.container(script=SAY, devices=1))
    await node.phase("first", "Running")

    node.cdi_file.unlink()
    await node.create("second", node.container(script=SAY, devices=1))

    assert "unresolvable CDI devices" in await node.waits("second", "CreateContainerError")


async def test_foreign_file(node: Host) -> None:
    """A file with another suffix and an invalid spec do not affect other specs."""
    plugin = await node.plugin()
    plugin.respond = naming(node.cdi_device())
    foreign = [node.cdi_file.with_suffix(ending) for ending in (".tmp", ".bad.json")]
    node.write_cdi(env=["VALUE=fine"])
    try:
        for path in foreign:
            path.write_text("{")
        await node.create("p", node.container(script=SAY, devices=1))

        assert "fine\n" == await node.says("p", "\n")
        assert await eventually(lambda: len(plugin.starts) == 1, seconds=SECONDS)
    finally:
        for path in foreign:
            path.unlink()
