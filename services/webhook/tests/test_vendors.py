"""
The rules of each vendor: what containers get, what is rejected, and what counts against a quota.
"""

import json
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hami_webhook.decide import vendors as own_vendors
from hami_webhook.decide.admission import Admission, Outcome, Policy, admit
from hami_webhook.decide.quota import Quotas
from hamicommon.config.device_config import DeviceConfig, load_device_config
from hamicommon.vendors import descriptions
from hamicommon.wire.quantity import parse_quantity

from .json_patch import applied

SOFT = {"huawei.com/vnpu-mode": "hami-core"}
CLASS, QOS = "metax-tech.com/sgpu-app-class", "metax-tech.com/sgpu-qos-policy"


def vectors(name: str) -> list[dict[str, Any]]:
    """Return the cases of a file."""
    found: list[dict[str, Any]] = json.loads((Path(__file__).parent / "vectors" / f"{name}.json").read_text())
    return found


def a_pod(*limits: dict[str, Any], annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a Pod with a container for each of *limits*, as the API server shows it: requests equal limits."""
    containers = [
        {"name": f"c{index}", "resources": {"limits": amounts, "requests": dict(amounts)}}
        for index, amounts in enumerate(limits)
    ]
    return {"metadata": {"annotations": annotations or {}}, "spec": {"containers": containers}}


def amounts_of(container: dict[str, Any], part: str = "limits") -> dict[str, int]:
    """Return limits or requests as numbers."""
    return {name: int(parse_quantity(text)) for name, text in container["resources"].get(part, {}).items()}


def ascend(chip: str, count: str, memory: str = "", core: str = "") -> dict[str, str]:
    """Return limits on an Ascend chip."""
    amounts = {"": count, "-memory": memory, "-core": core}
    return {f"huawei.com/Ascend{chip}{name}": amount for name, amount in amounts.items() if amount}


@pytest.mark.parametrize(
    ("config", "limits", "annotations", "expected"),
    [
        pytest.param("default", ascend("910B3", "1", "10000"), {}, (1, 16384), id="next template"),
        pytest.param("default", ascend("910B3", "1", "16384"), {}, (1, 16384), id="exactly a template"),
        pytest.param("default", ascend("910B3", "1", "16385"), {}, (1, 32768), id="one MiB more"),
        pytest.param("default", ascend("910B3", "1", "32769"), {}, (1, 65536), id="more than any template"),
        pytest.param("default", ascend("910B3", "1"), {}, (1, 65536), id="memory left open"),
        pytest.param("default", ascend("910B3", "8"), {}, (8, 65536), id="several whole devices"),
        pytest.param("default", ascend("310P", "1", "24576"), {}, (1, 21527), id="more than is given away"),
        pytest.param("default", ascend("910C", "1"), {}, (2, 65536), id="half a module"),
        pytest.param("default", ascend("910C", "1", "10000"), {}, (2, 16384), id="part of a module"),
        pytest.param("default", ascend("910B3", "1", "10000", "25"), SOFT, (1, 10000, 25), id="hami-core mode"),
        pytest.param("tuned", ascend("910B3", "1", "10"), {}, (1, 16), id="template in GiB"),
        pytest.param("tuned", ascend("310P", "1"), {}, (1, 21), id="whole device in GiB"),
        pytest.param("tuned", ascend("910A", "1", "2"), {}, (1, 2), id="template of 2184 MiB in GiB"),
    ],
)  # fmt: skip
def test_ascend_memory_is_a_template_and_modules_are_whole(
    devices: dict[str, DeviceConfig],
    config: str,
    limits: dict[str, str],
    annotations: dict[str, str],
    expected: tuple[int, ...],
) -> None:
    """Limits equal requests, and a second call changes nothing."""
    policy, pod = Policy.of(devices[config], "s"), a_pod(limits, annotations=annotations)
    result = applied(pod, admit(pod, policy).patch)
    (container,) = result["spec"]["containers"]

    assert expected == tuple(amounts_of(container).values())
    assert expected == tuple(amounts_of(container, "requests").values())
    assert Admission(Outcome.UNCHANGED) == admit(result, policy)


@pytest.mark.parametrize(
    ("limits", "added"),
    [
        ({"iluvatar.ai/BI-V150-vgpu": "2", "iluvatar.ai/BI-V150.vCore": "10"}, {"iluvatar.ai/BI-V150.vCore": 200}),
        ({"iluvatar.ai/BI-V150-vgpu": "10"}, {"iluvatar.ai/BI-V150.vCore": 1000}),
        ({"iluvatar.ai/BI-V150-vgpu": "1"}, {}),
        ({"mthreads.com/vgpu": "2"}, {"mthreads.com/sgpu-core": 32, "mthreads.com/sgpu-memory": 192}),
        ({"mthreads.com/vgpu": "1"}, {"mthreads.com/sgpu-core": 16, "mthreads.com/sgpu-memory": 96}),
        ({"mthreads.com/vgpu": "1", "mthreads.com/sgpu-memory": "96"}, {}),
        ({"mthreads.com/vgpu": "1", "mthreads.com/sgpu-memory": "2", "mthreads.com/sgpu-core": "16"}, {}),
        ({"kunlunxin.com/vxpu": "1", "kunlunxin.com/vxpu-memory": "0"}, {"kunlunxin.com/vxpu-memory": 24576}),
        ({"kunlunxin.com/vxpu": "8", "kunlunxin.com/vxpu-memory": "24577"}, {"kunlunxin.com/vxpu-memory": 49152}),
        ({"kunlunxin.com/vxpu": "2", "kunlunxin.com/vxpu-memory": "98304"}, {}),
        ({"kunlunxin.com/vxpu": "2", "kunlunxin.com/vxpu-memory": "98305"}, {"kunlunxin.com/vxpu-memory": 98304}),
        ({"kunlunxin.com/vxpu": "1"}, {}),
        ({"enflame.com/gcu-memory": "10", "enflame.com/gcu-core": "100"}, {}),
        ({"aws.amazon.com/neuroncore": "4"}, {}),
        ({"amd.com/gpu": "1", "amd.com/gpumem": "1000", "amd.com/gpucores": "100"}, {}),
        ({"cambricon.com/vmlu": "1", "cambricon.com/mlu.smlu.vmemory": "8388607"}, {}),
        ({"metax-tech.com/gpu": "8"}, {}),
        ({"metax-tech.com/sgpu": "2", "metax-tech.com/vmemory": "2097151"}, {}),
        ({"metax-tech.com/sgpu": "2", "metax-tech.com/vmemory": "1Mi", "metax-tech.com/vcore": "100"}, {}),
        ({"metax-tech.com/sgpu": "2", "metax-tech.com/vmemory": "0"}, {}),
    ],
)  # fmt: skip
def test_amounts_that_follow_are_filled_in(policy: Policy, limits: dict[str, str], added: dict[str, int]) -> None:
    """Amounts that a vendor derives are in the limits, and in a request that exists."""
    pod = a_pod(limits)
    (container,) = applied(pod, admit(pod, policy).patch)["spec"]["containers"]

    assert {**amounts_of(a_pod(limits)["spec"]["containers"][0]), **added} == amounts_of(container)
    requests = amounts_of(container, "requests")
    assert requests == {name: amount for name, amount in amounts_of(container).items() if name in requests}


@pytest.mark.parametrize("case", vectors("refusals"), ids=lambda case: case["message"])
def test_an_amount_that_can_never_be_granted_is_refused_in_words(policy: Policy, case: dict[str, Any]) -> None:
    """The message has container, resource, value and what to write, after HAMi's words if it has any."""
    expected = Admission(Outcome.BAD_AMOUNT, allowed=False, code=500, message=case["message"])

    assert expected == admit(a_pod(case["limits"], annotations=case["annotations"]), policy)


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, {QOS: "best-effort"}),
        ({QOS: "fixed-share"}, {QOS: "fixed-share"}),
        ({CLASS: "offline"}, {CLASS: "offline", QOS: "best-effort"}),
        ({CLASS: "online"}, {CLASS: "online"}),
        ({CLASS: "online", QOS: "bogus"}, {CLASS: "online", QOS: "bogus"}),
    ],
)
def test_metax_shares_have_a_quality_of_service_unless_they_are_online(
    policy: Policy, annotations: dict[str, str], expected: dict[str, str]
) -> None:
    """An online Pod has priority under any policy."""
    pod = a_pod({"metax-tech.com/sgpu": "1"}, annotations=annotations)

    assert expected == applied(pod, admit(pod, policy).patch)["metadata"]["annotations"]


