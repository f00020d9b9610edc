"""
Decisions on Pods: HAMi's answers, rules that HAMi lacks, and laws for every Pod.
"""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hami_webhook.decide.admission import Admission, Outcome, Policy, admit
from hami_webhook.decide.quota import NamespaceQuota, Quotas
from hamicommon.config.device_config import DeviceConfig
from hamicommon.pod.amounts import Amounts
from hamicommon.vendors import ascend, nvidia
from hamicommon.vendors.description import Vendor
from hamicommon.wire.quantity import INT32_MAX, parse_quantity

from .json_patch import applied

VECTORS = Path(__file__).parent / "vectors"
CASES = {
    case["case"]: case for name in ("pods", "pods-more") for case in json.loads((VECTORS / f"{name}.json").read_text())
}

ASCEND_ENV = "ASCEND_VISIBLE_DEVICES"

PodBuilder = Callable[..., dict[str, Any]]


def decided(case: dict[str, Any], devices: dict[str, DeviceConfig], pod: dict[str, Any]) -> Admission:
    """Return the decision on *pod* under the flags, quotas and running Pods of *case*."""
    flags = case["flags"]
    policy = Policy.of(devices[flags["config"]], flags["scheduler_name"], flags["force_overwrite_default_scheduler"])
    quotas = Quotas(policy.vendors)
    quotas.replace_quotas(case.get("quotas", []))
    for other in case.get("pods", []):
        quotas.put_pod(other)
    return admit(pod, policy, case["namespace"], quotas.of(case["namespace"]))


def seen(container: dict[str, Any]) -> dict[str, Any]:
    """Return what the comparison needs of a container: amounts as numbers, variables in HAMi's order."""
    resources = container.get("resources") or container
    env = [{"value": "", **variable} for variable in container.get("env") or []]
    return {
        "name": container["name"],
        **{
            part: {name: parse_quantity(amount) for name, amount in (resources.get(part) or {}).items()}
            for part in ("limits", "requests")
        },
        "env": sorted(env, key=lambda variable: (variable["name"], variable["value"])),
    }


def as_decided_here(before: dict[str, Any], hamis: dict[str, Any], ascend: set[str]) -> dict[str, Any]:
    """
    Return what HAMi makes of the container *before*, without three of its defects; *ascend* are resources that count
    chips.

    HAMi sets a limit that differs from its request, which the API server rejects. Here a count in the request alone
    becomes the limit. HAMi also appends one ASCEND_VISIBLE_DEVICES for every chip that the container does not request,
    even if it requests another chip. And a container with a share of a GPU keeps its own NVIDIA_VISIBLE_DEVICES.
    """
    limits, requests = dict(hamis["limits"]), dict(hamis["requests"])
    for name in requests.keys() & limits.keys():
        if name not in before["limits"]:
            limits[name] = requests[name]
        elif limits[name] != before["limits"][name]:
            requests[name] = limits[name]
    hiding = {"name": ASCEND_ENV, "value": ""}
    env = [variable for variable in hamis["env"] if variable != hiding]
    if hiding in hamis["env"] and ascend.isdisjoint(before["limits"]):
        env.insert(0, hiding)
    if "nvidia.com/gpu" in limits:
        env = [each for each in env if each["name"] != "NVIDIA_VISIBLE_DEVICES" or each not in before["env"]]
    env.sort(key=lambda each: (each["name"], each["value"]))
    return {**hamis, "limits": limits, "requests": requests, "env": env}


