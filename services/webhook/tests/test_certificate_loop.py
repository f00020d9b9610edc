"""
The certificate that the webhook makes: creation, publication, serving and repair, with processes on an API server.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hami_webhook.certificates import pki, renewal
from hami_webhook.certificates.renewal import Material
from testbed.ports import free_port

from .replicas import CONFIGURATION, NAMES, SECRET, Cluster, Replica, calling, until

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
async def cluster(tmp_path: Path, device_config_file: str) -> AsyncIterator[Cluster]:
    """An API server with an empty Secret."""
    found = Cluster(tmp_path, device_config_file)
    await found.start_apiserver()
    await found.create_secret()
    try:
        yield found
    finally:
        await found.stop()


async def two_replicas(cluster: Cluster) -> tuple[Replica, Replica]:
    """Start two replicas at once and wait until both are ready."""
    ports = free_port(), free_port()
    await cluster.configure(*ports)
    first, second = await asyncio.gather(*(cluster.start(port) for port in ports))
    for replica in (first, second):
        await until(replica.is_ready)
    return first, second


async def test_two_replicas_that_start_at_once_serve_of_one_authority(cluster: Cluster) -> None:
    """The first writer wins, the other reads its result, and the API server trusts both."""
    first, second = await two_replicas(cluster)

    found = await cluster.secret()
    assert 1 == len(found.bundle)
    assert [pki.bundle_pem(found.bundle)] * 2 == await cluster.bundles()
    assert found.serving is not None
    for replica in (first, second):
        assert found.serving.certificate_pem == await replica.shown(pki.bundle_pem(found.bundle))
    assert await cluster.admitted("p")
    assert 1 == first.count("Certificate renewed") + second.count("Certificate renewed")


async def test_a_replica_without_its_objects_lives_and_says_what_is_missing(cluster: Cluster) -> None:
    """It is not ready and gives the reason; no restart is needed once the objects exist."""
    replica = await cluster.start()
    await replica.event("Certificate not updated, retrying")

    assert (200, "ok\n") == await replica.get("/livez")
    status, text = await replica.get("/readyz")
    assert 503 == status
    assert "no certificate is served yet" in text
    assert f"{CONFIGURATION}: 404" in text
    assert None is await replica.shown(b"")
    await cluster.configure(replica.port)
    await until(replica.is_ready)
    assert await cluster.admitted("p")


async def test_an_api_server_that_is_away_at_the_start_is_waited_for(cluster: Cluster) -> None:
    """The replica is alive, then ready."""
    await cluster.configure(port := free_port())
    cluster.kill_apiserver()
    replica = await cluster.start(port)
    await replica.event("Certificate not updated, retrying")
    assert (503, 200) == ((await replica.get("/readyz"))[0], (await replica.get("/livez"))[0])

    await cluster.start_apiserver()
    await until(replica.is_ready)


async def test_an_emptied_bundle_is_filled_again(cluster: Cluster) -> None:
    """Applying the configuration without a bundle removes it for a moment only."""
    await two_replicas(cluster)
    before = await cluster.bundles()
    for _ in range(3):
        patch = [{"op": "remove", "path": f"/webhooks/{index}/clientConfig/caBundle"} for index in (0, 1)]
        await cluster.api.patch(CONFIGURATION, patch, kind="json")

        async def is_filled() -> bool:
            return before == await cluster.bundles()

        await until(is_filled)
    assert await cluster.admitted("p")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({}, id="emptied"),
        pytest.param(dict.fromkeys(("ca.crt", "ca.key", "tls.crt", "tls.key"), "Z2FyYmFnZQ=="), id="garbled"),
        pytest.param(renewal.secret_data(Material((), a := pki.new_authority(datetime.now(UTC)), a)), id="others"),
    ],
)
async def test_a_lost_secret_costs_no_call_while_a_replica_runs(cluster: Cluster, data: dict[str, str]) -> None:
    """The served certificate stays, and a new authority is published beside the old one."""
    first, _ = await two_replicas(cluster)
    before = await cluster.secret()
    async with calling(cluster) as failures:
        await cluster.write(data)

        async def is_repaired() -> bool:
            return len((await cluster.secret()).bundle) == 2 and len(set(await cluster.bundles())) == 1

        await until(is_repaired)
        await asyncio.sleep(0.5)

    after = await cluster.secret()
    assert [] == failures
    assert before.bundle == after.bundle[1:]
    kept, renewed = renewal.secret_data(before), renewal.secret_data(after)
    assert ["tls.crt", "tls.key"] == [name for name in kept if kept[name] == renewed[name]]
    assert await first.is_ready()


async def test_a_lost_secret_is_made_anew_by_replicas_that_start(cluster: Cluster) -> None:
    """No replica has the old certificate; the old authority stays published for a while."""
    first, second = await two_replicas(cluster)
    before = await cluster.secret()
    for replica in (first, second):
        replica.process.kill()
    await cluster.write({})
    replicas = [await cluster.start(replica.port) for replica in (first, second)]

    for replica in replicas:
        await until(replica.is_ready)
    after = await cluster.secret()
    assert before.bundle == after.bundle[1:]
    assert before.serving is not None
    assert after.serving is not None
    assert before.serving.certificate != after.serving.certificate
    assert await cluster.admitted("p")


async def test_a_deleted_secret_is_missed_but_not_needed_for_serving(cluster: Cluster) -> None:
    """The webhook cannot create it; once it exists again, the served certificate is written to it."""
    first, _ = await two_replicas(cluster)
    before = await cluster.secret()
    await cluster.api.delete(SECRET)
    await first.event("Certificate not updated, retrying")
    assert await first.is_ready()
    assert await cluster.admitted("p")

    await cluster.create_secret()

    async def is_filled() -> bool:
        return before.bundle[0] in (await cluster.secret()).bundle

    await until(is_filled)
    assert await cluster.admitted("q")


async def test_a_certificate_that_nears_its_end_is_renewed_without_a_failing_call(cluster: Cluster) -> None:
    """The authority stays, so clients notice nothing."""
    now = datetime.now(UTC)
    await two_replicas(cluster)
    before = await cluster.secret()
    assert before.authority is not None
    old = pki.new_certificate(before.authority, NAMES, now - timedelta(days=61))
    async with calling(cluster) as failures:
        await cluster.write(renewal.secret_data(Material(before.bundle, before.authority, old)))

        async def is_renewed() -> bool:
            after = await cluster.secret()
            assert after.serving is not None
            return after.serving.certificate.not_valid_after_utc > now + timedelta(days=89)

        await until(is_renewed)
        await asyncio.sleep(0.5)

    assert [] == failures
    assert before.bundle == (await cluster.secret()).bundle


async def test_an_authority_is_rotated_through_a_bundle_of_both_without_a_failing_call(cluster: Cluster) -> None:
    """
    The new authority is published, later it signs, last the old one is removed; the test moves the clock by writes.
    """
    first, second = await two_replicas(cluster)
    now = datetime.now(UTC)
    old = pki.new_authority(now - timedelta(days=2500))
    served = pki.new_certificate(old, NAMES, now - timedelta(days=1))

    async def holds(probe: Callable[[Material], bool]) -> Material:
        async def is_so() -> bool:
            return probe(await cluster.secret())

        await until(is_so)
        return await cluster.secret()

    async def is_shown_by_both() -> bool:
        found = await cluster.secret()
        assert found.serving is not None
        shown = [await replica.shown(pki.bundle_pem(found.bundle)) for replica in (first, second)]
        return [found.serving.certificate_pem] * 2 == shown

    await cluster.write(renewal.secret_data(Material((old.certificate,), old, served)))
    both = await holds(lambda found: len(found.bundle) == 2)
    assert (served.certificate, old.certificate) == (both.serving and both.serving.certificate, both.bundle[1])
    await until(is_shown_by_both)
    async with calling(cluster) as failures:
        # Two hours later: the new authority has been published long enough.
        aged = pki.new_authority(now - timedelta(hours=2))
        await cluster.write(renewal.secret_data(Material((aged.certificate, old.certificate), aged, served)))
        switched = await holds(
            lambda found: found.serving is not None and found.serving.certificate != served.certificate
        )
        assert (aged.certificate, old.certificate) == switched.bundle
        await until(is_shown_by_both)
        # Two more hours later: nothing of the old authority is served any more.
        late = pki.new_certificate(aged, NAMES, now - timedelta(hours=2))
        await cluster.write(renewal.secret_data(Material(switched.bundle, aged, late)))
        assert (aged.certificate,) == (await holds(lambda found: len(found.bundle) == 1)).bundle
        await until(is_shown_by_both)
        await asyncio.sleep(0.5)

    assert [] == failures


async def test_replicas_with_different_names_agree_on_one_certificate(cluster: Cluster) -> None:
    """As during a rollout: the certificate has both names, and the writes end."""
    await cluster.configure(port := free_port())
    first = await cluster.start(port, ("127.0.0.1", "old.hami.svc"))
    await until(first.is_ready)
    second = await cluster.start(None, ("127.0.0.1", "new.hami.svc"))
    await until(second.is_ready)

    async def names() -> set[str]:
        found = await cluster.secret()
        assert found.serving is not None
        return set(pki.names_of(found.serving.certificate))

    async def is_agreed() -> bool:
        return {"127.0.0.1", "old.hami.svc", "new.hami.svc"} == await names()

    await until(is_agreed)
    version = (await cluster.api.get(SECRET))["metadata"]["resourceVersion"]
    await asyncio.sleep(1)
    assert version == (await cluster.api.get(SECRET))["metadata"]["resourceVersion"]


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH"])
async def test_a_replica_killed_at_any_request_leaves_what_the_next_one_completes(
    cluster: Cluster, method: str
) -> None:
    """Killed before the Secret is read, while it is written, and before the bundle is written."""
    await cluster.configure(port := free_port())
    await cluster.fault(method=method, path=f"{SECRET}$|{CONFIGURATION}$", delay_seconds=0.5)
    replica = await cluster.start(port)
    await until(cluster.is_faulted)
    replica.process.kill()
    again = await cluster.start(port)

    await until(again.is_ready)
    assert await cluster.admitted("p")
    assert 1 == len((await cluster.secret()).bundle)


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param({"disconnect": "before"}, id="not-asked"),
        pytest.param({"disconnect": "after"}, id="answer-lost"),
        pytest.param({"status": 403, "reason": "Forbidden"}, id="forbidden"),
        pytest.param({"status": 500, "reason": "InternalError"}, id="broken"),
    ],
)
async def test_requests_that_fail_are_made_good(cluster: Cluster, failure: dict[str, Any]) -> None:
    """Failed reads and writes, applied or not, lead to one authority."""
    await cluster.configure(port := free_port())
    for method in ("GET", "PUT", "PATCH"):
        await cluster.fault(method=method, path=f"{SECRET}$|{CONFIGURATION}$", **failure)
    replica = await cluster.start(port)

    await until(replica.is_ready)
    assert await cluster.is_faulted()
    assert await cluster.admitted("p")
    assert 1 == len((await cluster.secret()).bundle)


async def test_a_replica_that_may_not_publish_serves_nothing_and_says_so(cluster: Cluster) -> None:
    """It serves no certificate; the log and `/readyz` have the server's reason."""
    await cluster.configure(port := free_port())
    message = "cannot patch resource mutatingwebhookconfigurations"
    await cluster.fault(method="PATCH", times=0, status=403, reason="Forbidden", message=message)
    replica = await cluster.start(port)
    await replica.event("Certificate not updated, retrying")

    assert message in (await replica.get("/readyz"))[1]
    assert None is await replica.shown(pki.bundle_pem((await cluster.secret()).bundle))