def test_moore_threads_tells_its_plugin_how_many_devices(policy: Policy) -> None:
    """The last container that requests several devices decides."""
    pod = a_pod({"mthreads.com/vgpu": "2"}, {"mthreads.com/vgpu": "4"}, {"mthreads.com/vgpu": "1"})

    assert {"mthreads.com/request-gpu-num": "4"} == applied(pod, admit(pod, policy).patch)["metadata"]["annotations"]


@pytest.mark.parametrize(("name", "expected"), [("c0", "c0"), ("", None)])
def test_iluvatar_containers_know_their_name(policy: Policy, name: str, expected: str | None) -> None:
    """Unless they have the variable, or no name."""
    pod = a_pod({"iluvatar.ai/BI-V150-vgpu": "1"}, {"iluvatar.ai/MR-V50-vgpu": "1"})
    pod["spec"]["containers"][0]["name"] = name
    pod["spec"]["containers"][1]["env"] = [{"name": "SOL_CONTINER_NAME", "value": "mine"}]
    first, second = applied(pod, admit(pod, policy).patch)["spec"]["containers"]

    assert ([{"name": "SOL_CONTINER_NAME", "value": expected}] if expected else None) == first.get("env")
    assert [{"name": "SOL_CONTINER_NAME", "value": "mine"}] == second["env"]


