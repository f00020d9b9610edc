"""
The scheduler's Lease, its HTTP connections and its process.
"""

import asyncio
import gzip
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from conformance.peers.objects import Api
from minicluster.kubescheduler.config import LeaderElection
from minicluster.kubescheduler.http import Poster, PostError
from minicluster.kubescheduler.lease import LeadershipLostError, Lease
from minicluster_tests.scheduler_peers import configured
from testbed.waiting import eventually

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"


def an_election(**fields: Any) -> LeaderElection:
    """Return an election with short times."""
    values = {"lease_seconds": 1.0, "renew_seconds": 0.2, "retry_seconds": 0.02, **fields}
    return LeaderElection(is_on=True, namespace="kube-system", name="kube-scheduler", **values)


async def test_second_candidate_waits_until_the_first_gives_up(api: Api) -> None:
    """
    A released Lease is acquired at once, and the transition is counted.
    """
    first, second = Lease(api, an_election()), Lease(api, an_election())
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    await asyncio.sleep(0.2)
    was_waiting = not waiting.done()
    holder = (await api.get(LEASE))["spec"]["holderIdentity"]

    await first.release()
    await asyncio.wait_for(waiting, 2)

    spec = (await api.get(LEASE))["spec"]
    assert was_waiting
    assert holder != spec["holderIdentity"]
    assert (1, 1) == (spec["leaseTransitions"], spec["leaseDurationSeconds"])


async def test_lease_of_a_dead_holder_expires(api: Api) -> None:
    """
    The clock of the candidate decides, not the times in the Lease.
    """
    await Lease(api, an_election()).acquire()

    async with asyncio.timeout(3):
        started = asyncio.get_running_loop().time()
        await Lease(api, an_election()).acquire()

    assert asyncio.get_running_loop().time() - started > 0.9


async def test_leader_that_cannot_renew_stops(api: Api) -> None:
    """
    Two schedulers must never lead at the same time.
    """
    lease = Lease(api, an_election())
    await lease.acquire()
    await api.create("/minicluster/faults", {"method": "PUT", "path": "leases", "times": 0, "status": 500})

    with pytest.raises(LeadershipLostError):
        await asyncio.wait_for(lease.renew(), 3)


@asynccontextmanager
async def answering(*answers: bytes) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Yield the URL of a server, and its received requests. It sends one of *answers* for each, and b'' closes."""
    requests: list[bytes] = []
    left = list(answers)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while left:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            requests.append(head + await reader.readexactly(length))
            answer = left.pop(0)
            writer.write(answer)
            if not answer:
                break
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", requests
    server.close()


PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1;x=y\r\n}\r\n0\r\n\r\n"
ZIPPED = gzip.compress(b"{}")
GZIP = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(ZIPPED), ZIPPED)


async def test_answers_are_read_in_every_form_and_the_connection_is_kept() -> None:
    """
    Content-Length, chunks and gzip are read, one after the other, on one connection.
    """
    async with answering(PLAIN, CHUNKED, GZIP) as (url, requests):
        poster = Poster(f"{url}/scheduler", None, "", 5.0)
        answers = [await poster.post("filter", b"{}") for _ in range(3)]
        poster.close()

    host = url.removeprefix("http://")
    head = f"POST /scheduler/filter HTTP/1.1\r\nHost: {host}\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: 2\r\n"
    assert [(200, b"{}")] * 3 == answers
    assert f"{head}Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n{{}}".encode() == requests[0]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"", "EOF"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "unexpected EOF"),
        (b"HTTP/1.1 20", "unexpected EOF"),
    ],
)
async def test_broken_answers_are_errors_in_gos_words(answer: bytes, expected: str) -> None:
    """
    Incomplete and invalid answers are errors.
    """
    async with answering(answer) as (url, _):
        poster = Poster(url, None, "", 5.0)
        with pytest.raises(PostError) as caught:
            await poster.post("bind", b"{}")

    assert f'Post "{url}/bind": {expected}' == str(caught.value)


async def test_missing_answer_times_out() -> None:
    """
    httpTimeout limits the whole exchange.
    """
    async with answering(b"HTTP/1.1 100", PLAIN) as (url, _):
        poster = Poster(url, None, "", 0.1)
        with pytest.raises(PostError, match=r"Client\.Timeout exceeded while awaiting headers"):
            await poster.post("bind", b"{}")


async def test_at_most_two_idle_connections_are_kept() -> None:
    """
    A burst opens a connection for each request, and two are left afterwards.
    """
    open_now: set[asyncio.StreamWriter] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_now.add(writer)
        while await reader.read(1000):
            await asyncio.sleep(0.05)
            writer.write(PLAIN)
        open_now.discard(writer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    poster = Poster(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", None, "", 5.0)
    await asyncio.gather(*(poster.post("bind", b"{}") for _ in range(9)))
    await asyncio.sleep(0.1)
    left = len(open_now)
    poster.close()
    server.close()

    assert 2 == left


async def test_process_schedules_and_releases_its_lease_at_sigterm(api: Api, kubeconfig: Path, tmp_path: Path) -> None:
    """
    The command is `python -m minicluster kube-scheduler` with a real configuration file.
    """
    config = tmp_path / "kubescheduler.yaml"
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    config.write_text(yaml.safe_dump(head | configured() | {"leaderElection": {}}), "utf-8")
    await api.create_node()
    await api.create_pod()
    command = [sys.executable, "-m", "minicluster", "kube-scheduler"]
    process = await asyncio.create_subprocess_exec(*command, "--kubeconfig", str(kubeconfig), "--config", str(config))

    async def is_bound() -> bool:
        return "nodeName" in (await api.get(f"{api.pods}/p"))["spec"]

    was_bound = await eventually(is_bound, seconds=15)
    process.send_signal(signal.SIGTERM)
    code = await asyncio.wait_for(process.wait(), 5)

    assert (True, 0) == (was_bound, code)
    spec = (await api.get(LEASE))["spec"]
    assert ("", 1) == (spec["holderIdentity"], spec["leaseDurationSeconds"])
