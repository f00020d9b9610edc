"""
Pods for the tests, with defaults: `a_pod("p", gpu=1, gpumem=3000)`.
"""

from typing import Any

from hamicommon.model import Object

IMAGE = "localhost/hami/workloads:e2e"
HOLD = ("gpu-hold", "--mib", "100")
SLEEP = ("sleep", "infinity")


def a_container(name: str = "main", command: tuple[str, ...] = HOLD, **limits: Any) -> Object:
    """Return a container with NVIDIA's limits: `gpu=1, gpumem=3000, gpucores=25, gpumem_percentage=50`."""
    named = {f"nvidia.com/{key.replace('_', '-')}": value for key, value in limits.items()}
    return {"name": name, "image": IMAGE, "command": list(command), "resources": {"limits": named}}


def a_pod(
    name: str,
    containers: list[Object] | None = None,
    init_containers: list[Object] | None = None,
    annotations: dict[str, str] | None = None,
    command: tuple[str, ...] = HOLD,
    spec: dict[str, Any] | None = None,
    **limits: Any,
) -> Object:
    """Return a Pod. Without *containers* it has one container, `main`, with *limits*."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": containers or [a_container(command=command, **limits)],
            **({"initContainers": init_containers} if init_containers else {}),
            **(spec or {}),
        },
    }
