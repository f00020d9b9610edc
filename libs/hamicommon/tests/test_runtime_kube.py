"""
The API client against a real HTTP server: requests, answers, credentials.
"""

import asyncio
import base64
import datetime
import os
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from kubernetes.aio.config import incluster_config

from hamicommon.runtime.api import kube as kube_module
from hamicommon.runtime.api.kube import Conflict, Gone, Kube, KubeConfigError, KubeError, NotFound, Unreachable, event

from .identities import an_identity

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Answer every request with *handler* and yield the port."""
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def a_kubeconfig(folder: Path, server: str, user: dict[str, Any] | None = None, **cluster: Any) -> str:
    """Write a kubeconfig for *server* and return its path."""
    path = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user or {"token": "secret"}}],
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


@asynccontextmanager
async def asking(handler: Handler, folder: Path) -> AsyncIterator[Kube]:
    """Yield a client of a server that answers with *handler*."""
    async with (
        serving(handler) as port,
        await Kube.connect(a_kubeconfig(folder, f"http://127.0.0.1:{port}"), "me/1") as kube,
    ):
        yield kube


def answering(status: int, body: Any = None, headers: dict[str, str] | None = None) -> Handler:
    """Return a handler that always answers the same."""

    async def handle(_request: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status, headers=headers)

    return handle


async def test_objects_travel_as_plain_json_with_token_and_user_agent(tmp_path: Path) -> None:
    """A request carries what the API server needs to know who asks."""
    seen: dict[str, Any] = {}

    async def handle(request: web.Request) -> web.StreamResponse:
        seen.update(request.headers, path=request.path_qs)
        return web.json_response({"kind": "Node", "metadata": {"name": "n1"}})

    async with (
        serving(handle) as port,
        await Kube.connect(a_kubeconfig(tmp_path, f"http://127.0.0.1:{port}"), "me/1") as kube,
    ):
        node = await kube.get("/api/v1/nodes/n1", resourceVersion="0")

    assert {"kind": "Node", "metadata": {"name": "n1"}} == node
    assert "Bearer secret" == seen["Authorization"]
    assert "me/1" == seen["User-Agent"]
    assert "/api/v1/nodes/n1?resourceVersion=0" == seen["path"]


async def test_proxy_of_the_environment_is_used_except_where_it_says_not_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy gets the whole address. Loopback, and networks in `NO_PROXY`, are reached directly, as by kubectl."""
    seen: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        seen.append(request.raw_path if request.raw_path.startswith("/") else str(request.url.host))
        return web.json_response({})

    async with serving(handle) as port:
        for name in ("HTTP_PROXY", "NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        async with await Kube.connect(a_kubeconfig(tmp_path, "http://api.example"), "t") as kube:
            await kube.get("/version")
        async with await Kube.connect(a_kubeconfig(tmp_path, f"http://127.0.0.1:{port}"), "t") as kube:
            await kube.get("/version")
        # The test server has no other address, so this one is only not sent to the proxy.
        monkeypatch.setenv("NO_PROXY", "192.0.2.0/24")
        async with await Kube.connect(a_kubeconfig(tmp_path, "http://192.0.2.1"), "t") as kube:
            assert kube._configuration.proxy is None

    assert ["api.example", "/version"] == seen


@pytest.mark.parametrize("proxy", ["socks5://proxy.example:1080", "http://", "http://proxy.example:port"])
async def test_a_proxy_that_cannot_be_used_is_named_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    """Every request would fail with a message that names no variable."""
    monkeypatch.setenv("HTTP_PROXY", proxy.replace("//proxy", "//user:secret@proxy"))

    with pytest.raises(KubeConfigError, match=r"^HTTP_PROXY: must be the URL of an HTTP proxy, such as [^ ]*$"):
        await Kube.connect(a_kubeconfig(tmp_path, "http://api.example"), "t")


async def test_each_verb_is_the_http_method_it_names(tmp_path: Path) -> None:
    """A merge patch says that it is one, which decides what the server does with lists and nulls."""
    seen: list[tuple[str, str, str]] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        seen.append((request.method, request.headers["Content-Type"], await request.text()))
        return web.json_response({})

    async with (
        serving(handle) as port,
        await Kube.connect(a_kubeconfig(tmp_path, f"http://127.0.0.1:{port}"), "t") as kube,
    ):
        await kube.create("/api/v1/namespaces/default/pods", {"kind": "Pod"})
        await kube.merge_patch("/api/v1/nodes/n1", {"metadata": {"annotations": {"a": None}}})
        await kube.replace("/api/v1/namespaces/ns/secrets/s", {"kind": "Secret"})
        await kube.delete("/api/v1/nodes/n1")

    assert ("POST", "application/json", '{"kind":"Pod"}') == seen[0]
    assert ("PATCH", "application/merge-patch+json", '{"metadata":{"annotations":{"a":null}}}') == seen[1]
    assert ("PUT", "application/json", '{"kind":"Secret"}') == seen[2]
    assert "DELETE" == seen[3][0]


@pytest.mark.parametrize(
    ("status", "kind"), [(404, NotFound), (409, Conflict), (410, Gone), (403, KubeError), (500, KubeError)]
)
async def test_a_refusal_is_an_error_with_the_servers_reason(
    tmp_path: Path, status: int, kind: type[KubeError]
) -> None:
    """The log has the Status message and the path of the request."""
    body = {"kind": "Status", "reason": "TheReason", "message": "the message", "code": status}
    async with asking(answering(status, body), tmp_path) as kube:
        with pytest.raises(kind) as raised:
            await kube.get("/api/v1/nodes/n1")

    assert f"/api/v1/nodes/n1: {status} TheReason: the message" == str(raised.value)
    assert (status, "TheReason", "/api/v1/nodes/n1") == (
        raised.value.status,
        raised.value.reason,
        raised.value.path,
    )


async def test_the_wait_a_server_asks_for_is_in_the_error(tmp_path: Path) -> None:
    """The caller knows when to retry."""
    async with asking(answering(429, {}, {"Retry-After": "7"}), tmp_path) as kube:
        with pytest.raises(KubeError) as raised:
            await kube.get("/api")

    assert 7.0 == raised.value.retry_after_seconds


async def test_a_server_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    """A refused connection differs from a rejected request."""
    async with await Kube.connect(a_kubeconfig(tmp_path, "http://127.0.0.1:1"), "t") as kube:
        with pytest.raises(Unreachable, match=r"/api/v1/nodes: ClientConnectorError"):
            await kube.get("/api/v1/nodes")


async def test_a_server_that_does_not_answer_is_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No request waits for ever."""

    async def silent(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(5)
        return web.Response()

    async with (
        serving(silent) as port,
        await Kube.connect(a_kubeconfig(tmp_path, f"http://127.0.0.1:{port}"), "t") as kube,
    ):
        with pytest.raises(Unreachable, match="TimeoutError"):
            await kube._send(kube_module._Call("GET", "/api", seconds=0.1))


async def test_time_waited_for_a_connection_is_part_of_a_requests_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that waits behind another has only the rest of its time for its answer."""
    monkeypatch.setattr(kube_module, "CONNECTIONS", 1)

    async def slow(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.5)
        return web.json_response({})

    async with asking(slow, tmp_path) as kube:
        first = asyncio.ensure_future(kube.get("/api"))
        await asyncio.sleep(0)
        with pytest.raises(Unreachable, match="TimeoutError"):
            await kube._request(kube_module._Call("GET", "/api", seconds=0.8))
        assert {} == await first


@pytest.mark.parametrize("text", ["not json", "[]", '"text"', "{"])
async def test_an_answer_that_is_no_object_is_an_error(tmp_path: Path, text: str) -> None:
    """The answer of a proxy is not mistaken for an object."""

    async def handle(_request: web.Request) -> web.StreamResponse:
        return web.Response(text=text)

    async with (
        serving(handle) as port,
        await Kube.connect(a_kubeconfig(tmp_path, f"http://127.0.0.1:{port}"), "t") as kube,
    ):
        with pytest.raises(KubeError, match="the answer is"):
            await kube.get("/api/v1/nodes/n1")


async def test_items_yields_every_object_of_every_page(tmp_path: Path) -> None:
    """The client reads the pages, not the caller."""

    async def handle(request: web.Request) -> web.StreamResponse:
        start = int(request.query.get("continue", 0))
        following = {"continue": str(start + 2)} if start < 4 else {}
        return web.json_response(
            {"metadata": {"resourceVersion": "1", **following}, "items": [{"n": start}, {"n": start + 1}]}
        )

    async with (
        serving(handle) as port,
        await Kube.connect(a_kubeconfig(tmp_path, f"http://127.0.0.1:{port}"), "t") as kube,
    ):
        assert [0, 1, 2, 3, 4, 5] == [item["n"] async for item in kube.items("/api/v1/nodes")]


async def test_a_token_that_expired_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rotated token file costs one more request, not an error."""
    token = tmp_path / "token"
    token.write_text("old")

    async def handle(request: web.Request) -> web.StreamResponse:
        good = request.headers["Authorization"] == "Bearer new"
        return web.json_response({"ok": good}, status=200 if good else 401)

    async with serving(handle) as port:
        config = a_kubeconfig(tmp_path, f"http://127.0.0.1:{port}", {"tokenFile": str(token)})
        async with await Kube.connect(config, "t") as kube:
            token.write_text("new")
            kube._credentials_read = time.monotonic() - 2
            assert {"ok": True} == await kube.get("/api")


async def test_an_exec_plugin_provides_the_token(tmp_path: Path) -> None:
    """Clouds issue tokens through a program."""
    plugin = tmp_path / "plugin"
    plugin.write_text(
        "#!/bin/sh\n"
        'echo \'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"made"}}\'\n'
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    seen: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers["Authorization"])
        return web.json_response({})

    async with serving(handle) as port:
        user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
        async with await Kube.connect(a_kubeconfig(tmp_path, f"http://127.0.0.1:{port}", user), "t") as kube:
            await kube.get("/api")

    assert ["Bearer made"] == seen


@asynccontextmanager
async def a_service_account(
    handler: Handler, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[[str], None]]:
    """Have this process be a Pod's, of an API server that answers with *handler*; yield what writes the token."""
    key, certificate = an_identity("127.0.0.1")
    (folder / "ca.crt").write_bytes(certificate)
    (folder / "tls.crt").write_bytes(certificate)
    (folder / "tls.key").write_bytes(key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")

    def write_token(token: str) -> None:
        # As the kubelet changes a mounted token: a new file takes the place of the old one.
        (folder / "token.new").write_text(token)
        (folder / "token.new").rename(folder / "token")

    async with serving(handler, context) as port:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
        monkeypatch.delenv("KUBECONFIG", raising=False)
        monkeypatch.setenv("HOME", str(folder))
        monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(folder / "token"))
        monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(folder / "ca.crt"))
        yield write_token


