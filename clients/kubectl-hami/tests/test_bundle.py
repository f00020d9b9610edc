"""
An archive holds what a diagnosis needs, and no secret.
"""

import io
import tarfile
from pathlib import Path
from typing import Any

import orjson
import pytest

from kubectl_hami.answer.state import state_of
from kubectl_hami.read.archive import Archive, load
from kubectl_hami.read.collect import collect
from kubectl_hami.read.recorder import Recorder
from kubectl_hami.read.redaction import UnknownAnswerError, redacted, scrubbed
from kubectl_hami.read.source import Endpoint, ReadError

from .builders import a_device, a_node, a_pod, a_refusal, a_scrape, a_share
from .fakes import FakeSource, a_service

MARK = "S3CRET"


def a_talkative_pod() -> dict[str, Any]:
    """Return a Pod with a secret in every place that has room for one."""
    pod = a_pod("p", a_share())
    [container] = pod["spec"]["containers"]
    container |= {
        "image": f"registry/{MARK}:1",
        "command": [MARK],
        "args": [f"--password={MARK}"],
        "env": [{"name": "KEY", "value": MARK}],
        "envFrom": [{"secretRef": {"name": MARK}}],
        "volumeMounts": [{"name": MARK, "mountPath": f"/{MARK}"}],
        "livenessProbe": {"exec": {"command": [MARK]}},
        "lifecycle": {"preStop": {"exec": {"command": [MARK]}}},
    }
    pod["spec"] |= {
        "volumes": [{"name": MARK, "hostPath": {"path": f"/{MARK}"}}],
        "imagePullSecrets": [{"name": MARK}],
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": [MARK]}],
        "ephemeralContainers": [{"name": MARK, "image": MARK}],
        "schedulingGates": [{"name": "gate", "more": MARK}],
        "initContainers": [{"name": "init", "args": [MARK]}],
    }
    pod["metadata"]["annotations"] |= {"kubectl.kubernetes.io/last-applied-configuration": MARK, "other.io/x": MARK}
    pod["metadata"] |= {"labels": {"team": MARK}, "managedFields": [MARK], "ownerReferences": [{"name": MARK}]}
    pod["status"] |= {
        "message": MARK,
        "podIP": MARK,
        "conditions": [{"type": "Ready", "status": "False", "message": MARK}],
        "containerStatuses": [
            {"name": "main", "image": MARK, "imageID": MARK, "state": {"waiting": {"reason": "Error", "message": MARK}}}
        ],
    }
    return pod


def answers(*pods: dict[str, Any]) -> dict[str, Any]:
    """Return the API server's answers about a Node, its monitor and *pods*."""
    return {
        "/api/v1/nodes": {"items": [a_node("n1", a_device())]},
        "/api/v1/pods": {"items": [a_service("monitor", "m", metrics=9394), *pods]},
        "/api/v1/events": {"items": [a_refusal("waits")]},
        "/api/v1/namespaces/hami/pods/m:9394/proxy/metrics": a_scrape({"hami_vgpu_memory_used_bytes": 2**20}),
    }


def taken(source: FakeSource, folder: Path) -> tuple[Recorder, Archive]:
    """Return the recording of a collection, and the archive that it makes."""
    recorder = Recorder(source)
    collect(recorder)
    file = folder / "bundle.tar.gz"
    file.write_bytes(recorder.packed(b"{}"))
    return recorder, load(str(file))


def test_archive_answers_as_the_cluster_did(tmp_path: Path) -> None:
    """Every command works on it."""
    source = FakeSource(answers(a_talkative_pod(), a_pod("waits")))

    _, archive = taken(source, tmp_path)

    live, offline = state_of(collect(source)), state_of(collect(archive))
    assert live.nodes == offline.nodes
    assert live.waiting == offline.waiting
    assert 1 == len(offline.waiting)
    assert 3000 == offline.nodes[0].devices[0].granted_memory_mib


def test_no_secret_of_a_pod_is_in_the_archive(tmp_path: Path) -> None:
    """Whatever field it stands in."""
    recorder, _ = taken(FakeSource(answers(a_talkative_pod())), tmp_path)

    with tarfile.open(fileobj=io.BytesIO(recorder.packed(b"")), mode="r:gz") as archive:
        for member in archive:
            content = archive.extractfile(member)
            assert content is not None
            assert MARK.encode() not in content.read(), member.name


def test_failure_is_recorded_and_told_again(tmp_path: Path) -> None:
    """It is a part of the diagnosis."""
    forbidden = {**answers(), "/api/v1/events": ReadError("/api/v1/events", "forbidden", 403)}

    _, archive = taken(FakeSource(forbidden), tmp_path)

    assert ("/api/v1/events: forbidden (when the archive was taken)",) == collect(archive).problems


