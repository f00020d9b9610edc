"""
An option that cannot be parsed is reported once, and the program runs as README.md says.
"""

import pytest
from containers import Container


@pytest.mark.parametrize(
    ("variable", "value", "allocated"),
    [
        ("CUDA_DEVICE_MEMORY_LIMIT", "1000mb", 2),
        ("CUDA_DEVICE_MEMORY_LIMIT_0", "-1", 2),
        ("CUDA_DEVICE_SM_LIMIT", "30m", 0),
        ("CUDA_OVERSUBSCRIBE", "maybe", 0),
        ("CUDA_TASK_PRIORITY", "high", 0),
        ("GPU_CORE_UTILIZATION_POLICY", "always", 0),
        ("RECORD_KERNEL_INTERVAL", "-5", 0),
        ("LIBCUDA_LOG_LEVEL", "loud", 0),
        ("CUDA_DISABLE_CONTROL", "perhaps", 0),
    ],
)
def test_bad_value_is_reported_once(container: Container, variable: str, value: str, allocated: int) -> None:
    """
    One line names the variable and its value. An invalid limit refuses everything; other options get their default.
    """
    results, errors = container.run_and_listen(
        "cuda = Cuda()\nsay([cuda.allocate(MIB)[0], cuda.allocate(1000 * MIB)[0]])", preload=True, **{variable: value}
    )

    assert [allocated, 2] == results
    assert 1 == len(errors.splitlines())
    assert f"{variable}={value} is not" in errors


@pytest.mark.parametrize("variable", ["ACTIVE_OOM_KILLER", "CUDA_REDIRECT"])
def test_options_of_hami_without_effect_are_ignored_silently(container: Container, variable: str) -> None:
    """
    HAMi's device plugin and images may set them. No process is killed, and nothing is printed.
    """
    results, errors = container.run_and_listen(
        "cuda = Cuda()\nsay([cuda.allocate(1001 * MIB)[0], cuda.allocate(1000 * MIB)[0]])",
        preload=True,
        **{variable: "true"},
    )

    assert ([2, 0], "") == (results, errors)
