"""
A process that prepares or unprepares one claim and is killed on the way.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

from device_plugin_builders import VENDOR
from device_plugin_crash import RESOURCE, WRITES, an_allocator, die_before
from device_plugin_dra import a_claim, a_result, a_user
from device_plugin_process import A100, NODE, T4, a_pod

from hami_device_plugin import __version__
from hami_device_plugin.adapters import cdi_files, regions
from hami_device_plugin.adapters.claim_records import ClaimRecords
from hami_device_plugin.adapters.dra import ClaimName
from hami_device_plugin.decide.allocate.allocation import GrantPolicy
from hami_device_plugin.decide.allocate.cdi import spec as cdi
from hami_device_plugin.decide.allocate.cdi.driver import DriverSpec
from hami_device_plugin.decide.probe.enforcement import Enforcement
from hami_device_plugin.serve.allocate import preparation
from hami_device_plugin.serve.allocate.identity import Wanted
from hami_device_plugin.serve.allocate.preparation import Preparer
from hami_device_plugin.serve.allocate.served_node import ServedNode
from hami_device_plugin.serve.dra import claims as claims_module
from hami_device_plugin.serve.dra import tokens as tokens_module
from hami_device_plugin.serve.dra.claims import Claims
from hami_device_plugin.serve.dra.tokens import Tokens
from hamicommon.model import Device
from hamicommon.pod.reading import Pod, read_pod
from hamicommon.runtime.host import atomic_file

NAME = ClaimName("default", "c", "claim-c")
DIRECTORY = "hook/vgpu/claims/claim-c_gpu"
SPEC = "hami.io-vgpu-claim_claim-c_c-claim-c_gpu_s-1.json"
REGION = "c-claim-c_gpu_s-1.cache"
REQUEST = "container-0-request-0"
TOKEN_DIRECTORY = "hook/vgpu/containers/uid-c_main"
TOKEN_SPEC = f"hami.io-vgpu_uid-c_c-claim-c_{REQUEST}_hami-token-0.json"


def prepare(host: Path) -> None:
    """Prepare the claim below *host*."""
    answers = asyncio.run(the_claims(host).prepare([NAME]))
    assert not isinstance(answers[NAME.uid], str), answers


def unprepare(host: Path) -> None:
    """Unprepare the claim below *host*."""
    assert {NAME.uid: ""} == asyncio.run(the_claims(host).unprepare([NAME]))


def prepare_until(host: Path, step: str) -> None:
    """Prepare the claim below *host*, and be killed just before *step*."""
    die_before(*PREPARE_STEPS[step])
    prepare(host)


def unprepare_until(host: Path, step: str) -> None:
    """Unprepare the claim below *host*, and be killed just before *step*."""
    die_before(*UNPREPARE_STEPS[step])
    unprepare(host)


def prepare_token(host: Path) -> None:
    """Prepare the claim of one token below *host*, which kube-scheduler made for a Pod with a grant."""
    answers = asyncio.run(the_token(host).prepare([NAME]))
    assert not isinstance(answers[NAME.uid], str), answers


def prepare_token_until(host: Path, step: str) -> None:
    """Prepare the claim of one token below *host*, and be killed just before *step*."""
    die_before(*TOKEN_STEPS[step])
    prepare_token(host)


def unprepare_token(host: Path) -> None:
    """Unprepare the claim of one token below *host*."""
    assert {NAME.uid: ""} == asyncio.run(the_token(host).unprepare([NAME]))


def the_token(host: Path) -> Claims:
    """Return what prepares claims below *host*, where a Pod has a grant and a claim of one token."""
    claims = the_claims(host)
    pod = a_pod("c", f"{T4},NVIDIA,700,5:;", "main=1")
    mapping = [{"containerName": "main", "requestName": REQUEST}]
    pod["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "c", "requestMappings": mapping}
    token = a_result("hami-token-0", request=REQUEST, share="")
    del token["consumedCapacity"]
    context: Any = claims._context
    context.view.wait_pod = AsyncMock(return_value=read_pod(pod, (VENDOR,)))
    context.dra.claim = AsyncMock(return_value=a_claim("c", token))
    allocator = an_allocator(host)

    async def prepare_containers(found: Pod, wanted: Sequence[Wanted]) -> None:
        await allocator.prepare(found, (), wanted)

    claims._tokens = Tokens(context, prepare_containers)
    return claims


def the_claims(host: Path) -> Claims:
    """Return what prepares claims below *host*, on a Node with one device, where the claim's Pod is known."""
    # The library of this version is ours; HAMi's would need its lock directory.
    (host / "hook/vgpu").mkdir(parents=True, exist_ok=True)
    (host / "hook/vgpu" / f"libvgpu.so.{__version__}").touch()
    served = ServedNode(
        name=NODE,
        resource=RESOURCE,
        vendor=VENDOR,
        policy=GrantPolicy(hook_path=str(host / "hook")),
        enforcement=Enforcement("library", "r"),
        devices={},
        cdi_root=host / "cdi",
        limit_hook=cdi.LimitHook("/limit-hook", "/", "/sys/fs/cgroup"),
        memory_bytes={},
    )
    driver = Mock(hook="/hook", part=AsyncMock(return_value=DriverSpec()))
    preparer = Preparer(served, driver=driver, mig=AsyncMock(granted=AsyncMock(return_value=())))
    pod = read_pod(a_user("c"), (VENDOR,))
    context: Any = Mock(
        config=SimpleNamespace(node_name=NODE, cdi_root=str(host / "cdi"), vgpu_directory=host / "hook/vgpu"),
        view=Mock(pods={pod.uid: pod}),
        dra=Mock(claim=AsyncMock(return_value=a_claim("c"))),
        vendor=VENDOR,
    )
    offered = {"hami-gpu-0": Device(A100, 3, 40960, 100, "NVIDIA A100")}
    tokens = Tokens(context, AsyncMock())
    return Claims(context, ClaimRecords(host / "records"), lambda: preparer, lambda: offered, tokens)


