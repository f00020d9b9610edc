"""
Measure the latency and the processor time of admission: a webhook process gets requests at a steady rate.

`python e2e/bench/admit.py` prints a table, with `--json` the figures. `--write FILE` replaces the table of a page.
Requests are sent at their time, whether or not earlier ones were answered, and the latency counts from that time.
`livez` is HTTPS without a review, for comparison.
"""

import asyncio
import json
import os
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp

from bench.load.service import apart, ready
from bench.record.measurement import percentiles
from bench.record.usage import Usage
from bench.report.command import parser, tell
from bench.report.tables import machine, table
from controlplane.pki import issue_serving
from harness.manifests import a_container, a_pod
from testbed.ports import free_port
from testbed.processes import Process

ROOT = Path(__file__).resolve().parents[2]
DEVICE_CONFIG = ROOT / "libs/hamicommon/vectors/device-config/default.yaml"
WEBHOOK = Path(sys.executable).with_name("hami-webhook")
CONNECTIONS = 8
WARM_UP_SECONDS = 0.5

_PADDING = {"env": [{"name": f"VARIABLE_{index}", "value": "x" * 100} for index in range(180)]}
PODS = {
    "no request": a_pod("p", [{**a_container(), "resources": {}}]),
    "request, completed": a_pod("p", gpumem=3000),
    "request, rejected": a_pod("p", gpumem="16Gi"),
    "four vendors, eight containers": a_pod(
        "p",
        [
            {**a_container(f"c{index}"), "resources": {"limits": {name: "1"}}}
            for name in ("nvidia.com/gpu", "huawei.com/Ascend910B3", "metax-tech.com/sgpu", "mthreads.com/vgpu")
            for index in range(2)
        ],
    ),
    "request, 256 KiB": a_pod("p", [{**a_container(f"c{index}", gpu=1), **_PADDING} for index in range(10)]),
}


@dataclass(frozen=True, slots=True)
class Found:
    """The cost of equal requests."""

    case: str
    requests: int
    ms: dict[str, float]
    """From the due time of a request to its answer, by percentile."""
    cpu_ms: float
    """Processor time of the webhook for each request."""


def main() -> None:
    """Measure, and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--rate", type=int, default=200, help="requests a second")
    arguments.add_argument("--seconds", type=float, default=2.0, help="of each case")
    given = arguments.parse_args()
    found, memory_mib = asyncio.run(measure(given.rate, given.seconds))
    figures = {"memory_mib": memory_mib, "cases": [asdict(each) for each in found]}
    tell(given, "admit", figures, page(found, given.rate, memory_mib))


def page(found: list[Found], rate: int, memory_mib: int) -> str:
    """Return the table, with the circumstances."""
    rows = [
        [each.case, str(each.requests), *(f"{value:.1f}" for value in each.ms.values()), f"{each.cpu_ms:.2f}"]
        for each in found
    ]
    circumstances = (
        f"{rate} requests a second on {CONNECTIONS} connections, {machine()}, one processor for"
        f" the webhook, load average {os.getloadavg()[1]:.1f}; {memory_mib} MiB of memory."
    )
    return f"{circumstances}\n\n" + table(["", "requests", "p50 ms", "p95", "p99", "max", "CPU ms each"], rows)


async def measure(rate: int, seconds: float) -> tuple[list[Found], int]:
    """Return the figures of every case, and the memory of the webhook at the end."""
    with tempfile.TemporaryDirectory() as folder:
        authority = issue_serving(Path(folder))
        tls = ("--cert_file=tls.crt", "--key_file=tls.key")
        context = ssl.create_default_context(cadata=authority.decode())
        with a_webhook(Path(folder), "https", *(flag.replace("=", f"={folder}/") for flag in tls)) as (process, port):
            async with calling(f"https://127.0.0.1:{port}", context) as session:
                found = [await steadily("livez, HTTPS", process, session, rate, seconds)]
                for case, pod in PODS.items():
                    found.append(await steadily(f"{case}, HTTPS", process, session, rate, seconds, review(pod)))
            memory_mib = Usage.now({"webhook": process.pid}).memory_mib["webhook"]
        with a_webhook(Path(folder), "http") as (process, port):
            async with calling(f"http://127.0.0.1:{port}") as session:
                case = "request, completed"
                found.append(await steadily(f"{case}, HTTP", process, session, rate, seconds, review(PODS[case])))
    return found, memory_mib


@contextmanager
def a_webhook(folder: Path, name: str, *flags: str) -> Iterator[tuple[Process, int]]:
    """Run a webhook on one processor, and yield it and its port."""
    port = free_port()
    bind = (f"--http_bind=127.0.0.1:{port}", "--metrics-bind-address=", f"--device-config-file={DEVICE_CONFIG}")
    vendors = ("--enable-ascend", "--enable-iluvatar", "--scheduler-name=hami-scheduler")
    with apart(folder, name, [str(WEBHOOK), *bind, *vendors, *flags], {"HOME": "/nonexistent"}) as process:
        yield process, port


@asynccontextmanager
async def calling(url: str, context: ssl.SSLContext | bool = True) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a session with a webhook that is ready."""
    connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=context)
    async with aiohttp.ClientSession(url, connector=connector) as session:
        await ready(session)
        yield session


async def steadily(
    case: str, process: Process, session: aiohttp.ClientSession, rate: int, seconds: float, body: bytes | None = None
) -> Found:
    """Send *body*, or GET livez, at *rate*. Requests during the warm-up are not counted."""
    await sent_at_rate(session, rate, WARM_UP_SECONDS, body)
    before = Usage.now({"webhook": process.pid})
    waits = await sent_at_rate(session, rate, seconds, body)
    used = Usage.now({"webhook": process.pid}).since(before)["webhook"]
    return Found(case, len(waits), percentiles(waits, 1000), round(used * 1000 / len(waits), 3))


async def sent_at_rate(session: aiohttp.ClientSession, rate: int, seconds: float, body: bytes | None) -> list[float]:
    """Return the latency of each request."""
    began = time.perf_counter()

    async def at(due: float) -> float:
        await asyncio.sleep(due - time.perf_counter())
        method, path = ("GET", "/livez") if body is None else ("POST", "/webhook")
        headers = {"Content-Type": "application/json"} if body else {}
        async with session.request(method, path, data=body, headers=headers) as answer:
            assert 200 == answer.status
            await answer.read()
        return time.perf_counter() - due

    return await asyncio.gather(*(at(began + number / rate) for number in range(int(rate * seconds))))


def review(pod: dict[str, Any]) -> bytes:
    """Return the API server's AdmissionReview for the creation of *pod*."""
    request = {"uid": "u", "operation": "CREATE", "namespace": "default", "name": "p", "object": pod}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


if __name__ == "__main__":
    main()
