"""
The Node's Events.
"""

from pathlib import Path

from device_plugin_apiserver import ApiServer
from device_plugin_builders import RESOURCE, VENDOR
from device_plugin_process import NODE, a_node

from hami_device_plugin.adapters.kube import NodeKube
from hamicommon.runtime.api.kube import Kube


async def test_repeated_warning_counts_in_one_event(host: Path, api: ApiServer) -> None:
    """The latest message is shown; after an hour the count starts again."""
    async with await Kube.connect(str(api.kubeconfig(host / "kubeconfig")), "test") as kube:
        view = NodeKube(kube, NODE, RESOURCE, VENDOR)
        view.node = a_node()
        view.node["metadata"]["uid"] = "uid-n1"
        await view.warn("SomethingBroke", "first")
        await view.warn("SomethingBroke", "second")
        await view.warn("SomethingElse", "other")
        [event] = api.events("SomethingBroke")

        assert (2, "second", "Warning", "default") == (
            event["count"],
            event["message"],
            event["type"],
            event["metadata"]["namespace"],
        )
        assert {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "uid-n1"} == event["involvedObject"]
        assert {"component": "hami-device-plugin"} == event["source"]

        api.put("events", event | {"firstTimestamp": "2026-01-01T00:00:00Z"})
        await view.warn("SomethingBroke", "third")
        [event] = api.events("SomethingBroke")

        assert (1, "third") == (event["count"], event["message"])
        assert event["firstTimestamp"] == event["lastTimestamp"]
