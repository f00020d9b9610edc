"""
`kubectl hami waiting`, `explain` and `simulate` answer as the scheduler itself, without a command in its container.
"""

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harness.client import asked, until_explained
from harness.cluster import Cluster
from harness.clusters.embedded import EmbeddedCluster
from harness.manifests import a_pod
from testbed.waiting import eventually

TOO_MUCH_MIB = 50_000
"""No device of the cluster has so much."""
SCHEDULER = Path(sys.executable).with_name("hami-scheduler")


async def refused(cluster: Cluster, name: str = "large") -> None:
    """Create a Pod that fits nowhere, and wait until the scheduler has said so."""
    await cluster.create(a_pod(name, gpu=1, gpumem=TOO_MUCH_MIB))
    await until_explained(cluster, name)


async def test_waiting_names_the_pod_its_cause_and_what_would_help(cluster: Cluster) -> None:
    """The three things that one asks of a Pod that waits."""
    await refused(cluster)

    answer = await asked(cluster, "waiting", "-n", cluster.namespace)

    [heads, row] = answer.output.splitlines()
    assert ["NAMESPACE", "POD", "AGE", "CAUSE"] == heads.split()[:4]
    assert [cluster.namespace, "large"] == row.split()[:2]
    assert f"lack {TOO_MUCH_MIB} MiB on any NVIDIA device" in row
    assert f"instead of {TOO_MUCH_MIB} in container main" in row
    assert (0, "") == (answer.code, answer.errors)


@pytest.mark.embedded_only
async def test_explain_has_the_words_of_the_schedulers_own_command(cluster: EmbeddedCluster) -> None:
    """Both lay out the same report in the same way."""
    await refused(cluster)
    own = await asyncio.create_subprocess_exec(
        *(str(SCHEDULER), "explain", "large", "-n", cluster.namespace, "--server", cluster.explain_url),
        stdout=asyncio.subprocess.PIPE,
    )

    answer = await asked(cluster, "explain", "large", "-n", cluster.namespace)

    assert (await own.communicate())[0].decode() == answer.output
    assert (1, "") == (answer.code, answer.errors)


@pytest.mark.parametrize(
    ("spec", "verdict", "words"),
    [
        pytest.param(
            {"nodeSelector": {"pool": "nowhere"}}, "refused", "lacks the label pool=nowhere", id="nodeSelector"
        ),
        pytest.param({"schedulerName": "volcano"}, "other-scheduler", "is for the scheduler volcano", id="scheduler"),
        pytest.param({"schedulingGates": [{"name": "example.com/wait"}]}, "gated", "example.com/wait", id="gate"),
    ],
)
async def test_pod_about_which_nobody_asks_the_scheduler_never_fits_now(
    cluster: Cluster, spec: dict[str, Any], verdict: str, words: str
) -> None:
    """Its devices are free, and the extender's silence means nothing: who rules it out is said."""
    await cluster.create(a_pod("held", gpu=1, gpumem=1000, spec=spec))

    async def is_judged() -> bool:
        pod = await cluster.api.get(f"/api/v1/namespaces/{cluster.namespace}/pods/held")
        return bool(pod["status"].get("conditions")) or verdict == "other-scheduler"

    await eventually(is_judged, "kube-scheduler or the API server says why it waits")
    explained = await asked(cluster, "explain", "held", "-n", cluster.namespace, "-o", "json")
    waiting = await asked(cluster, "waiting", "-n", cluster.namespace)
    page = await asked(cluster, "explain", "held", "-n", cluster.namespace)
    await cluster.delete_pod("held")  # Nobody writes an Event about a gated Pod, and at rest every waiting Pod has one.

    report = json.loads(explained.output)
    assert (1, verdict, None) == (explained.code, report["verdict"], report["node"])
    assert words in page.output
    assert "now, on node" not in waiting.output
    assert "held" in waiting.output
    if verdict == "refused":
        assert "didn't match Pod's node affinity/selector" in report["kubeScheduler"]


