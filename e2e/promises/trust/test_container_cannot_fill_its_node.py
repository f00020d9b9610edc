"""
The folder that a container shares with its Node holds little: it cannot fill the Node's disk or memory.
"""

from harness.cluster import Cluster
from harness.manifests import a_pod

FILL = """
import os, time
folder, names, mib = os.path.dirname(os.environ["CUDA_DEVICE_MEMORY_SHARED_CACHE"]), 0, 0
try:
    while names < 1000:
        open(f"{folder}/{names}", "x").close()
        names += 1
except OSError as error:
    print(error.strerror)
for number in range(names):
    os.unlink(f"{folder}/{number}")
with open(f"{folder}/large", "wb", buffering=0) as file:
    try:
        while mib < 100:
            file.write(bytes(2**20))
            mib += 1
    except OSError as error:
        print(error.strerror)
print("fits:", names < 64, mib <= 16, flush=True)
time.sleep(3600)
"""


async def test_folder_of_the_region_is_bounded_and_not_the_nodes(cluster: Cluster) -> None:
    """By names and by bytes. Nothing of it is on the Node, where the container has its region alone."""
    await cluster.create(a_pod("p", command=("python", "-uc", FILL), gpu=1, gpumem=1000))

    assert "fits: True True" == await cluster.log_line("fits:", "p")
    assert 2 == (await cluster.log("p")).count("No space left on device")
    pod = await cluster.pod("p")
    [folder] = cluster.vgpu_folder(pod["spec"]["nodeName"]).glob(f"containers/{pod['metadata']['uid']}_*")
    assert {".cache", ""} == {path.suffix for path in folder.iterdir()}