def containers_of(case: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every container of the Pod, init containers first."""
    spec = case["pod"]["spec"]
    return [*spec.get("initContainers", []), *spec["containers"]]


@dataclass(frozen=True)
class Asked:
    """One amount of a managed resource, the limit before the request."""

    container: str
    vendor: Vendor
    name: str
    text: str
    is_limit: bool

    def is_meaningless(self) -> bool:
        """
        Return whether no device of the vendor can have the amount.

        It is not an integer of 32 bits, no such number of devices is linked, or a device has fewer cores and nothing
        clamps them. HAMi drops such a request, rounds it, or never places the Pod. MetaX memory has units and is not
        checked.
        """
        vendor, name = self.vendor, self.name
        if vendor.read_memory_limit is not None and name == vendor.memory_resource_name:
            return False
        value = parse_quantity(self.text)
        unit = max(1, vendor.memory_factor) if name == vendor.memory_resource_name else 1
        most = CORES_OF_A_DEVICE.get(vendor.key, INT32_MAX) if name == vendor.core_resource_name else INT32_MAX
        if value.denominator != 1 or not 0 <= value * unit <= most:
            return True
        counts_linked = vendor.key in {"kunlun", "XPU"} and name == vendor.resource_names[0] and self.is_limit
        return counts_linked and value not in {0, 1, 2, 4, 8}


CORES_OF_A_DEVICE = {"Mthreads": 16, "Metax-SGPU": 100}


def amounts_asked(case: dict[str, Any], devices: dict[str, DeviceConfig]) -> list[Asked]:
    """Return each managed amount of each container."""
    found = []
    for container in containers_of(case):
        resources = container.get("resources") or {}
        limits = resources.get("limits") or {}
        texts = {**(resources.get("requests") or {}), **limits}
        found += [
            Asked(container["name"], vendor, name, texts[name], name in limits)
            for vendor in devices[case["flags"]["config"]].vendors()
            for name in vendor.resource_names
            if name in texts
        ]
    return found


def limits_of_unknown_amounts(case: dict[str, Any], devices: dict[str, DeviceConfig]) -> set[str]:
    """
    Return the memory limits of vendors of which a container, as HAMi completes it, requests a percentage.

    A percentage has no MiB until the device is known. HAMi counts it as nothing, admits the Pod, and never places it if
    the quota has nothing left. Here it counts as 1 MiB of each device.
    """
    completed = case["out"].get("result") or {"containers": []}
    asked = {
        vendor.memory_resource_name
        for container in [*(completed.get("initContainers") or []), *completed["containers"]]
        for vendor in devices[case["flags"]["config"]].vendors()
        if (request := vendor.parse_request(container)) is not None and request.memory_percent is not None
    }
    hard = [
        quota["spec"]["hard"] for quota in case.get("quotas", []) if quota["metadata"]["namespace"] == case["namespace"]
    ]
    return {limits[name] for limits in hard for name in limits if name.removeprefix("limits.") in asked}


def beyond_the_chip(case: dict[str, Any], devices: dict[str, DeviceConfig]) -> list[str]:
    """
    Return, as a refusal names them, the amounts of memory that no Ascend chip of the name has.

    HAMi does not check memory in hami-core mode, and never places such a Pod.
    """
    chips = {chip.resource_memory_name: chip for chip in devices[case["flags"]["config"]][ascend.SECTION].chips}
    return [
        f"{asked.name} {asked.text} is invalid"
        for asked in amounts_asked(case, devices)
        if (chip := chips.get(asked.name)) is not None
        and parse_quantity(asked.text) * max(1, chip.memory_factor) > chip.memory_capacity_mib
    ]


def is_filled_module(case: dict[str, Any], devices: dict[str, DeviceConfig]) -> bool:
    """
    Return whether a container asks for what admission makes of one NPU of a 910C, in a Pod that may be admitted.

    HAMi refuses its own result when it is asked again; we admit it.
    """
    scheduler = case["flags"]["scheduler_name"]
    if scheduler not in {"", case["pod"]["spec"].get("schedulerName", "")}:
        return False
    limits = [(container.get("resources") or {}).get("limits") or {} for container in containers_of(case)]
    return any(
        each.get(chip.resource_count_name) == "2"
        and each.get(chip.resource_memory_name) in {str(template.memory_mib) for template in chip.templates}
        for chip in devices[case["flags"]["config"]][ascend.SECTION].chips
        for each in limits
        if chip.super_pod
    )


def is_ours_to_explain(case: dict[str, Any], devices: dict[str, DeviceConfig], admission: Admission) -> bool:
    """Return whether a decision recorded in docs/decisions makes *admission* differ from HAMi's answer."""
    asked = amounts_asked(case, devices)
    if admission.outcome is Outcome.NOT_ASKING:
        return not asked
    if admission.outcome is Outcome.BAD_AMOUNT:
        refusals = [
            f"invalid {each.name} value {each.text} in container {each.container}: must be "
            for each in asked
            if each.is_meaningless()
        ]
        return admission.message.startswith((*refusals, *beyond_the_chip(case, devices)))
    if case["out"].get("message", "").startswith("vNPU not supported") and admission.allowed:
        return is_filled_module(case, devices)
    return admission.outcome is Outcome.OVER_QUOTA and bool(limits_of_unknown_amounts(case, devices))


CONDITIONAL = {"AMD", "AWSNeuron", "Enflame", "Mthreads"}
"""Vendors that look at one amount only where another is, or is not, there."""


def decided_here(case: dict[str, Any], devices: dict[str, DeviceConfig]) -> Outcome | None:
    """Return the required decision on a Pod that HAMi admits and we reject; None if either is allowed."""
    if any(asked.is_meaningless() for asked in amounts_asked(case, devices) if asked.vendor.key not in CONDITIONAL):
        return Outcome.BAD_AMOUNT
    return Outcome.OVER_QUOTA if "0" in limits_of_unknown_amounts(case, devices) else None


def changes_only_variables(case: dict[str, Any]) -> bool:
    """Return whether HAMi changed only environment variables of the Pod."""
    pod, result = case["pod"], case["out"]["result"]
    before = [{**seen(each), "env": []} for each in containers_of(case)]
    after = [{**seen(each), "env": []} for each in [*(result["initContainers"] or []), *result["containers"]]]
    return (before, pod["spec"].get("schedulerName", "")) == (after, result["schedulerName"])


@pytest.mark.parametrize("name", sorted(CASES))
def test_pods_are_admitted_as_hami_admits_them(name: str, devices: dict[str, DeviceConfig]) -> None:
    """Code, start of the message, and the resulting Pod are HAMi 2.10.0's, or follow a recorded decision."""
    case = CASES[name]
    admission, expected = decided(case, devices, case["pod"]), case["out"]

    if "result" in expected and (ours := decided_here(case, devices)) is not None:
        assert ours is admission.outcome
    if is_ours_to_explain(case, devices, admission):
        if admission.outcome is Outcome.NOT_ASKING:
            assert Admission(Outcome.NOT_ASKING) == admission
            assert changes_only_variables(case)
        return
    assert admission.message.startswith(expected.get("message", ""))
    assert (expected["allowed"], expected.get("code"), expected.get("reason"), "message" in expected) == (
        admission.allowed,
        admission.code or None,
        admission.reason or None,
        bool(admission.message),
    )
    if "result" in expected:
        pod, result = applied(case["pod"], admission.patch), expected["result"]
        assert result["schedulerName"] == pod["spec"].get("schedulerName", "")
        assert result["runtimeClassName"] == pod["spec"].get("runtimeClassName")
        assert result["annotations"] == pod["metadata"].get("annotations")
        chips = {chip.resource_count_name for chip in devices[case["flags"]["config"]][ascend.SECTION].chips}
        for kind in ("initContainers", "containers"):
            before = [seen(each) for each in case["pod"]["spec"].get(kind, [])]
            assert [
                as_decided_here(was, seen(each), chips) for was, each in zip(before, result[kind] or [], strict=True)
            ] == [seen(each) for each in pod["spec"].get(kind, [])]


@pytest.mark.parametrize(
    ("quota", "limits", "outcome"),
    [
        ({}, {"nvidia.com/gpumem": "3000000000"}, Outcome.BAD_AMOUNT),
        ({}, {"nvidia.com/gpumem": "16Gi"}, Outcome.BAD_AMOUNT),
        ({}, {"nvidia.com/gpumem": "1500m"}, Outcome.BAD_AMOUNT),
        ({}, {"nvidia.com/gpumem-percentage": "500m"}, Outcome.BAD_AMOUNT),
        ({}, {"kunlunxin.com/xpu": "3"}, Outcome.BAD_AMOUNT),
        ({"limits.nvidia.com/gpumem": "0"}, {"nvidia.com/gpu": "1"}, Outcome.OVER_QUOTA),
    ],
)  # fmt: skip
def test_a_decision_of_ours_is_explained_by_what_the_pod_asks(
    quota: dict[str, str], limits: dict[str, str], outcome: Outcome, devices: dict[str, DeviceConfig]
) -> None:
    """The rules that judge the vectors hold for recorded decisions only."""
    case: dict[str, Any] = {
        "flags": {"config": "default", "scheduler_name": "s", "force_overwrite_default_scheduler": True},
        "namespace": "ns",
        "quotas": [{"metadata": {"name": "q", "namespace": "ns"}, "spec": {"hard": quota}}],
        "pod": {"metadata": {}, "spec": {"containers": [{"name": "c0", "resources": {"limits": limits}}]}},
        "out": {"allowed": True, "result": {"containers": [{"name": "c0", "limits": limits}]}},
    }
    admission = decided(case, devices, case["pod"])

    assert outcome is admission.outcome
    assert is_ours_to_explain(case, devices, admission)
    case["pod"] = {
        "metadata": {},
        "spec": {"containers": [{"name": "c0", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
    }
    case["quotas"] = []
    assert not is_ours_to_explain(case, devices, admission)


@pytest.mark.parametrize("name", sorted(CASES))
def test_deciding_again_changes_nothing_more(name: str, devices: dict[str, DeviceConfig]) -> None:
    """The API server may call twice; the second patch is empty for every vendor."""
    case = CASES[name]
    first = decided(case, devices, case["pod"])
    if first.allowed:
        again = decided(case, devices, applied(case["pod"], first.patch))
        assert (True, ()) == (again.allowed, again.patch)


@pytest.mark.parametrize(("scheduler", "code"), [("hami-scheduler", 0), ("default-scheduler", 500), (None, 500)])
def test_module_with_a_template_is_admitted_where_admission_may_have_made_it(
    policy: Policy, scheduler: str | None, code: int
) -> None:
    """A Pod that asked for one NPU and a part of its memory looks like this when the API server calls again."""
    limits = {"huawei.com/Ascend910C": "2", "huawei.com/Ascend910C-memory": "16384"}
    spec: dict[str, Any] = {"containers": [{"name": "c0", "resources": {"limits": limits}}]}
    if scheduler:
        spec["schedulerName"] = scheduler

    assert code == admit({"metadata": {}, "spec": spec}, policy).code


def test_the_patch_names_only_what_changed(policy: Policy, a_pod: PodBuilder) -> None:
    """A Pod that lacks only the scheduler gets one operation."""
    pod = a_pod({"gpu": "1", "gpumem": "3000", "gpucores": "25"}, schedulerName="default-scheduler")

    assert ({"op": "replace", "path": "/spec/schedulerName", "value": "hami-scheduler"},) == admit(pod, policy).patch


def test_a_complete_pod_gets_no_patch(policy: Policy, a_pod: PodBuilder) -> None:
    """Scheduler and amounts are set already."""
    pod = a_pod({"gpu": "1", "gpumem": "3000"}, schedulerName="hami-scheduler")

    assert Admission(Outcome.UNCHANGED) == admit(pod, policy)


def test_the_pod_that_came_in_is_not_touched(policy: Policy, a_pod: PodBuilder) -> None:
    """A decision does not change its argument."""
    pod = a_pod({"gpu": "1", "priority": "1"})
    before = copy.deepcopy(pod)
    admit(pod, policy)

    assert before == pod


@pytest.mark.parametrize(
    ("env", "added"),
    [
        ([], True),
        ([{"name": "CUDA_TASK_PRIORITY", "value": "1"}], False),
        ([{"name": "CUDA_TASK_PRIORITY", "value": "9"}], True),
        ([{"name": "CUDA_TASK_PRIORITY", "value": "1"}, {"name": "CUDA_TASK_PRIORITY", "value": "9"}], True),
        ([{"name": "CUDA_TASK_PRIORITY", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}], True),
    ],
)  # fmt: skip
def test_the_variable_that_wins_is_ours_and_is_there_once(
    policy: Policy, a_pod: PodBuilder, env: list[dict[str, Any]], added: bool
) -> None:
    """A Pod cannot set its own priority through the variable."""
    pod = a_pod({"gpu": "1", "gpumem": "1", "priority": "1"})
    if env:
        pod["spec"]["containers"][0]["env"] = env
    first = applied(pod, admit(pod, policy).patch)
    variables = first["spec"]["containers"][0].get("env", [])

    assert {"name": "CUDA_TASK_PRIORITY", "value": "1"} == variables[-1]
    assert len(env) + added == len(variables)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spec": 1}, "spec: must be an object, not a number"),
        ({"spec": {"containers": {}}}, "spec.containers: must be a list, not an object"),
        ({"spec": {"containers": [None]}}, "spec.containers[0]: must be an object, not null"),
        ({"spec": {"containers": [{"name": 7}]}}, "spec.containers[0].name: must be a string, not a number"),
        ({"spec": {"containers": [{"resources": []}]}}, "spec.containers[0].resources: must be an object, not a list"),
        (
            {"spec": {"containers": [{"resources": {"limits": "x"}}]}},
            "spec.containers[0].resources.limits: must be an object, not a string",
        ),
        ({"spec": {"containers": [{"env": ["A=1"]}]}}, "spec.containers[0].env[0]: must be an object, not a string"),
        (
            {"spec": {"containers": [{"securityContext": {"privileged": "yes"}}]}},
            "spec.containers[0].securityContext.privileged: must be a boolean, not a string",
        ),
        ({"spec": {"initContainers": True}}, "spec.initContainers: must be a list, not a boolean"),
        ({"spec": {"schedulerName": ["x"]}}, "spec.schedulerName: must be a string, not a list"),
        ({"metadata": "x"}, "metadata: must be an object, not a string"),
        ([], "object: must be an object, not a list"),
        ("Pod", "object: must be an object, not a string"),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(policy: Policy, change: Any, message: str) -> None:
    """The message names the field."""
    admission = admit(change, policy)

    assert (False, 400, message) == (admission.allowed, admission.code, admission.message)


def test_a_pod_without_containers_is_denied(policy: Policy) -> None:
    """As HAMi denies it."""
    assert "pod has no containers" == admit({"spec": {}}, policy).message


def test_a_quota_refusal_says_the_numbers(policy: Policy, a_pod: PodBuilder) -> None:
    """The message starts with HAMi's text."""
    quota = NamespaceQuota({"nvidia.com/gpumem": 4000}, {"NVIDIA": Amounts(0, 3000, 0)})
    pod = a_pod({"gpu": "2", "gpumem": "1000"})

    assert admit(a_pod({"gpu": "1", "gpumem": "1000"}), policy, "ns", quota).allowed
    assert Admission(
        Outcome.OVER_QUOTA,
        allowed=False,
        code=403,
        reason="Forbidden",
        message="exceeding resource quota: namespace ns: limits.nvidia.com/gpumem is 4000 MiB, 3000 in use, 2000 asked",
    ) == admit(pod, policy, "ns", quota)


def test_variable_that_the_device_plugin_sets_is_taken_out(policy: Policy, a_pod: PodBuilder) -> None:
    """On a Node under the lock the kubelet would prefer the Pod's. A container without a share keeps its own."""
    pod = a_pod({"gpu": "1"}, schedulerName="hami-scheduler")
    visible = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    (main,) = pod["spec"]["containers"]
    main["env"] = [{"name": "A", "value": "1"}, visible, {**visible, "value": "0"}]
    pod["spec"]["containers"].append({"name": "beside", "env": [visible]})
    admission = admit(pod, policy)

    assert [[{"name": "A", "value": "1"}], [visible]] == [
        container["env"] for container in applied(pod, admission.patch)["spec"]["containers"]
    ]
    assert (
        f"container {main['name']}: variable NVIDIA_VISIBLE_DEVICES removed: the device plugin sets it",
    ) == admission.warnings


GRANT = "hami.io/vgpu-devices-allocated"


def test_grant_that_a_pod_brings_along_is_removed(policy: Policy, a_pod: PodBuilder) -> None:
    """A Pod created from a running Pod's YAML loses the grant, with a warning; other annotations stay."""
    pod = a_pod({"gpu": "1", "gpumem": "3000"}, schedulerName="hami-scheduler")
    pod["metadata"]["annotations"] = {GRANT: "GPU-a,NVIDIA,1,1:;", "hami.io/kunlun-allocated": "", "note": "x"}
    admission = admit(pod, policy)

    assert {"note": "x"} == applied(pod, admission.patch)["metadata"]["annotations"]
    assert {"remove"} == {operation["op"] for operation in admission.patch}
    assert (
        f"annotation {GRANT} removed: the scheduler writes it when it grants the Pod devices",
        "annotation hami.io/kunlun-allocated removed: the scheduler writes it when it grants the Pod devices",
    ) == admission.warnings


def test_what_a_copied_pod_has_left_to_hand_out_is_removed_with_its_grant(policy: Policy, a_pod: PodBuilder) -> None:
    """The API server would reject the list without the grant that it is of."""
    pod = a_pod({"gpu": "1", "gpumem": "3000"}, schedulerName="hami-scheduler")
    left = "hami.io/vgpu-devices-to-allocate"
    pod["metadata"]["annotations"] = {left: "GPU-a,NVIDIA,1,1:;", "note": "x"}
    admission = admit(pod, policy)

    assert {"note": "x"} == applied(pod, admission.patch)["metadata"]["annotations"]
    assert (f"annotation {left} removed: the scheduler writes it when it grants the Pod devices",) == admission.warnings


@pytest.mark.parametrize("config", ["default", "tuned"])
def test_grant_of_every_vendor_is_removed(config: str, devices: dict[str, DeviceConfig], a_pod: PodBuilder) -> None:
    """Also of a vendor whose devices the Pod does not request, and what NVIDIA's plugin has left to hand out."""
    policy = Policy.of(devices[config], "hami-scheduler")
    pod = a_pod({"gpu": "1", "gpumem": "3000"})
    granted = (*(vendor.allocated_key for vendor in devices[config].vendors()), *nvidia.PLUGIN_POD_KEYS)
    pod["metadata"]["annotations"] = dict.fromkeys(granted, "x")

    assert {} == applied(pod, admit(pod, policy).patch)["metadata"]["annotations"]


def test_grant_of_a_pod_that_asks_for_nothing_is_not_ours_to_remove(policy: Policy, a_pod: PodBuilder) -> None:
    """A Pod without managed resources is never changed."""
    pod = a_pod({})
    pod["metadata"]["annotations"] = {GRANT: "GPU-a,NVIDIA,1,1:;"}

    assert Admission(Outcome.NOT_ASKING) == admit(pod, policy)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
AMOUNTS = st.sampled_from(["0", "1", "2", "3000", "50", "100", "101", "-1", "1k", "16Gi", "500m", "4294967297", "x"])
NAMES = ["gpu", "gpumem", "gpumem-percentage", "gpucores", "priority"]
CONTAINERS = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b"])},
    optional={
        "resources": st.fixed_dictionaries(
            {},
            optional={
                part: st.dictionaries(st.sampled_from([f"nvidia.com/{name}" for name in NAMES] + ["cpu"]), AMOUNTS)
                for part in ("limits", "requests")
            },
        ),
        "env": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(["A", "CUDA_TASK_PRIORITY", "NVIDIA_VISIBLE_DEVICES"])},
                optional={"value": st.sampled_from(["", "1", "none"])},
            ),
            max_size=3,
        ),
        "securityContext": st.sampled_from([{}, {"privileged": True}]),
        "restartPolicy": st.just("Always"),
    },
)
PODS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": st.just("p"), "namespace": st.just("ns")},
            optional={
                "annotations": st.dictionaries(
                    st.sampled_from([GRANT, "hami.io/amd-devices-allocated", "a"]), st.text()
                )
            },
        ),
        "spec": st.fixed_dictionaries(
            {"containers": st.lists(CONTAINERS, max_size=3)},
            optional={
                "initContainers": st.lists(CONTAINERS, max_size=2),
                "schedulerName": st.sampled_from(["", "default-scheduler", "hami-scheduler", "other"]),
                "nodeName": st.sampled_from(["", "n1"]),
                "runtimeClassName": st.sampled_from(["mine"]),
            },
        ),
    }
)
COMMON = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.property
@COMMON
@given(pod=PODS, config=st.sampled_from(["default", "tuned"]), scheduler=st.sampled_from(["", "hami-scheduler"]))
def test_admitting_twice_is_admitting_once(
    devices: dict[str, DeviceConfig], pod: dict[str, Any], config: str, scheduler: str
) -> None:
    """The patch applies, and the patched Pod needs no second one."""
    policy = Policy.of(devices[config], scheduler)
    first = admit(pod, policy)
    if first.allowed:
        again = admit(applied(pod, first.patch), policy)
        assert (True, ()) == (again.allowed, again.patch)