async def test_processors_that_no_node_has_are_told_before_the_pod_exists(cluster: Cluster) -> None:
    """`simulate` judges what kube-scheduler judges first."""
    pod = a_pod("large", gpu=1, gpumem=1000)
    pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1000"}

    answer = await asked(cluster, "simulate", "-f", "-", stdin=json.dumps(pod).encode())

    assert "kube-scheduler rules out" in answer.output
    assert "lacks 1000 cpu" in answer.output
    assert 1 == answer.code


async def test_simulate_says_what_a_manifest_would_get(cluster: Cluster) -> None:
    """Nothing is created."""
    fits, refused_one = a_pod("fits", gpu=1, gpumem=1000), a_pod("large", gpu=1, gpumem=TOO_MUCH_MIB)
    manifest = json.dumps({"kind": "List", "apiVersion": "v1", "items": [fits, refused_one]}).encode()

    answer = await asked(cluster, "simulate", "-f", "-", "-o", "json", stdin=manifest)

    assert ["fits", "refused"] == [report["verdict"] for report in json.loads(answer.output)]
    assert 1 == answer.code
    assert [] == (await cluster.api.list(f"/api/v1/namespaces/{cluster.namespace}/pods"))[0]


async def test_as_many_pods_start_as_fits_has_said_and_on_the_nodes_that_it_named(cluster: Cluster) -> None:
    """Pods are really created until one waits."""
    pod = a_pod("one", gpu=1, gpumem=9000)
    pod["kind"] = "Deployment"
    pod["spec"] = {"replicas": 100, "template": {"spec": pod["spec"]}}
    manifest = json.dumps(pod).encode()
    where = ("-f", "-", "-n", cluster.namespace)
    said = json.loads((await asked(cluster, "fits", *where, "-o", "json", stdin=manifest)).output)
    simulated = await asked(cluster, "simulate", *where, stdin=manifest)
    count: int = said["placed"]

    for number in range(count + 1):
        await cluster.create(a_pod(f"p{number}", gpu=1, gpumem=9000))
    await until_explained(cluster, f"p{count}")

    async def places() -> Counter[str]:
        pods = (await cluster.api.list(f"/api/v1/namespaces/{cluster.namespace}/pods"))[0]
        return Counter(one["spec"]["nodeName"] for one in pods if one["spec"].get("nodeName"))

    async def all_have_nodes() -> bool:
        return sum((await places()).values()) == count

    await eventually(all_have_nodes, "all other Pods have Nodes")
    assert {place["node"]: place["count"] for place in said["places"]} == await places()
    assert f"{count} of 100 Pods of {cluster.namespace}/one fit" in simulated.output
    assert 1 == simulated.code
    after = await asked(cluster, "fits", *where, "--add", "1x2 NVIDIA A10:24576", stdin=manifest)
    assert f"4 more Pods like {cluster.namespace}/one fit" in after.output


async def test_pod_that_does_not_exist_is_one_sentence(cluster: Cluster) -> None:
    """And not an answer."""
    answer = await asked(cluster, "explain", "nobody", "-n", cluster.namespace)

    sentence = f"kubectl hami explain: the scheduler: there is no Pod {cluster.namespace}/nobody\n"
    assert (2, "", sentence) == (answer.code, answer.output, answer.errors)


@pytest.mark.embedded_only
async def test_without_a_scheduler_waiting_still_says_who_waits(cluster: EmbeddedCluster) -> None:
    """The Event has the cause; only what would help is unknown."""
    await refused(cluster)
    await cluster.kill("scheduler")

    answer = await asked(cluster, "waiting", "-n", cluster.namespace)

    assert f"lack {TOO_MUCH_MIB} MiB on any NVIDIA device" in answer.output
    [error] = answer.errors.splitlines()
    assert error.startswith("kubectl hami: what would help is unknown: Pod hami/hami-scheduler")
    await cluster.heal()