async def test_inside_a_cluster_the_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no kubeconfig anywhere the mounted token and authority are the credentials."""
    seen: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers["Authorization"])
        return web.json_response({})

    async with a_service_account(handle, tmp_path, monkeypatch) as write_token:
        write_token("mounted\n")
        async with await Kube.connect(None, "t") as kube:
            await kube.get("/api")

    assert ["bearer mounted"] == seen


async def test_a_mounted_token_that_changed_is_used_before_the_old_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet changes it long before it ends, and the file is looked at every minute."""
    seen: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers["Authorization"])
        return web.json_response({})

    async with a_service_account(handle, tmp_path, monkeypatch) as write_token:
        write_token("first")
        async with await Kube.connect(None, "t") as kube:
            await kube.get("/api")
            write_token("second")
            await kube.get("/api")
            kube._credentials_read -= 61
            await kube.get("/api")

    assert ["bearer first", "bearer first", "bearer second"] == seen


async def test_a_mounted_token_that_is_refused_is_read_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For requests and for watches; the caller notices nothing."""
    good = "first"

    async def handle(request: web.Request) -> web.StreamResponse:
        is_good = request.headers["Authorization"] == f"bearer {good}"
        return web.json_response({"is_good": is_good}, status=200 if is_good else 401)

    async with a_service_account(handle, tmp_path, monkeypatch) as write_token:
        write_token("first")
        async with await Kube.connect(None, "t") as kube:
            await kube.get("/api")
            for good in ("second", "third"):
                write_token(good)
                kube._credentials_read -= 2
                if good == "second":
                    assert {"is_good": True} == await kube.get("/api")
                else:
                    with pytest.raises(Unreachable, match="CutShort"):
                        [_ async for _ in kube.watch("/api/v1/pods", 1)]


async def test_a_new_authority_of_the_api_server_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that rotates its own authority needs no restart of its services."""
    async with a_service_account(answering(200, {}), tmp_path, monkeypatch) as write_token:
        write_token("t")
        async with await Kube.connect(None, "t") as kube:
            await kube.get("/api")

            async with a_service_account(answering(200, {"is": "new"}), tmp_path, monkeypatch):
                kube._configuration.host = f"https://127.0.0.1:{os.environ['KUBERNETES_SERVICE_PORT']}"
                with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
                    await kube.get("/api")
                kube._credentials_read -= 61
                assert {"is": "new"} == await kube.get("/api")


