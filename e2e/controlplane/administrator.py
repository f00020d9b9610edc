"""
Blocking requests to the API server, as administrator.

Must never hold state except the path of the kubeconfig. Neighbour: `minicluster.client` speaks the protocol.
"""

import asyncio
import datetime
from pathlib import Path
from typing import Any

from hamicommon.model import Object
from minicluster.client import ApiError, Client

RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": "nvidia",
}
_LONG_AGO = datetime.datetime.min.replace(tzinfo=datetime.UTC)


class Administrator:
    """A client with all rights. Methods raise ApiError, and must not be called in an event loop."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    def is_node_ready(self, name: str, since: datetime.datetime = _LONG_AGO) -> bool:
        """Return whether the Node is Ready, with a heartbeat at *since* (UTC) or later."""
        found = self.get(f"/api/v1/nodes/{name}") or {}
        conditions = found.get("status", {}).get("conditions", ())
        return any(
            each["type"] == "Ready"
            and each["status"] == "True"
            and datetime.datetime.fromisoformat(each["lastHeartbeatTime"]) >= since.replace(microsecond=0)
            for each in conditions
        )

    def takes_pods(self) -> bool:
        """Return whether the default namespace has its service account, which every Pod needs."""
        return self.get("/api/v1/namespaces/default/serviceaccounts/default") is not None

    def ensure_runtime_class(self) -> None:
        """Create the RuntimeClass `nvidia` if it is missing."""
        if self.get("/apis/node.k8s.io/v1/runtimeclasses/nvidia") is None:
            self._call("POST", "/apis/node.k8s.io/v1/runtimeclasses", RUNTIME_CLASS)

    def delete_node(self, name: str) -> None:
        """Delete the Node if it exists."""
        if self.get(f"/api/v1/nodes/{name}") is not None:
            self._call("DELETE", f"/api/v1/nodes/{name}")

    def get(self, path: str) -> Object | None:
        """Return an object, or None if it does not exist."""
        try:
            found: Object = self._call("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return found

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        async def send() -> Any:
            async with Client.from_kubeconfig(self._kubeconfig, "controlplane") as client:
                return await client.request(method, path, body)

        return asyncio.run(send())