def test_devices_are_hidden_once_from_whoever_asks_for_none_of_them(devices: dict[str, DeviceConfig]) -> None:
    """A container that requests one chip of a vendor sees the vendor's devices."""
    pod = a_pod(ascend("910B3", "1"), {"nvidia.com/gpu": "1"}, {"cpu": "1"})
    result = applied(pod, admit(pod, Policy.of(devices["tuned"], "s")).patch)
    seen = [
        {variable["name"]: variable["value"] for variable in container["env"]}
        for container in result["spec"]["containers"]
    ]

    force = {"GPU_CORE_UTILIZATION_POLICY": "force"}
    assert [
        {**force, "NVIDIA_VISIBLE_DEVICES": "none"},
        {**force, "ASCEND_VISIBLE_DEVICES": ""},
        {**force, "NVIDIA_VISIBLE_DEVICES": "none", "ASCEND_VISIBLE_DEVICES": ""},
    ] == seen
    assert "vendor-rt" == result["spec"]["runtimeClassName"]


@pytest.mark.parametrize(
    ("limits", "named", "count"),
    [
        ({"amd.com/gpumem": "10"}, "amd.com/gpumem", "amd.com/gpu"),
        ({"cpu": "10", "hygon.com/dcumem": "1", "hygon.com/dcucores": "1"}, "hygon.com/dcumem", "hygon.com/dcunum"),
        ({"nvidia.com/gpumem": "10"}, "", ""),
        ({"enflame.com/gcu-core": "10"}, "", ""),
        ({"aws.amazon.com/neuroncore": "1"}, "", ""),
    ],
)
def test_a_share_without_a_count_is_warned_of_where_none_is_filled_in(
    policy: Policy, limits: dict[str, str], named: str, count: str
) -> None:
    """HAMi admits it and grants nothing."""
    admission = admit(a_pod(limits), policy)
    expected = (f"container c0: {named} gives no device without {count}; add {count}: 1",) if named else ()

    assert (True, expected) == (admission.allowed, admission.warnings)