@pytest.mark.skipif(
    subprocess.run(["unshare", "--user", "--map-user=65532", "true"], check=False, capture_output=True).returncode != 0,
    reason="needs a user namespace",
)
def test_a_uid_without_passwd_entry_and_home_can_be_a_service() -> None:
    """As in an image whose user is only a number."""
    code = "import os, hamicommon.runtime.api.kube; print(os.getuid(), os.environ['HOME'])"
    command = ["unshare", "--user", "--map-user=65532", "env", "-i", sys.executable, "-c", code]

    assert "65532 /\n" == subprocess.run(command, check=True, capture_output=True, text=True).stdout


async def test_a_client_certificate_from_the_kubeconfig_is_shown(tmp_path: Path) -> None:
    """Mutual TLS with an authority and a certificate that are inside the file."""
    server_key, server_certificate = an_identity("127.0.0.1")
    client_key, client_certificate = an_identity("client")
    for name, content in {"s.crt": server_certificate, "s.key": server_key, "ca.crt": client_certificate}.items():
        (tmp_path / name).write_bytes(content)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "ca.crt"))
    context.load_cert_chain(tmp_path / "s.crt", tmp_path / "s.key")
    context.verify_mode = ssl.CERT_REQUIRED

    async with serving(answering(200, {"ok": True}), context) as port:
        config = a_kubeconfig(
            tmp_path,
            f"https://127.0.0.1:{port}",
            {
                "client-certificate-data": base64.b64encode(client_certificate).decode(),
                "client-key-data": base64.b64encode(client_key).decode(),
            },
            **{"certificate-authority-data": base64.b64encode(server_certificate).decode()},
        )
        async with await Kube.connect(config, "t") as kube:
            assert {"ok": True} == await kube.get("/api")


