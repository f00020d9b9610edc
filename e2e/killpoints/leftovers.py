"""
What killed processes leave on the Nodes, once everything else is at rest: nothing.

Reads files, the fake driver and MPS's daemon only. Neighbours: `harness.rest` looks at the API server's objects.
"""

import json
from collections.abc import Iterator, Sequence, Set
from pathlib import Path

from hamicommon.model import Object
from hamicommon.runtime.host import records
from harness.cluster import Cluster
from harness.clusters.embedded import FAKE_DRIVER
from harness.clusters.mixed import MIG, MPS
from killpoints.load import CORES
from testbed.driver.mig import instances
from testbed.driver.mps import MpsCommandError, MpsControl

SPEC = "hami.io-vgpu_"
"""The begin of a CDI spec's name, before the Pod's UID."""
RECORDS = (".limits", *records.KINDS)
"""Folders beside the containers' directories with one entry for each container."""
REMOVED = ".removed"
"""The folder beside them for what is being deleted."""


async def leftovers(cluster: Cluster, mps: MpsControl) -> list[str]:
    """
    Return one sentence for each file, directory or MIG instance on a Node that belongs to no Pod.

    And one if the namespaces of the daemon *mps* are not those of the Pods.
    """
    pods, _ = await cluster.api.list("/api/v1/pods")
    living = {pod["metadata"]["uid"] for pod in pods}
    found = []
    for node in cluster.nodes:
        vgpu, cdi = cluster.vgpu_folder(node.name), cluster.cdi_folder(node.name)
        sentences = [*_temporaries(vgpu, cdi), *_specs(cdi, living), *_directories(vgpu / "containers", living)]
        if node == MIG:
            sentences += _instances(vgpu, cluster.driver_folder(node.name), living)
        if node == MPS:
            sentences += _namespaces(mps, [pod for pod in pods if pod["spec"].get("nodeName") == MPS.name])
        found += [f"{node.name}: {each}" for each in sentences]
    return found


def _temporaries(*folders: Path) -> Iterator[str]:
    for folder in folders:
        yield from (f"temporary file {path}" for path in folder.rglob("*.tmp"))


def _specs(cdi: Path, living: Set[str]) -> Iterator[str]:
    for path in cdi.glob(f"{SPEC}*"):
        if path.name.removeprefix(SPEC).partition("_")[0] not in living:
            yield f"CDI spec {path.name} of a Pod that is gone"


def _directories(containers: Path, living: Set[str]) -> Iterator[str]:
    if (containers / REMOVED).exists():
        yield f"{REMOVED} holds {len([*(containers / REMOVED).iterdir()])} names"
    for folder in (containers, *(containers / name for name in RECORDS)):
        for path in folder.glob("[!.]*"):
            if path.name.partition("_")[0] not in living:
                yield f"{path.relative_to(containers.parent)} of a Pod that is gone"


def _instances(vgpu: Path, hardware: Path, living: Set[str]) -> Iterator[str]:
    """Compare the instances that there are with the journal, and the journal with the Pods."""
    journal = vgpu / "mig-instances.json"
    entries = json.loads(journal.read_text())["instances"] if journal.exists() else []
    for entry in entries:
        if entry["state"] != "live" or entry["pod"]["uid"] not in living:
            yield f"the journal has {entry['migUUID']}, {entry['state']}, of Pod {entry['pod']['name']}"
    known, real = {entry["migUUID"] for entry in entries}, set(instances.instances(FAKE_DRIVER, hardware))
    if known != real:
        yield f"the journal has the instances {sorted(map(str, known))}, the GPU {sorted(real)}"


def _namespaces(mps: MpsControl, pods: Sequence[Object]) -> Iterator[str]:
    """Compare the percentages of all namespaces with what the containers of *pods* have."""
    limits = [each["resources"].get("limits", {}) for pod in pods for each in pod["spec"]["containers"]]
    granted = sorted(int(each[CORES]) for each in limits if CORES in each)
    try:
        rows = mps.rows("namespace", "list", "--server=hami")
    except MpsCommandError as error:
        yield f"MPS does not answer: {error}"
        return
    found = sorted(round(float(row[4])) for row in rows if row[0] != "default")
    if found != granted:
        yield f"MPS has namespaces with {found} %, and the Pods have {granted} %"
