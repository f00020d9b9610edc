"""
Nodes whose devices are shared by ResourceClaims: a DaemonSet, rights, a DeviceClass and a policy, if `dra.enabled`.

`e2e/promises/trust/test_stolen_token.py` runs the policy's expressions on a real API server, and
`e2e/promises/shares/test_resource_claims.py` the whole.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from hami_device_plugin.config.settings import parse_arguments
from hamicommon.dra.grants import CLAIMS as FOLDER
from hamicommon.dra.names import DEVICE_TYPE, DRIVER, PARTITION_CLASS, PARTITION_TYPE
from hamicommon.wire import keys

from .chart import CHART, Json, RefusedError, given, needs_helm, notes, objects, one, pod_spec, text
from .test_rights import VERBS, rights

pytestmark = needs_helm

CLAIMS: Json = {"dra": {"enabled": True}}
NEW = {"kubernetes": "1.37.2"}
PLUGIN, DRA = "hami-device-plugin", "hami-device-plugin-dra"
SOURCE = Path(__file__).parents[3] / "services/device-plugin/src/hami_device_plugin/adapters/dra_kube.py"


def daemon_set(name: str, values: Json | None = None) -> Json:
    """Return a DaemonSet of the device plugin where claims are on."""
    return one("DaemonSet", name, *given(CLAIMS | (values or {})), **NEW)


def container(name: str, values: Json | None = None) -> Json:
    """Return its container."""
    return pod_spec(daemon_set(name, values))["containers"][0]  # type: ignore[no-any-return]


def is_for(workload: Json, labels: Mapping[str, str]) -> bool:
    """Return whether the affinity of *workload* allows a Node with *labels*."""
    required = pod_spec(workload)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]

    def holds(condition: Json) -> bool:
        is_listed = labels.get(condition["key"]) in condition["values"]
        return is_listed if condition["operator"] == "In" else not is_listed

    return any(all(map(holds, term["matchExpressions"])) for term in required["nodeSelectorTerms"])


@pytest.mark.parametrize(("default", "unlabelled"), [("plugin", PLUGIN), ("dra", DRA)])
def test_every_node_has_one_kind_of_plugin(default: str, unlabelled: str) -> None:
    """The Node's label says which; it may also have a value that means nothing."""
    workloads = {name: daemon_set(name, {"dra": {"enabled": True, "defaultKind": default}}) for name in (PLUGIN, DRA)}

    def served(labels: Mapping[str, str]) -> list[str]:
        return [name for name, each in workloads.items() if is_for(each, labels)]

    assert [unlabelled] == served({})
    assert [DRA] == served({keys.NODE_KIND: "dra"})
    assert [PLUGIN] == served({keys.NODE_KIND: "plugin"})
    assert [unlabelled] == served({keys.NODE_KIND: "other"})


def test_users_affinity_holds_for_both_kinds() -> None:
    """Its terms are alternatives, so each gets the kind."""
    arguments = ("--values", str(CHART / "ci/claims-values.yaml"))
    for name, operator in ((PLUGIN, "NotIn"), (DRA, "In")):
        affinity = pod_spec(one("DaemonSet", name, *arguments, **NEW))["affinity"]["nodeAffinity"]
        first, second = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        kind = {"key": keys.NODE_KIND, "operator": operator, "values": ["dra"]}
        assert [{"key": "hami.io/zone", "operator": "In", "values": ["a"]}, kind] == first["matchExpressions"]
        assert [kind] == second["matchExpressions"]
        assert [{"key": "metadata.name", "operator": "In", "values": ["gpu-1"]}] == second["matchFields"]


def test_nothing_but_the_affinity_changes_for_the_other_nodes() -> None:
    """Also not the selector, which is immutable."""
    workload = daemon_set(PLUGIN)
    del pod_spec(workload)["affinity"]

    assert one("DaemonSet", PLUGIN, **NEW) == workload
    assert DRA not in {each["metadata"]["name"] for each in objects(**NEW)}