async def test_a_watch_that_is_lost_is_asked_for_again(cluster: Cluster) -> None:
    """After each kind of loss, later changes are seen."""
    await cluster.configure(port := free_port())
    await until((await cluster.start(port)).is_ready)
    for authorities, how in enumerate(("close", "abort", "gone"), start=2):
        await cluster.api.create("/minicluster/watches/drop", {"path": "hami-webhook", "how": how})
        await asyncio.sleep(1)
        await cluster.write({})

        async def is_repaired(authorities: int = authorities) -> bool:
            return len((await cluster.secret()).bundle) == authorities

        await until(is_repaired)


async def test_what_changed_while_the_api_server_was_away_is_found(cluster: Cluster) -> None:
    """A lost watch is restarted, and rounds continue without it."""
    replica, _ = await two_replicas(cluster)
    cluster.kill_apiserver()
    await asyncio.sleep(1)
    assert (200, "ok\n") == await replica.get("/readyz")
    await cluster.start_apiserver()
    await cluster.write({})

    async def is_repaired() -> bool:
        return len((await cluster.secret()).bundle) == 2

    await until(is_repaired)


@pytest.mark.parametrize("names", [NAMES, ()], ids=["its own certificate", "another's"])
async def test_resources_that_the_registration_leaves_out_are_told_of(
    cluster: Cluster, names: tuple[str, ...], tmp_path: Path
) -> None:
    """One log line for each set, after a change of the registration or the device config; the gauge returns to 0."""
    cluster.device_config_file = str(tmp_path / "device-config.yaml")
    nvidia = "nvidia: {resourceCountName: nvidia.com/gpu}\n"
    Path(cluster.device_config_file).write_text(nvidia)
    condition = {"name": "asks", "expression": '["nvidia.com/gpu"].exists(n, n in object.spec.containers[0].resources)'}
    await cluster.configure(port := free_port())
    webhook = (await cluster.api.get(CONFIGURATION))["webhooks"][0]
    await cluster.api.patch(CONFIGURATION, {"webhooks": [{**webhook, "matchConditions": [condition]}]})
    replica = await cluster.start(port, names)
    said = "The registration leaves out resources"

    async def counts(missing: int) -> None:
        async def is_told() -> bool:
            return f"hami_webhook_unasked_resources {missing}.0" in (await replica.get("/metrics"))[1]

        await until(is_told)

    await counts(0)
    Path(cluster.device_config_file).write_text(nvidia + "hygon: {resourceCountName: hygon.com/dcunum}\n")
    await counts(1)
    assert '"resources":["hygon.com/dcunum"]' in replica.process.log.read_text()
    Path(cluster.device_config_file).write_text(nvidia)
    await counts(0)
    assert 1 == replica.count(said)

    await cluster.api.delete(CONFIGURATION)
    await counts(1)
    await cluster.configure(port)
    await counts(0)
    assert 2 == replica.count(said)


async def test_expiry_and_writes_can_be_scraped(cluster: Cluster) -> None:
    """Alerts need the expiry, and a counter that shows replicas that undo each other's writes."""
    await cluster.configure(port := free_port())
    replica = await cluster.start(port)
    await until(replica.is_ready)
    await cluster.write({"tls.crt": "Z2FyYmFnZQ=="})
    await replica.event("Secret has unusable entries")
    await replica.event("Certificate renewed", times=2)

    found = await cluster.secret()
    assert found.serving is not None
    assert found.authority is not None
    _, text = await replica.get("/metrics")
    metrics = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    end = found.serving.certificate.not_valid_after_utc.timestamp()
    assert end == float(metrics["hami_webhook_certificate_expiry_timestamp_seconds"])
    assert "1.0" == metrics["hami_webhook_certificate_faults_total"]
    assert "2.0" == metrics['hami_webhook_certificate_writes_total{object="secret"}']
