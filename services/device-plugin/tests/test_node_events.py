"""
The Node's Events.
"""

import asyncio
from pathlib import Path

from device_plugin_apiserver import ApiServer
from device_plugin_builders import VENDOR
from device_plugin_process import NODE, a_node

from hami_device_plugin.adapters.kube import NodeKube
from hamicommon.runtime.api.kube import Kube


async def test_repeated_warning_counts_in_one_event(host: Path, api: ApiServer) -> None:
    """The latest message is shown; after an hour the count starts again."""
    node = a_node()
    node["metadata"]["uid"] = "uid-n1"
    api.put("nodes", node)
    async with await Kube.connect(str(api.kubeconfig(host / "kubeconfig")), "test") as kube:
        view = NodeKube(kube, NODE, VENDOR)
        watch = asyncio.create_task(view.run())
        view.report("SomethingBroke", "first", is_warning=True)
        view.report("SomethingBroke", "second", is_warning=True)
        view.report("SomethingElse", "other", is_warning=True)
        await view.send_reports()
        [event] = api.events("SomethingBroke")

        assert (2, "second", "Warning", "default") == (
            event["count"],
            event["message"],
            event["type"],
            event["metadata"]["namespace"],
        )
        version = view.node["metadata"]["resourceVersion"]
        expected = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "uid-n1", "resourceVersion": version}
        assert expected == event["involvedObject"]
        assert {"component": "hami-device-plugin"} == event["source"]

        api.put("events", event | {"firstTimestamp": "2026-01-01T00:00:00Z"})
        view.report("SomethingBroke", "third", is_warning=True)
        await view.send_reports()
        [event] = api.events("SomethingBroke")

        assert (1, "third") == (event["count"], event["message"])
        assert event["firstTimestamp"] == event["lastTimestamp"]
        watch.cancel()