async def test_a_server_with_a_foreign_certificate_is_unreachable(tmp_path: Path) -> None:
    """TLS is verified, and the reason is in the error."""
    key, certificate = an_identity("127.0.0.1")
    _, other = an_identity("127.0.0.1")
    (tmp_path / "s.crt").write_bytes(certificate)
    (tmp_path / "s.key").write_bytes(key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "s.crt", tmp_path / "s.key")
    async with serving(answering(200, {}), context) as port:
        config = a_kubeconfig(
            tmp_path,
            f"https://127.0.0.1:{port}",
            None,
            **{"certificate-authority-data": base64.b64encode(other).decode()},
        )
        async with await Kube.connect(config, "t") as kube:
            with pytest.raises(Unreachable, match="certificate"):
                await kube.get("/api")


@pytest.mark.parametrize("text", ["", "[]", "a: [", "current-context: nowhere\ncontexts: []\n"])
async def test_a_broken_kubeconfig_is_named(tmp_path: Path, text: str) -> None:
    """The error says which file, whatever is wrong inside."""
    path = tmp_path / "broken"
    path.write_text(text)
    with pytest.raises(KubeConfigError, match=str(path)):
        await Kube.connect(str(path), "t")


async def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    """A path that was asked for is not silently replaced by another source."""
    with pytest.raises(KubeConfigError, match="nowhere: no such file"):
        await Kube.connect(str(tmp_path / "nowhere"), "t")


async def test_no_credentials_at_all_says_where_was_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message lists every source."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(KubeConfigError, match=r"\$KUBECONFIG and ~/.kube/config are absent, and in-cluster"):
        await Kube.connect(None, "t")


def test_an_event_names_its_object_and_fits_the_api() -> None:
    """Long texts are cut to what the API takes, in whole characters."""
    pod = {"kind": "Pod", "metadata": {"name": "p" * 253, "namespace": "ns", "uid": "u"}}
    made = event(
        pod, "Reason", "ä" * 2000, component="c", warning=True, now=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    )

    assert {"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "p" * 253, "uid": "u"} == made[
        "involvedObject"
    ]
    assert len(made["metadata"]["name"]) <= 253
    assert len(made["message"].encode()) <= 1024
    assert ("Warning", "2026-01-01T00:00:00Z") == (made["type"], made["firstTimestamp"])


def test_an_event_about_a_node_lives_in_the_default_namespace() -> None:
    """Cluster-wide objects have no namespace, events must have one."""
    made = event(
        {"kind": "Node", "metadata": {"name": "n"}}, "R", "m", component="c", now=datetime.datetime.now(datetime.UTC)
    )

    assert "default" == made["metadata"]["namespace"]
    assert "namespace" not in made["involvedObject"]
