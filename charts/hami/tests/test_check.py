"""
`helm test` passes if the services are ready and a Pod with a share reaches the scheduler, else it says what is wrong.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from .chart import CHART, PARTS, Json, everything, given, is_hook, needs_helm

SCHEDULER = "hami-scheduler"


@contextmanager
def cluster(scheduler_name: str, *, ready: int = 200, created: int = 201) -> Iterator[tuple[str, list[Json]]]:
    """Serve a service and an API server, which gives Pods *scheduler_name*; yield the URL and the Pods asked for."""
    pods: list[Json] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(ready, b"not yet\n")

        def do_POST(self) -> None:
            pod = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            pods.append({"path": self.path, "as": self.headers["Authorization"], "pod": pod})
            admitted = pod | {"spec": pod["spec"] | {"schedulerName": scheduler_name}}
            answer = admitted if created == 201 else {"message": "quota q is exceeded"}
            self._answer(created, json.dumps(answer).encode())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Keep the test's output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", pods
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def check(tmp_path: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Run the check against a URL as its container does, with a token."""
    (tmp_path / "token").write_text("secret")

    def run(url: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "READY_URLS": f"{url}/readyz {url}/readyz",
            "RESOURCE_NAME": "nvidia.com/gpu",
            "SCHEDULER_NAME": SCHEDULER,
            "NAMESPACE": "hami",
            "API_SERVER": url,
            "ACCOUNT": str(tmp_path),
            "PATIENCE_SECONDS": "0",
        }
        command = [sys.executable, "-c", (CHART / "check.py").read_text()]
        return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)

    return run


def test_ready_installation_passes(check: Callable[[str], subprocess.CompletedProcess[str]]) -> None:
    """One dry run, of a Pod with one share, by the account of the check."""
    with cluster(SCHEDULER) as (url, pods):
        done = check(url)

    assert (0, "all checks passed\n") == (done.returncode, done.stdout), done.stderr
    [asked] = pods
    assert ("/api/v1/namespaces/hami/pods?dryRun=All", "Bearer secret") == (asked["path"], asked["as"])
    assert "1" == asked["pod"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]


def test_webhook_that_sees_no_pod_fails_the_check(check: Callable[[str], subprocess.CompletedProcess[str]]) -> None:
    """As with failurePolicy Ignore and a certificate that the API server does not trust."""
    with cluster("default-scheduler") as (url, _):
        done = check(url)

    assert 1 == done.returncode
    assert "would go to the scheduler default-scheduler, not to hami-scheduler" in done.stdout


def test_rejected_pod_fails_the_check_with_the_reason(check: Callable[[str], subprocess.CompletedProcess[str]]) -> None:
    """What the API server says is what helps."""
    with cluster(SCHEDULER, created=403) as (url, _):
        done = check(url)

    assert 1 == done.returncode
    assert "the API server does not admit a Pod with nvidia.com/gpu: quota q is exceeded\n" == done.stdout


def test_service_that_is_not_ready_is_named(check: Callable[[str], subprocess.CompletedProcess[str]]) -> None:
    """Each by its URL."""
    with cluster(SCHEDULER, ready=503) as (url, _):
        done = check(url)

    assert 1 == done.returncode
    assert 2 == done.stdout.count(f"{url}/readyz: HTTP Error 503: Service Unavailable: not yet: look at")


def check_pod(values: Json) -> Json:
    """Return what `helm test` runs, with its variables by name."""
    [pod] = [each for each in everything(*given(values)) if each["kind"] == "Pod" and is_hook(each)]
    [container] = pod["spec"]["containers"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    return {"image": container["image"], "args": container["args"], "env": variables}


@needs_helm
def test_check_asks_the_installed_services() -> None:
    """Their Services have these ports; the image is one that is installed."""
    made = check_pod({})

    assert [(CHART / "check.py").read_text().strip()] == [each.strip() for each in made["args"]]
    assert [
        "http://hami-webhook.hami.svc:9395/readyz",
        "http://hami-scheduler.hami.svc:31993/readyz",
        "http://hami-device-plugin-monitor.hami.svc:31992/readyz",
    ] == made["env"]["READY_URLS"].split()
    assert ("nvidia.com/gpu", SCHEDULER) == (made["env"]["RESOURCE_NAME"], made["env"]["SCHEDULER_NAME"])


@needs_helm
def test_check_leaves_out_what_is_not_installed() -> None:
    """HAMi's webhook may answer otherwise, and a user's selector may leave out the Pod of the check."""
    nodes = check_pod({"webhook": {"enabled": False}, "scheduler": {"enabled": False}})
    selective = check_pod({"webhook": {"objectSelector": {"matchLabels": {"team": "one"}}}})

    assert f"registry.example/hami/device-plugin:{PARTS['device-plugin']}" == nodes["image"]
    assert {"READY_URLS": "http://hami-device-plugin-monitor.hami.svc:31992/readyz"} == nodes["env"]
    assert {"READY_URLS"} == selective["env"].keys()