def test_pods_of_both_kinds_are_one_component_with_two_owners() -> None:
    """What reads metrics or looks for the plugin finds both; the selector of one kind excludes the other's Pods."""
    labels = {name: daemon_set(name)["spec"]["template"]["metadata"]["labels"] for name in (PLUGIN, DRA)}

    assert labels[PLUGIN] | {keys.NODE_KIND: "dra"} == labels[DRA]
    selected = {name: daemon_set(name)["spec"]["selector"]["matchLabels"] for name in (PLUGIN, DRA)}
    assert selected[PLUGIN] | {keys.NODE_KIND: "dra"} == selected[DRA]


def test_next_version_serves_before_the_last_one_ends() -> None:
    """The Pod's UID is in the names of the sockets; OnDelete stays the user's."""
    (uid,) = (each for each in container(DRA)["env"] if each["name"] == "POD_UID")
    on_delete = {"devicePlugin": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}}

    assert {"fieldRef": {"fieldPath": "metadata.uid"}} == uid["valueFrom"]
    assert {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}} == (
        daemon_set(DRA)["spec"]["updateStrategy"]
    )
    assert {"type": "OnDelete"} == daemon_set(DRA, on_delete)["spec"]["updateStrategy"]


def test_driver_has_its_folders_and_only_reads_those_of_device_plugins() -> None:
    """It serves no replicas."""
    values = {"devicePlugin": {"kubeletRoot": "/data/kubelet"}}
    mounts = {each["mountPath"]: each.get("readOnly", False) for each in container(DRA, values)["volumeMounts"]}
    below = {path.removeprefix("/data/kubelet/"): it for path, it in mounts.items() if path.startswith("/data/kubelet")}

    assert {f"plugins/{DRIVER}": False, "plugins_registry": False, "device-plugins": True} == below


def test_plugin_that_makes_instances_is_privileged_on_nodes_of_both_kinds() -> None:
    """By the mode of a Node, or by the value that asks for it."""
    by_mode = {"devicePlugin": {"nodeConfig": {"nodeconfig": [{"name": "n1", "operatingmode": "mig"}]}}}
    for values in (by_mode, {"devicePlugin": {"migRights": True}}):
        for name in (PLUGIN, DRA):
            made = container(name, values)
            env = {each["name"]: each.get("value") for each in made["env"]}
            assert made["securityContext"]["privileged"]
            assert "all" == env["NVIDIA_MIG_CONFIG_DEVICES"]


def test_program_takes_the_flags_of_a_node_of_claims() -> None:
    """Also beside an administrator's instances and MPS, which only Nodes of the other kind have."""
    values = {"devicePlugin": {"migStrategy": "mixed", "computeEnforcement": "mps", "mpsRoot": "/run/mps"}}
    flags = container(DRA, values)["args"]
    parsed = parse_arguments(flags)

    assert {"--node-kind=dra", "--kubelet-root=/var/lib/kubelet"} <= set(flags)
    assert "dra" == parsed.node_kind
    assert not any("mig" in flag or "compute" in flag for flag in flags)
    assert not pod_spec(daemon_set(DRA, values)).get("hostPID")
    assert "privileged" not in container(DRA, values)["securityContext"]
    assert container(PLUGIN, values)["securityContext"]["privileged"]


def test_plugin_has_exactly_the_rights_that_it_uses() -> None:
    """The verbs are those of the API client's methods in its source; the reflector lists and watches."""
    more = set(rights(objects(*given(CLAIMS), **NEW))) - set(rights(objects(**NEW)))
    called = {VERBS[method] for method in re.findall(rf"kube\.({'|'.join(VERBS)})\(", SOURCE.read_text())}

    assert {
        "hami-device-plugin everywhere: get resourceclaims (resource.k8s.io)",
        "hami-device-plugin everywhere: get, list, watch, create, update, delete resourceslices (resource.k8s.io)",
    } == {line for line in more if line.startswith("hami-device-plugin")}
    assert called | {"list", "watch"} == {"get", "list", "watch", "create", "update", "delete"}


def test_scheduler_counts_claims_with_no_other_rights() -> None:
    """It watches them, and the slices that say which devices they have. Who reads the cluster reads them too."""
    made = objects(*given(CLAIMS), **NEW)
    more = set(rights(made)) - set(rights(objects(**NEW)))
    scheduler = one("Deployment", "hami-scheduler", *given(CLAIMS), **NEW)
    claims = "resourceclaims, resourceslices (resource.k8s.io)"

    assert f"hami-scheduler everywhere: list, watch {claims}" in more
    assert f"nobody, ClusterRole hami-operator: get, list, watch {claims}" in more
    assert any("--dra" in each["args"] for each in pod_spec(scheduler)["containers"] if each["name"] == "scheduler")