def test_what_was_not_asked_is_not_in_the_archive(tmp_path: Path) -> None:
    """It says so, and does not pretend that there is nothing."""
    _, archive = taken(FakeSource(answers()), tmp_path)

    with pytest.raises(ReadError, match="is not in the archive"):
        archive.get("/api/v1/services")
    with pytest.raises(ReadError, match="answers no question about new Pods"):
        archive.ask(Endpoint("hami", "s", 1), "/simulate", b"[]")


@pytest.mark.parametrize("path", ["/api/v1/secrets", "/api/v1/namespaces/a/services", "/apis/batch/v1/jobs"])
def test_kind_without_a_list_of_what_is_kept_is_not_kept(path: str) -> None:
    """A new question has to say first what is secret in its answer."""
    with pytest.raises(UnknownAnswerError):
        redacted(path, b'{"items": []}')


def test_workload_is_kept_without_its_template() -> None:
    """It has the environment of every container."""
    workload = {"metadata": {"name": "hami"}, "spec": {"replicas": 2, "template": {"spec": {"secret": MARK}}}}

    found = orjson.loads(redacted("/apis/apps/v1/deployments", orjson.dumps({"items": [workload]})))

    assert [{"replicas": 2}] == [one["spec"] for one in found["items"]]
    assert MARK not in str(found)


def test_only_our_config_maps_are_kept() -> None:
    """Others in the namespace may hold anything."""
    ours = {"metadata": {"name": "a"}, "data": {"config.yaml": "kind: KubeSchedulerConfiguration", "more": MARK}}
    other = {"metadata": {"name": "b"}, "data": {"x": MARK}}

    found = orjson.loads(redacted("/api/v1/namespaces/hami/configmaps", orjson.dumps({"items": [ours, other]})))

    assert ["a"] == [one["metadata"]["name"] for one in found["items"]]
    assert MARK not in str(found)


@pytest.mark.parametrize(
    "text",
    [
        f"password={MARK}",
        f'{{"token": "{MARK}"}}',
        f"Authorization: Bearer {MARK}",
        f"https://user:{MARK}@host/",
        f"-----BEGIN RSA PRIVATE KEY-----\n{MARK}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{MARK}",
        f"eyJhbGciOiJSUzI1NiJ9.{MARK}.{MARK}",
    ],
)
def test_credential_in_a_log_is_removed(text: str) -> None:
    """By its look, because a log has no fields."""
    assert MARK not in scrubbed(f"before {text}")
    assert scrubbed(f"before {text}").startswith("before ")


def a_tar(**members: bytes) -> bytes:
    """Return a compressed archive of *members*."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name.replace("_json", ".json"))
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return target.getvalue()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is no archive"),
        (b"\x1f\x8b broken", "is no archive"),
        (a_tar(other=b""), "its index.json is missing or malformed"),
        (a_tar(index_json=b"[]"), "its index.json is missing or malformed"),
        (a_tar(index_json=b"not json"), "its index.json is missing or malformed"),
        (a_tar(index_json=b'{"format": 99}'), "has format 99, and this version reads 1"),
        (a_tar(index_json=b'{"format": 1, "answers": [{"question": "q", "file": "gone"}]}'), "missing or malformed"),
    ],
    ids=("empty", "broken", "no index", "list", "text", "newer", "without its file"),
)
def test_file_that_is_no_archive_is_one_sentence(content: bytes, why: str, tmp_path: Path) -> None:
    """It comes from somebody else."""
    file = tmp_path / "f"
    file.write_bytes(content)

    with pytest.raises(ReadError, match=why):
        load(str(file))


def test_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    """A small file can hold a large one."""
    file = tmp_path / "f"
    file.write_bytes(a_tar(zeros=bytes(65 * 2**20)))

    with pytest.raises(ReadError, match="is too large at 'zeros'"):
        load(str(file))


def test_only_the_schedulers_events_keep_their_message() -> None:
    """A kubelet's Event may repeat what a container printed; that it happened, when and how often is kept."""
    ours = {"reason": "FilteringFailed", "message": "0 of 2 nodes", "series": {"count": 3}}
    other = {"reason": "Unhealthy", "type": "Warning", "count": 2, "message": f"Liveness probe failed: {MARK}"}

    found = orjson.loads(redacted("/api/v1/namespaces/ns/events", orjson.dumps({"items": [ours, other]})))

    [kept, removed] = found["items"]
    assert ("0 of 2 nodes", {"count": 3}) == (kept["message"], kept["series"])
    assert ("Unhealthy", "Warning", 2, "[removed]") == tuple(
        removed[name] for name in ("reason", "type", "count", "message")
    )
