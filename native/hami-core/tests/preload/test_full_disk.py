"""
A disk without space ends no program. Its limits hold for each process by itself, which is said once.
"""

from dataclasses import replace

import pytest
from containers import Container

ON_SMALL_DISK = """
try:
    mount_small_disk(os.path.dirname(os.environ["CUDA_DEVICE_MEMORY_SHARED_CACHE"]), {size!r})
except OSError as error:
    say(str(error))
    sys.exit(0)
{left_behind}
cuda = Cuda()
kernel = cuda.kernel(0)
say([cuda.launch(kernel), cuda.allocate(900 * MIB)[0], cuda.allocate(200 * MIB)[0]])
"""
SPARSE_FILE = """
import struct
with open(os.environ["CUDA_DEVICE_MEMORY_SHARED_CACHE"], "wb") as region:
    region.write(struct.pack("<iII", 19920718, 1, 2))
    region.truncate(2008953)
"""
NO_REGION = "No space left on device; limits hold for each process by itself"
NO_GPU_TIME = "No space left on device; SM limits hold for each process by itself"


@pytest.mark.parametrize(
    ("size", "left_behind", "said"),
    [
        pytest.param("64k", "", [NO_REGION, NO_GPU_TIME], id="no-region"),
        pytest.param("64k", SPARSE_FILE, [NO_REGION, NO_GPU_TIME], id="sparse-region-of-an-older-version"),
        pytest.param("3m", "", [NO_GPU_TIME], id="no-gpu-time"),
    ],
)
def test_full_disk_ends_no_program(container: Container, size: str, left_behind: str, said: list[str]) -> None:
    """
    The program runs, its limit holds, and each file that has no space is named.
    """
    disk = container.folder / "disk"
    disk.mkdir()
    result, errors = replace(container, imports=("client", "namespaces")).run_and_listen(
        ON_SMALL_DISK.format(size=size, left_behind=left_behind),
        CUDA_DEVICE_MEMORY_SHARED_CACHE=str(disk / "share.cache"),
        CUDA_DEVICE_SM_LIMIT="50",
        LIBCUDA_LOG_LEVEL="2",
    )
    if isinstance(result, str):
        pytest.skip(f"no disk can be mounted: {result}")

    assert [0, 0, 2] == result
    messages = [line for line in errors.splitlines() if "No space" in line]
    assert [text in message for text, message in zip(said, messages, strict=True)] == [True] * len(said), errors
