"""
Start the API server.

Owns the flags, the loaded files, the kubeconfig and the order in which the parts start. Neighbours: `storage` keeps
the objects, `journal` makes them durable, `http` answers, `faults` documents the switches for tests.

    python -m minicluster apiserver --listen 127.0.0.1:0 --kubeconfig FILE
        [--load FILE]... [--data DIR] [--service NAMESPACE/NAME=HOST:PORT]...
"""

import argparse
import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import yaml
from aiohttp import web

from hamicommon.model import Object
from minicluster.apiserver.admission.chain import Admission
from minicluster.apiserver.admission.quota import Quotas
from minicluster.apiserver.admission.webhooks import Webhooks
from minicluster.apiserver.api.resources import BY_KIND, Resource
from minicluster.apiserver.serve.faults import Faults
from minicluster.apiserver.serve.forwarding import Forwarding
from minicluster.apiserver.serve.http import BODY_LIMIT_BYTES, Handler
from minicluster.apiserver.serve.namespaces import Namespaces
from minicluster.apiserver.serve.subresources import Subresources
from minicluster.apiserver.serve.verbs import Verbs, finish, stamp, strategy_of
from minicluster.apiserver.store.journal import Journal
from minicluster.apiserver.store.storage import Storage

KEEP_ALIVE_SECONDS = 120.0
CLUSTER_NAME = "minicluster"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--listen", default="127.0.0.1:0", help="host:port of plain HTTP; port 0 means any free port")
    parser.add_argument("--kubeconfig", type=Path, required=True, help="file to write once the server listens")
    parser.add_argument("--load", type=Path, action="append", default=[], help="v1 List or objects, JSON or YAML")
    parser.add_argument("--data", type=Path, help="folder in which the objects survive the process")
    parser.add_argument(
        "--service",
        action="append",
        default=[],
        metavar="NAMESPACE/NAME=HOST:PORT",
        help="address of a webhook's clientConfig.service",
    )


async def run(arguments: argparse.Namespace) -> None:
    """Serve until cancelled."""
    server = Server(dict(pair.split("=", 1) for pair in arguments.service), arguments.data)
    server.fill(arguments.load)
    host, _, port = arguments.listen.rpartition(":")
    url = await server.start(host, int(port))
    write_kubeconfig(arguments.kubeconfig, url)
    print(f"serving {url}", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await server.stop()


class Server:
    """The API server with its parts."""

    def __init__(self, services: dict[str, str] | None = None, folder: Path | None = None) -> None:
        self._journal = Journal(folder) if folder else None
        self._storage = Storage(self._journal.append if self._journal else None)
        self._remembers = self._journal is not None and self._journal.load(self._storage)
        self._webhooks = Webhooks(self._storage, services or {})
        verbs = Verbs(self._storage, Admission(self._storage, self._webhooks, Quotas(self._storage)))
        self._namespaces = Namespaces(self._storage, verbs)
        self._subresources = Subresources(self._storage, verbs)
        self._forwarding = Forwarding(verbs)
        handler = Handler(self._storage, verbs, self._subresources, self._forwarding, Faults(self._storage))
        self._server = web.Server(
            handler, request_factory=_request, access_log=None, keepalive_timeout=KEEP_ALIVE_SECONDS
        )
        self._runner = web.ServerRunner(self._server, shutdown_timeout=0.1)

    def fill(self, paths: list[Path]) -> None:
        """
        Load objects from *paths*, unless the data folder already has objects.

        Raises: ValueError with the file and the object that this server cannot store.
        """
        if self._remembers or not paths:
            return
        loaded: dict[Resource, list[Object]] = {}
        now = stamp()
        for path in paths:
            for found in _objects(path):
                resource = BY_KIND.get((found.get("apiVersion", ""), found.get("kind", "")))
                if resource is None:
                    raise ValueError(f"{path}: no resource for {found.get('apiVersion')} {found.get('kind')}")
                _complete(resource, found, now)
                loaded.setdefault(resource, []).append(found)
        for resource, objects in loaded.items():
            self._storage.fill(resource, objects)
        if self._journal is not None:
            self._journal.rewrite()

    async def start(self, host: str, port: int) -> str:
        """Serve on *host* and *port*, and return the URL."""
        self._namespaces.begin()
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, backlog=1024)
        await site.start()
        address = self._runner.addresses[0]
        return f"http://{address[0]}:{address[1]}"

    async def stop(self) -> None:
        """Close every connection."""
        await self._runner.cleanup()
        await self._webhooks.close()
        await self._subresources.close()
        await self._forwarding.close()


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=BODY_LIMIT_BYTES)


def _objects(path: Path) -> Iterator[Object]:
    """Yield the objects of a file, and those inside its lists."""
    content = path.read_bytes()
    if content.lstrip()[:1] in {b"{", b"["}:
        documents = [orjson.loads(content)]
    else:
        documents = list(yaml.load_all(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, dict):
            raise ValueError(f"{path}: expected objects or lists of them, found {type(document).__name__}")
        kind = str(document.get("kind", ""))
        if "items" not in document:
            yield document
            continue
        for item in document["items"]:
            item.setdefault("kind", kind.removesuffix("List"))
            item.setdefault("apiVersion", document.get("apiVersion", "v1"))
            yield item


def _complete(resource: Resource, found: Object, now: str) -> None:
    """Complete a loaded object like a created one. It keeps its status and uid."""
    if resource.is_namespaced:
        found["metadata"].setdefault("namespace", "default")
    found["metadata"].pop("managedFields", None)
    strategy = strategy_of(resource)
    strategy.default(found)
    if not found.get("status"):
        strategy.prepare_create(found, now)
    finish(resource, found, now)


def write_kubeconfig(path: Path, server: str) -> None:
    """Write a kubeconfig for *server* to *path*, atomically."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CLUSTER_NAME, "cluster": {"server": server}}],
        "users": [{"name": CLUSTER_NAME, "user": {}}],
        "contexts": [
            {"name": CLUSTER_NAME, "context": {"cluster": CLUSTER_NAME, "user": CLUSTER_NAME, "namespace": "default"}}
        ],
        "current-context": CLUSTER_NAME,
    }
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    temporary.replace(path)
