"""
`kubectl hami usage` says how many device-hours were held.
"""

from pathlib import Path

from harness.client import asked, asked_json
from harness.cluster import Cluster
from harness.manifests import a_pod
from testbed.waiting import eventually


async def test_what_a_pod_holds_is_counted_for_its_namespace(cluster: Cluster, tmp_path: Path) -> None:
    """Since counting began, and since an archive that was taken before."""
    archive = tmp_path / "before.tar.gz"
    assert 0 == (await asked(cluster, "bundle", "--file", str(archive))).code
    await cluster.create(a_pod("p", command=("gpu-hold", "--mib", "1000"), gpu=1, gpumem=3000, gpucores=25))
    await cluster.pod_in_phase("p", "Running")

    async def is_counted() -> bool:
        found = await asked_json(cluster, "usage", "pods", "-n", cluster.namespace, "--since", str(archive))
        [of_cluster] = found["clusters"]
        return [one["pod"] for one in of_cluster["usage"] if one["heldHours"] > 0] == ["p"]

    await eventually(is_counted, "the monitor has saved what the Pod held", 60)

    answer = await asked(cluster, "usage", "-n", cluster.namespace)
    assert [cluster.namespace] == [line.split()[0] for line in answer.output.splitlines()[1:]]