@pytest.mark.property
@COMMON
@given(pod=PODS)
def test_a_pod_that_names_no_resource_of_ours_is_never_changed(
    devices: dict[str, DeviceConfig], pod: dict[str, Any]
) -> None:
    """Other fields do not matter."""
    for container in [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]:
        container["resources"] = {"limits": {"cpu": "1"}, "requests": {"example.com/gpu": "1"}}
    for config in ("default", "tuned"):
        admission = admit(pod, Policy.of(devices[config], "hami-scheduler"))
        assert () == admission.patch
        assert admission.allowed == bool(pod["spec"]["containers"])


@pytest.mark.property
@COMMON
@given(value=JSON)
def test_any_json_is_decided_on(policy: Policy, value: Any) -> None:
    """A hostile object is rejected with a message."""
    for pod in (value, {"spec": value}, {"spec": {"containers": [{"resources": value, "env": value}, value]}}):
        admission = admit(pod, policy)
        assert admission.allowed or admission.message


def test_cores_that_were_filled_in_before_do_not_count_devices_anew(policy: Policy, a_pod: PodBuilder) -> None:
    """A count in the requests alone stays the same in the second call."""
    pod = a_pod()
    pod["spec"]["containers"][0]["resources"] = {
        "requests": {"nvidia.com/gpu": "2"},
        "limits": {"nvidia.com/gpucores": "100"},
    }

    assert ["/spec/schedulerName"] == [operation["path"] for operation in admit(pod, policy).patch]
