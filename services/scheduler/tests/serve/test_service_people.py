"""What a running scheduler tells people and Prometheus, and how it takes over another device config."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hami_scheduler import cli, main
from hami_scheduler.cli import FITS, FITS_NOT, UNKNOWN
from hami_scheduler.serve.background import cluster_feed
from hamicommon.runtime.serving.http import SCRAPE_SECONDS
from testbed.waiting import eventually

from ..support.api_server import ApiServer
from ..support.builders import VECTORS, a_container, a_device, a_node, a_pod, promise_of
from ..support.service import Running, running

CONFIG = (VECTORS / "device-config-default.yaml").read_text()


async def asked(*arguments: str) -> int:
    """Run a command beside the scheduler."""
    return await asyncio.to_thread(cli.main, arguments)


# Questions


async def test_live_scheduler_explains_a_pod(scheduler: Running, capsys: pytest.CaptureFixture[str]) -> None:
    """The command line, over its listener; nothing is held or written."""
    assert FITS == await asked("explain", "p", "--server", scheduler.explain_url)

    assert "default/p fits node exact" in capsys.readouterr().out
    assert 0 == len(scheduler.cluster.reservations)
    assert [] == scheduler.api.writes


async def test_report_of_a_waiting_pod_names_the_nodes_left_out(scheduler: Running) -> None:
    """kube-scheduler's own filters come first, and a decision on devices alone does not show them."""
    pod = scheduler.api.put("pods", a_pod("big", a_container(gpu=1, gpumem=99999)))
    await scheduler.filter(pod, "exact")

    _, text = await scheduler.get(f"{scheduler.explain_url}/explain/default/big")

    assert "refused" == json.loads(text)["verdict"]
    assert "last asked about 1 nodes; its own filters left out locked" in text


