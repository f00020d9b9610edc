"""
Sequences of calls that users report, and that no package on PyPI shows here: equal with and without the library, except
where a limit is meant.
"""

from containers import Container
from replays.page import PAGE, page
from replays.replay import answers, replay


@answers(
    "vLLM with tensor parallelism, NCCL",
    "Project-HAMi/HAMi#1764",
    "Project-HAMi/HAMi-core#169",
    "Project-HAMi/HAMi#2641",
)
def test_ranks_of_vllm_share_memory(container: Container) -> None:
    """
    NCCL asks for host memory by its NUMA node, and the process crashes or hangs before a model is loaded.
    """
    assert ({}, {}) == replay(container, "vllm_parallel.py")


@answers("vLLM's memory profiling", "Project-HAMi/HAMi-core#181", "Project-HAMi/HAMi#1381", "vllm-project/vllm#40937")
def test_vllm_fits_its_cache_into_the_limit(container: Container) -> None:
    """
    Free memory does not fall while vLLM measures, or CUDA and NVML disagree, so its cache is too large or it gives up.
    """
    bare, limited = replay(container, "vllm_profiling.py", FAKE_DRIVER_CONTEXT_MIB="128")

    assert {"memory of the device, MiB": 16384, "blocks of the cache": 894} == bare
    assert {"memory of the device, MiB": 1000, "blocks of the cache": 29} == limited


@answers("llama.cpp's memory pool", "Project-HAMi/HAMi-core#187", "Project-HAMi/HAMi#1196")
def test_pool_of_llama_grows_to_the_limit(container: Container) -> None:
    """
    Memory that is mapped into addresses is not counted, or memory of the host crashes the process.
    """
    bare, limited = replay(container, "llama_vmm.py")

    assert {"memory of the pool, MiB": 16384} == bare
    assert {"memory of the pool, MiB": 960} == limited


@answers("ComfyUI with cudaMallocAsync", "beclab/Olares#3259")
def test_models_of_comfyui_come_and_go(container: Container) -> None:
    """
    Memory runs out although most of the share is free.
    """
    bare, limited = replay(container, "comfyui.py")

    assert ({"free memory, MiB": 16084}, {"free memory, MiB": 700}) == (bare, limited)


@answers("OptiX, Isaac Sim", "Project-HAMi/HAMi-core#333", "Project-HAMi/HAMi-core#321", "Project-HAMi/HAMi-core#234")
def test_optix_leaves_results_out(container: Container) -> None:
    """
    A question with one result left out crashes, and a buffer of Vulkan's memory cannot be freed.
    """
    bare, limited = replay(container, "optix.py")

    assert {"total, MiB": 16384, "free, MiB": 16384} == bare
    assert {"total, MiB": 1000, "free, MiB": 1000} == limited


@answers("prefill and decode in two processes", "Project-HAMi/HAMi#1423")
def test_decode_opens_the_cache_of_prefill(container: Container) -> None:
    """
    Two processes share one cache: does it work under a limit, and is it counted twice?
    """
    bare, limited = replay(container, "prefill_decode.py")

    assert ({"free memory of both, MiB": 15784}, {"free memory of both, MiB": 400}) == (bare, limited)


@answers("sleep mode, cuda-checkpoint", "vllm-project/vllm#47654", "vllm-project/vllm#36651")
def test_engine_that_sleeps_gives_its_share_to_another(container: Container) -> None:
    """
    An engine that sleeps keeps its memory, or fails with out of memory when it wakes.
    """
    bare, limited = replay(container, "sleep_mode.py")

    assert [15584, 15584] == list(bare.values())
    assert [200, 200] == list(limited.values())


@answers("CUDA graphs", "Project-HAMi/HAMi#1445")
def test_graphs_are_held_to_their_share_of_time(container: Container) -> None:
    """
    Launches of graphs are not limited.
    """
    bare, limited = replay(container, "graphs.py", CUDA_DEVICE_SM_LIMIT="50", GPU_CORE_UTILIZATION_POLICY="force")

    assert bare["percent of the device's time"] >= 90
    assert 40 <= limited["percent of the device's time"] <= 60


@answers("NVLink and access to peers", "Project-HAMi/HAMi#2760")
def test_peers_are_as_the_driver_says(container: Container) -> None:
    """
    Peers cannot be reached, and programs fall back to slow copies.
    """
    assert ({}, {}) == replay(container, "peers.py")


def test_page_is_as_written() -> None:
    """
    docs/replays.md has a row for each of these tests.
    """
    assert page() == PAGE.read_text(encoding="utf-8")