PREPARE_STEPS: dict[str, tuple[Any, str, int]] = {
    "deciding what the claim grants": (claims_module, "claim_grant", 0),
    "reading what others hold": (ClaimRecords, "read", 1),
    "checking the ledger": (claims_module, "check_ledger", 0),
    "making a file for the record": (atomic_file, "_new_temporary", 0),
    "renaming the record": (Path, "replace", 0),
    "preparing the region": (preparation, "keep_region", 0),
    "making the region": (regions, "_create", 0),
    "writing the limits": (preparation, "write_limits", 0),
    "making a file for the limits": (atomic_file, "_new_temporary", 1),
    "renaming the limits": (Path, "replace", 1),
    "writing the spec": (cdi_files, "write_spec", 0),
    "making a file for the spec": (atomic_file, "_new_temporary", 2),
    "renaming the spec": (Path, "replace", 2),
    "letting the runtime notice": (asyncio, "sleep", 0),
}
"""By step, the function that is called next, and how often it was called before."""
TOKEN_STEPS: dict[str, tuple[Any, str, int]] = {
    "finding the containers of the tokens": (tokens_module, "containers_by_request", 0),
    "deciding what the tokens grant": (tokens_module, "token_grant", 0),
    "preparing the region": (preparation, "keep_region", 0),
    "making the region": (regions, "_create", 0),
    **WRITES,
}
UNPREPARE_STEPS: dict[str, tuple[Any, str, int]] = {
    "finding the specs": (cdi_files, "claim_specs", 0),
    "removing the spec": (Path, "unlink", 0),
    "setting the directory aside": (regions, "set_aside", 0),
    "removing the record": (Path, "unlink", 1),
    "counting the call": (Claims, "_count", 0),
}