def test_monitor_sees_the_regions_and_records_of_claims() -> None:
    """Where the device plugin keeps them; without claims it has no such mount."""
    paths = {
        enabled: {
            each["mountPath"]
            for each in pod_spec(one("DaemonSet", "hami-monitor", *given({"dra": {"enabled": enabled}}), **NEW))[
                "containers"
            ][0]["volumeMounts"]
        }
        for enabled in (True, False)
    }

    assert {f"/usr/local/vgpu/{FOLDER}"} == paths[True] - paths[False]


@pytest.mark.parametrize(("name", "device_type"), [(DRIVER, DEVICE_TYPE), (PARTITION_CLASS, PARTITION_TYPE)])
def test_device_class_selects_devices_of_one_type_and_maps_no_resource(name: str, device_type: str) -> None:
    """
    Claims for HAMi's driver name the one of shares, and none of them gets a MIG instance.

    A mapping would draw Pods of the resource to Nodes that cannot serve them.
    """
    spec = one("DeviceClass", name, *given(CLAIMS), **NEW)["spec"]

    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{device_type}'"
    assert {"selectors": [{"cel": {"expression": expression}}]} == spec


@pytest.mark.parametrize(
    ("values", "is_made"),
    [({}, True), ({"devicePlugin": {"ownNodeOnly": False}}, False), ({"devicePlugin": {"enabled": False}}, False)],
    ids=["default", "off", "without the plugin"],
)
def test_policy_keeps_each_driver_to_the_slices_of_its_node(values: Json, is_made: bool) -> None:
    """It is for the plugin's account, and fails closed."""
    made = {each["metadata"]["name"]: each for each in objects(*given(CLAIMS | values), **NEW)}

    assert is_made == ("hami-own-resourceslices" in made)
    if is_made:
        spec = one("ValidatingAdmissionPolicy", "hami-own-resourceslices", *given(CLAIMS), **NEW)["spec"]
        (rule,) = spec["matchConstraints"]["resourceRules"]
        (condition,) = spec["matchConditions"]
        assert (["resourceslices"], ["CREATE", "UPDATE", "DELETE"]) == (rule["resources"], rule["operations"])
        assert condition["expression"].endswith('== "system:serviceaccount:hami:hami-device-plugin"')
        assert f'variables.spec.driver == "{DRIVER}"' in spec["validations"][0]["expression"]
        assert "Fail" == spec["failurePolicy"]


@pytest.mark.parametrize(
    ("kubernetes", "gates", "message"),
    [
        ("1.33.9", False, r"dra\.enabled=true needs Kubernetes 1\.36, and this is v1\.33\.9"),
        ("1.33.9", True, r"dra\.enabled=true needs Kubernetes 1\.36, and this is v1\.33\.9"),
        ("1.34.4", False, "in v1.34.4 the feature gates DRAConsumableCapacity and DRADeviceTaints are off by default"),
        ("1.35.4", False, "set dra.featureGates=true"),
        ("1.35.4", True, None),
        ("1.36.0", False, None),
    ],
)
def test_kubernetes_that_shares_no_devices_by_claims_is_refused(
    kubernetes: str, gates: bool, message: str | None
) -> None:
    """The kubelet and kube-scheduler would drop the amounts of a share."""
    arguments = given({"dra": {"enabled": True, "featureGates": gates}})
    if message is None:
        assert DRA in text(*arguments, kubernetes=kubernetes)
        return
    with pytest.raises(RefusedError, match=message):
        text(*arguments, kubernetes=kubernetes)


def test_values_of_hamis_driver_are_named_without_effect() -> None:
    """Its driver is another program; the claims of its users need no change."""
    found = notes(*given({"dra": {"enabled": True, "featureGates": True}, "hami-dra": {"monitor": {"enabled": False}}}))

    assert "hami-dra has no effect: the device plugin is the DRA driver" in found