async def test_live_scheduler_reads_what_kube_scheduler_judges_by(
    scheduler: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the API server, when somebody asks; the answer names who rules out each Node."""
    api = scheduler.api
    for name in ("exact", "locked"):
        node = api.objects["nodes"][name]
        node["status"]["allocatable"] |= {"cpu": "8", "pods": "1" if name == "exact" else "9"}
        api.put("nodes", node)
    busy = {"name": "busy", "resources": {"requests": {"cpu": "5"}}}
    api.put("pods", a_pod("busy", busy, node="locked"))
    api.put("pods", a_pod("other", a_container(), node="exact"))
    wants = a_container(gpu=1)
    wants["resources"]["requests"] = {"cpu": "4"}
    api.put("pods", a_pod("wants", wants))

    assert FITS_NOT == await asked("explain", "wants", "--server", scheduler.explain_url)

    out = " ".join(capsys.readouterr().out.split())
    assert "0 of 2 nodes: kube-scheduler rules out 2: 1 lacks 4 cpu (best has 3), 1 has no place for another Pod" in out
    assert "exact kube-scheduler: has no place for another Pod (1 of 1); its devices would take it" in out
    assert [] == api.writes


async def test_live_scheduler_that_cannot_read_the_nodes_judges_devices_alone_and_says_so(
    scheduler: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    """The answer is not thrown away, and is no more than it is; the next question tries again."""
    scheduler.api.fail("/api/v1/nodes", 503)

    assert FITS == await asked("explain", "p", "--server", scheduler.explain_url)
    out = " ".join(capsys.readouterr().out.split())
    assert "note: only devices were judged, not kube-scheduler's part" in out
    assert "Nodes and Pods could not be read" in out
    await asked("explain", "p", "--server", scheduler.explain_url)
    assert "could not be read" not in capsys.readouterr().out


async def test_live_scheduler_simulates_pods(
    scheduler: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One after the other; the last finds no room."""
    manifest = tmp_path / "pods.json"
    pods = [{**a_pod(f"s{number}", a_container(gpu=1, gpumem=10000)), "kind": "Pod"} for number in range(3)]
    manifest.write_text(json.dumps({"kind": "PodList", "items": pods}))

    assert FITS_NOT == await asked("simulate", "-f", str(manifest), "-o", "json", "--server", scheduler.explain_url)

    found = json.loads(capsys.readouterr().out)
    assert [("exact", "fits"), ("locked", "fits"), (None, "refused")] == [(r["node"], r["verdict"]) for r in found]


async def test_live_scheduler_counts_replicas_and_imagines_nodes(
    scheduler: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cluster stays as it is; a silly number is refused with its place."""
    manifest = tmp_path / "web.json"
    template = {"spec": a_pod("w", a_container(gpu=1, gpumem=8000))["spec"]}
    web = {"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 5, "template": template}}
    manifest.write_text(json.dumps(web))
    arguments = ("-f", str(manifest), "--server", scheduler.explain_url)

    assert FITS_NOT == await asked("simulate", *arguments)
    assert "4 of 5 Pods of default/web fit" in capsys.readouterr().out
    assert FITS == await asked("simulate", *arguments, "--add", "1x1 NVIDIA A10:16384")
    assert "all 5 Pods of default/web fit" in capsys.readouterr().out
    assert FITS == await asked("fits", *arguments, "--add", "1x1 NVIDIA A10:16384")
    assert "6 more Pods like default/web fit" in capsys.readouterr().out
    assert UNKNOWN == await asked("fits", *arguments, "--add", "1x1")
    assert "'1x1' must be NODESxDEVICES MODEL:MIB" in capsys.readouterr().err
    assert [] == scheduler.api.writes
    pod = a_pod("w")
    for pods, words in (
        ([{**pod, "count": 100_001}], "Pods[0].count: must be between 1 and 100000"),
        ([{**pod, "count": 0}], "Pods[0].count: must be between 1 and 100000"),
        ([{**pod, "count": "9"}], "Pods[0].count must be a whole number"),
        ([pod] * 501, "Pods: 501 of them; at most 500 can differ"),
    ):
        async with scheduler.session.post(f"{scheduler.explain_url}/simulate", json=pods) as answer:
            text = await answer.text()
            assert (400, True) == (answer.status, words in text), text


async def test_snapshot_answers_as_the_scheduler_does(
    scheduler: Running, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """With the scheduler's own device config and policies."""
    kubeconfig = scheduler.api.kubeconfig(tmp_path)
    assert FITS == await asked("snapshot", "--kubeconfig", kubeconfig, "--server", scheduler.explain_url)
    path = tmp_path / "cluster.json"
    path.write_bytes(capsysbinary.readouterr().out)

    assert FITS == await asked("explain", "p", "--snapshot", str(path), "-o", "json")
    offline = json.loads(capsysbinary.readouterr().out)
    assert FITS == await asked("explain", "p", "--server", scheduler.explain_url.removeprefix("http://"), "-o", "json")
    assert offline == json.loads(capsysbinary.readouterr().out)


async def test_question_that_cannot_be_answered_says_why(
    scheduler: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No such Pod, an API server that does not answer, weights nobody can read, a body that is no list."""
    weights = {"hami.io/device-scoring-weights": "slot=x"}
    odd = scheduler.api.put("pods", a_pod("odd", annotations=weights))
    manifest = tmp_path / "odd.json"
    manifest.write_text(json.dumps({**odd, "kind": "Pod"}))
    selector = tmp_path / "selector.json"
    selector.write_text(json.dumps({**odd, "kind": "Pod", "spec": {**odd["spec"], "nodeSelector": ["x"]}}))
    scheduler.api.fail("/pods/p", 500)
    for arguments, text in (
        (("explain", "none"), "there is no Pod default/none"),
        (("explain", "p"), "Pod default/p could not be read"),
        (("explain", "odd"), "Pod default/odd, hami.io/device-scoring-weights"),
        (("simulate", "-f", str(manifest)), "hami.io/device-scoring-weights"),
        (("simulate", "-f", str(selector)), "Pod.spec.nodeSelector: must be an object, not list"),
    ):
        assert UNKNOWN == await asked(*arguments, "--server", scheduler.explain_url)
        assert text in capsys.readouterr().err
    deep = b'[{"spec": {"a": ' + b"[" * 400 + b"]" * 400 + b"}}]"
    for body in (b"{}", b"[", b"[5]", b'[{"spec": []}]', b'[{"spec": {"containers": [{"env": 5}]}}]', deep):
        async with scheduler.session.post(f"{scheduler.explain_url}/simulate", data=body) as answer:
            assert (400, True) == (answer.status, "JSON list of Pods" in await answer.text())


async def test_taken_address_does_not_stop_scheduling(api: ApiServer, tmp_path: Path) -> None:
    """Two schedulers on one host: the second warns and works. An empty address serves nothing."""
    async with running(api, tmp_path) as first:
        address = f"127.0.0.1:{first.explain_port}"
        with capture_logs() as lines:
            async with running(api, tmp_path, explain_bind_address=address) as second:
                assert ["exact"] == (await second.filter(api.pod("p"), "exact"))["NodeNames"]
        assert ["Explanations are not served"] == [line["event"] for line in lines if line["log_level"] == "warning"]
    async with running(api, tmp_path, explain_bind_address="") as silent:
        assert silent.explain_port is None


async def test_report_names_the_flag_of_a_vendor_that_is_not_placed(
    api: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a Pod that is there and of one that is not; where the flag is given, nothing is left out."""
    chip = {"name": "app", "resources": {"limits": {"huawei.com/Ascend910B3": "1"}}}
    pod = api.put("pods", a_pod("chip", chip))
    manifest = tmp_path / "chip.json"
    manifest.write_text(json.dumps({**pod, "kind": "Pod"}))
    for settings, count in (({}, 1), ({"has_ascend": True}, 0)):
        async with running(api, tmp_path, **settings) as scheduler:
            for arguments in (("explain", "chip"), ("simulate", "-f", str(manifest))):
                await asked(*arguments, "--server", scheduler.explain_url)
                told = " ".join(capsys.readouterr().out.split())
                assert count == told.count(
                    "container app names huawei.com/Ascend910B3, which this scheduler leaves alone: "
                    "it runs without --enable-ascend"
                )


# Metrics


async def test_metrics_are_where_kube_scheduler_calls_if_nowhere_else(api: ApiServer, tmp_path: Path) -> None:
    """An empty address is none, as for the webhook."""
    async with running(api, tmp_path, metrics_bind_address="") as scheduler:
        assert scheduler.metrics_url.endswith(":None")
        status, text = await scheduler.get(scheduler.url + "/metrics")

    assert (200, True) == (status, "hami_gpu_memory_limit_bytes{" in text)


async def test_refusals_and_requests_are_counted(scheduler: Running) -> None:
    """By the code most Nodes gave, and by what was asked of the API server and what became of it."""
    await scheduler.filter(a_pod("big", a_container(gpu=1, gpumem=99999)), "exact", "locked", "ghost")
    scheduler.api.fail("/binding", 409)
    await scheduler.filter(scheduler.api.pod("p"), "exact")
    await scheduler.bind(scheduler.api.pod("p"), "exact")

    _, text = await scheduler.get(scheduler.metrics_url + "/metrics")

    for line in (
        'hami_scheduler_refused_filters_total{reason="CardInsufficientMemory"} 1.0',
        'hami_scheduler_refused_filters_total{reason="CardCordoned"} 0.0',
        'hami_scheduler_api_requests_total{outcome="conflict",resource="pods/binding",verb="create"} 1.0',
        'hami_scheduler_api_requests_total{outcome="ok",resource="nodes",verb="list"} 1.0',
        'hami_scheduler_api_request_seconds_count{verb="create"}',
        "hami_scheduler_api_throttled_seconds_total",
        'hami_scheduler_devices{device_type="NVIDIA A10",state="open",vendor="NVIDIA"} 2.0',
        'hami_scheduler_shares{device_type="NVIDIA A10",part="offered",vendor="NVIDIA"} 20.0',
        'hami_scheduler_memory_bytes{device_type="NVIDIA A10",part="granted",vendor="NVIDIA"} 0.0',
    ):
        assert line in text


async def test_sampled_nodes_are_noticed(scheduler: Running) -> None:
    """A sample hides room: 102 Nodes are there, and just as many are shown as kube-scheduler takes of them."""
    for number in range(100):
        scheduler.api.put("nodes", a_node(f"n{number}"))
    await eventually(lambda: scheduler.cluster.node_count == 102)
    names = ["exact", *(f"n{number}" for number in range(100))]
    await scheduler.filter(a_pod("some", uid="1"), *names[:99])
    await scheduler.filter(a_pod("all", uid="2"), *names, "locked")
    assert 0 == scheduler.service.context.sampled_filters

    await scheduler.filter(a_pod("sample", uid="3"), *names[:100])

    _, text = await scheduler.get(scheduler.metrics_url + "/metrics")
    assert "hami_scheduler_sampled_filters_total 1.0" in text


@pytest.mark.parametrize(
    ("setting", "limit", "is_there"), [("never", 10, False), ("always", 1, True), ("auto", 1, False), ("auto", 2, True)]
)
async def test_devices_have_series_as_the_flag_says(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, limit: int, is_there: bool
) -> None:
    """Sums over types are always there; what grows with the cluster is not."""
    monkeypatch.setattr(main, "DEVICE_SERIES_LIMIT", limit)
    async with running(api, tmp_path, device_metrics=setting) as scheduler:
        _, text = await scheduler.get(scheduler.metrics_url + "/metrics")

    assert is_there == ("hami_gpu_memory_limit_bytes{" in text)
    assert f"hami_scheduler_device_series {float(is_there)}" in text
    assert "hami_scheduler_memory_bytes{" in text


# Another device config


@asynccontextmanager
async def configured(
    api: ApiServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Running, Path]]:
    """Run a scheduler whose device config is in a file, looked at all the time."""
    monkeypatch.setattr(cluster_feed, "DEVICE_CONFIG_SECONDS", 0.01)
    path = folder / "device-config.yaml"
    path.write_text(CONFIG)
    async with running(api, folder, device_config_file=str(path)) as scheduler:
        yield scheduler, path


def put(path: Path, text: str) -> None:
    """Let *path* hold *text* from one instant to the next, as a ConfigMap's volume does."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


def other_names(config: str) -> str:
    """Return *config* with another name for NVIDIA's devices."""
    return config.replace("resourceCountName: nvidia.com/gpu\n", "resourceCountName: nvidia.com/device\n").replace(
        'resourceCountName: "nvidia.com/gpu"\n', 'resourceCountName: "nvidia.com/device"\n'
    )


async def test_new_device_config_is_taken_over(api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bound Pods, and what is held for Pods not bound yet, count on; new Pods are read by the new names."""
    assert CONFIG != other_names(CONFIG)
    api.put("pods", a_pod("bound", node="exact", allocated="GPU-a,NVIDIA,5000,0:;"))
    async with configured(api, tmp_path, monkeypatch) as (scheduler, path):
        await scheduler.filter(api.pod("p"), "exact")
        before, digest = scheduler.cluster, scheduler.service._devices.digest
        exact = {**api.objects["nodes"]["exact"]}
        exact["status"] = {"allocatable": {"nvidia.com/gpu": "10", "nvidia.com/device": "10"}}
        api.put("nodes", exact)
        put(path, other_names(CONFIG))
        await eventually(lambda: scheduler.cluster is not before)

        assert 6000 == promise_of(scheduler.cluster.ledger, "exact", "GPU-a").memory_mib
        assert "" == await scheduler.bind(api.pod("p"), "exact")
        renamed = a_pod("new", {"name": "c", "resources": {"limits": {"nvidia.com/device": 1, "nvidia.com/gpumem": 1}}})
        assert "exact" in (await scheduler.filter(renamed, "exact", "x"))["NodeNames"]
        unmanaged = a_pod("old", a_container(gpu=1, gpumem=99999))
        assert ["exact", "x"] == (await scheduler.filter(unmanaged, "exact", "x"))["NodeNames"]
        later = a_node("later", a_device("GPU-later"))
        api.put("nodes", {**later, "status": exact["status"]})
        await eventually(lambda: scheduler.cluster.ledger.node("later"))
        _, text = await scheduler.get(scheduler.metrics_url + "/metrics")
        assert digest not in text
        assert f'hami_device_config_info{{hash="{scheduler.service._devices.digest}"}} 1.0' in text


async def test_bad_device_config_is_refused_with_every_error(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old config stays in force and the metrics show it, until a good config arrives."""
    async with configured(api, tmp_path, monkeypatch) as (scheduler, path):
        before = scheduler.cluster
        with capture_logs() as lines:
            put(path, CONFIG.replace("deviceSplitCount: 10", "deviceSplitCount: many") + "\nhygon: 7\n")
            await eventually(lambda: scheduler.service._devices._is_refused)
        [told] = [line for line in lines if line["log_level"] == "error"]
        _, text = await scheduler.get(scheduler.metrics_url + "/metrics")

        assert scheduler.cluster is before
        assert len(told["problems"]) > 1, told
        assert "hami_device_config_refused 1.0" in text
        assert ["exact"] == (await scheduler.filter(api.pod("p"), "exact"))["NodeNames"]
        put(path, other_names(CONFIG))
        await eventually(lambda: scheduler.cluster is not before)
        await asyncio.sleep(SCRAPE_SECONDS)
        _, text = await scheduler.get(scheduler.metrics_url + "/metrics")
        assert "hami_device_config_refused 0.0" in text