@pytest.mark.parametrize("case", vectors("quotas"), ids=lambda case: case["message"])
def test_every_vendors_shares_count_against_its_quota(policy: Policy, case: dict[str, Any]) -> None:
    """At the limit; what counts are the amounts after admission."""
    pod, quotas = a_pod(case["limits"]), Quotas(policy.vendors)

    def under(limit: str) -> Admission:
        hard = {f"limits.{case['resource']}": limit}
        quotas.put_quota({"metadata": {"namespace": "ns", "name": "q"}, "spec": {"hard": hard}})
        return admit(pod, policy, "ns", quotas.of("ns"))

    refused = under(case["refuses"])

    assert (Outcome.OVER_QUOTA, f"exceeding resource quota: namespace ns: {case['message']}") == (
        refused.outcome,
        refused.message,
    )
    assert under(case["admits"]).allowed


@pytest.mark.parametrize("section", ["nvidia", "hygon", "mthreads", "amd", "cambricon"])
def test_a_vendor_whose_count_has_no_name_gives_no_device(section: str) -> None:
    """An empty resource name in the device config is not a resource."""
    devices = load_device_config(f"{section}: {{resourceMemoryName: example.com/memory}}")
    admission = admit(a_pod({"example.com/memory": "1"}), Policy.of(devices, "s"))

    assert admission.allowed
    assert ["/spec/schedulerName"] == [each["path"] for each in admission.patch] or not admission.patch
    assert () == admission.warnings


NAMES = sorted(
    {
        *(name for chip in ("910A", "910B3", "910C", "310P") for name in ascend(chip, "1", "1", "1")),
        *(f"nvidia.com/{name}" for name in ("gpu", "gpumem", "gpumem-percentage", "gpucores", "priority")),
        *(f"mthreads.com/{name}" for name in ("vgpu", "sgpu-memory", "sgpu-core")),
        *(f"metax-tech.com/{name}" for name in ("gpu", "sgpu", "vmemory", "vcore")),
        *(f"enflame.com/{name}" for name in ("gcu", "drs-gcu", "gcu-memory", "gcu-core")),
        *(f"kunlunxin.com/{name}" for name in ("xpu", "vxpu", "vxpu-memory")),
        *("iluvatar.ai/BI-V150-vgpu", "iluvatar.ai/BI-V150.vMem", "iluvatar.ai/BI-V150.vCore"),
        *("aws.amazon.com/neuron", "aws.amazon.com/neuroncore", "amd.com/gpu", "amd.com/gpumem", "amd.com/gpucores"),
        *("cambricon.com/vmlu", "hygon.com/dcunum", "vastaitech.com/va", "birentech.com/gpu"),
    }
)
AMOUNTS = st.sampled_from(["0", "1", "2", "3", "8", "10", "50", "100", "3k", "20000", "70000", "16Gi", "2147483647"])


@pytest.mark.property
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    limits=st.lists(st.dictionaries(st.sampled_from(NAMES), AMOUNTS, max_size=4), min_size=1, max_size=3),
    annotations=st.sampled_from([{}, SOFT, {CLASS: "online"}]),
    config=st.sampled_from(["default", "tuned"]),
)
@example(limits=[ascend("910C", "1", "10000")], annotations={}, config="default")
@example(limits=[{"iluvatar.ai/BI-V150-vgpu": "2147483647"}], annotations={}, config="default")
def test_what_comes_out_is_what_the_api_server_takes(
    devices: dict[str, DeviceConfig], limits: list[dict[str, str]], annotations: dict[str, str], config: str
) -> None:
    """Each device limit equals its request, and a second admission changes nothing."""
    policy = Policy.of(devices[config], "s")
    pod = a_pod(*limits, annotations=annotations)
    first = admit(pod, policy)
    if not first.allowed:
        assert first.message
        return
    result = applied(pod, first.patch)
    for container in result["spec"]["containers"]:
        resources = container["resources"]
        resources["requests"] = {**resources["limits"], **resources["requests"]}
        assert amounts_of(container) == amounts_of(container, "requests")
    again = admit(result, policy)
    assert (True, ()) == (again.allowed, again.patch)


def test_every_module_of_a_vendor_is_found() -> None:
    """A module that is named as no vendor would never be asked."""
    assert {module.name for module in iter_modules(own_vendors.__path__)} <= set(descriptions())
