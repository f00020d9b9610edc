"""
The Pods: images, rights, probes and restarts.
"""

import pytest

from .chart import (
    CHART,
    PARTS,
    Json,
    RefusedError,
    everything,
    given,
    is_hook,
    needs_helm,
    objects,
    one,
    pod_spec,
    text,
)

pytestmark = needs_helm

WORKLOADS = {
    "webhook": ("Deployment", "hami-webhook"),
    "scheduler": ("Deployment", "hami-scheduler"),
    "devicePlugin": ("DaemonSet", "hami-device-plugin"),
    "monitor": ("DaemonSet", "hami-monitor"),
}
COMPONENTS = pytest.mark.parametrize("component", WORKLOADS)
EVERYTHING = ("--values", str(CHART / "ci/monitored-values.yaml"))


def workload(component: str, values: Json | None = None) -> Json:
    """Return the Deployment or DaemonSet of a component."""
    return one(*WORKLOADS[component], *given(values or {}))


def container(component: str, values: Json | None = None) -> Json:
    """Return the container of a component."""
    return pod_spec(workload(component, values))["containers"][-1]  # type: ignore[no-any-return]


def test_images_come_from_one_registry() -> None:
    """All images come from one registry, and there is no other image."""
    images = {
        each["image"]
        for kind, name in WORKLOADS.values()
        for each in pod_spec(one(kind, name, "--set", "image.registry=localhost,image.tag=e2e"))["containers"]
    }

    assert {
        *(f"localhost/hami/{name}:e2e" for name in ("webhook", "scheduler", "device-plugin", "monitor")),
        "localhost/kube-scheduler:v1.34.4",
    } == images


@pytest.mark.parametrize("enabled", WORKLOADS)
def test_chart_without_a_registry_stops_with_a_sentence(enabled: str) -> None:
    """The runtime would pull from docker.io, from a name that is not ours."""
    values: Json = {name: {"enabled": name == enabled} for name in WORKLOADS}

    with pytest.raises(
        RefusedError, match=r"image\.registry is empty: set it to the registry that you pushed the images"
    ):
        text(*given(values | {"image": {"registry": ""}}))


def test_repositories_may_name_their_registry() -> None:
    """Each image may be in another."""
    values: Json = {name: {"image": {"repository": f"{name.lower()}.example/{name.lower()}"}} for name in WORKLOADS}
    values["scheduler"]["kubeScheduler"] = {"image": {"registry": "registry.k8s.io"}}
    images = [
        each["image"]
        for name in WORKLOADS
        for each in pod_spec(workload(name, values | {"image": {"registry": ""}}))["containers"]
    ]

    assert "registry.k8s.io/kube-scheduler:v1.34.4" in images
    assert f"deviceplugin.example/deviceplugin:{PARTS['device-plugin']}" in images


def test_kube_scheduler_is_the_clusters_own_version() -> None:
    """Images have no distribution's suffix in their tag."""
    deployment = one("Deployment", "hami-scheduler", kubernetes="1.33.5+k3s1")

    assert "registry.example/kube-scheduler:v1.33.5" == pod_spec(deployment)["containers"][0]["image"]


@COMPONENTS
def test_component_can_be_disabled(component: str) -> None:
    """A disabled component leaves no object, and the others do not change."""
    _, label = WORKLOADS[component]
    kept = {(o["kind"], o["metadata"]["name"]): o for o in objects(*given({component: {"enabled": False}}))}
    of_all = {(o["kind"], o["metadata"]["name"]): o for o in objects()}

    gone = {key for key, o in of_all.items() if o["metadata"]["labels"]["app.kubernetes.io/component"] == label}
    assert set(of_all) - set(kept) == gone - {("ConfigMap", "hami-scheduler-device")}
    assert kept == {key: of_all[key] for key in kept}


@COMPONENTS
def test_every_container_has_probes(component: str) -> None:
    """Each has three probes; kube-scheduler has the paths since 1.31."""
    for each in pod_spec(workload(component))["containers"]:
        assert "/livez" == each["startupProbe"]["httpGet"]["path"]
        assert "/readyz" == each["readinessProbe"]["httpGet"]["path"]
        assert "/livez" == each["livenessProbe"]["httpGet"]["path"]
        assert each["livenessProbe"]["httpGet"]["port"] in {port["name"] for port in each["ports"]}


@COMPONENTS
def test_no_container_is_privileged(component: str) -> None:
    """None is privileged, and root file systems are read-only; on Nodes files belong to any user."""
    needed = ["DAC_OVERRIDE"] if WORKLOADS[component][0] == "DaemonSet" else []
    least = {"monitor": {"watchdog": {"enabled": False}}, "devicePlugin": {"memoryEnforcement": "none"}}
    spec = pod_spec(workload(component, least))

    assert not any(spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC"))
    for each in spec["containers"]:
        context = spec.get("securityContext", {}) | each["securityContext"]
        assert "privileged" not in context
        assert (False, True) == (context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"])
        assert ({"drop": ["ALL"]} | ({"add": needed} if needed else {})) == context["capabilities"]
        assert {"type": "RuntimeDefault"} == context["seccompProfile"]
        assert context.get("runAsNonRoot", False) is not bool(needed)


def test_only_the_watchdog_sees_the_nodes_processes() -> None:
    """It reads their mappings, and tolerates the Pods of the release, such as an MPS server."""
    spec = pod_spec(workload("monitor"))

    assert spec["hostPID"]
    assert ["DAC_OVERRIDE", "SYS_PTRACE"] == spec["containers"][0]["securityContext"]["capabilities"]["add"]
    assert "--watchdog-exempt-namespaces=kube-system,gpu-operator,hami" in spec["containers"][0]["args"]
    assert not any(pod_spec(workload(name)).get("hostPID") for name in WORKLOADS if name != "monitor")


def test_folder_of_an_mps_daemon_is_mounted_under_its_own_path() -> None:
    """The plugin meets the daemon there, and names the folder to container runtimes."""
    spec = pod_spec(workload("devicePlugin", {"devicePlugin": {"mpsRoot": "/run/nvidia/mps"}}))
    [mount] = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "mps"]

    assert "--mps-root=/run/nvidia/mps" in spec["containers"][0]["args"]
    assert ("/run/nvidia/mps", True) == (mount["mountPath"], mount["readOnly"])
    assert not any(each["name"] == "mps" for each in pod_spec(workload("devicePlugin"))["volumes"])


def test_watchdog_alone_lets_the_monitor_see_the_nodes_control_groups() -> None:
    """Read-only, and under the host's path, which NVML takes."""
    cgroup = {"name": "cgroup", "mountPath": "/sys/fs/cgroup", "readOnly": True}
    without = workload("monitor", {"monitor": {"watchdog": {"enabled": False}}})

    assert cgroup in pod_spec(workload("monitor"))["containers"][0]["volumeMounts"]
    assert not any(each["name"] == "cgroup" for each in pod_spec(without)["volumes"])


@pytest.mark.parametrize(
    ("settings", "is_given"),
    [
        pytest.param({}, True, id="auto"),
        pytest.param({"memoryEnforcement": "required"}, True, id="required"),
        pytest.param({"memoryEnforcement": "none"}, False, id="none"),
        pytest.param({"mockDevices": [{"name": "T4", "memoryMib": 16384}]}, False, id="mock devices"),
        pytest.param({"deviceListStrategy": "envvar"}, False, id="no native CDI"),
    ],
)
def test_plugin_may_limit_control_groups_if_the_driver_shall_limit_memory(
    settings: dict[str, object], is_given: bool
) -> None:
    """The driver takes limits from an administrator alone, who can write the Node's control groups."""
    spec = pod_spec(workload("devicePlugin", {"devicePlugin": settings}))
    [container] = spec["containers"]

    assert is_given == ({"name": "cgroup", "mountPath": "/sys/fs/cgroup"} in container["volumeMounts"])
    assert is_given == any(volume["name"] == "cgroup" for volume in spec["volumes"])
    assert is_given == ("SYS_ADMIN" in container["securityContext"]["capabilities"]["add"])


def test_plugin_and_monitor_know_the_same_margin() -> None:
    """The plugin allows it above a share, and the watchdog reports no container that uses it."""
    for component in ("devicePlugin", "monitor"):
        changed = pod_spec(workload(component, {"devicePlugin": {"memoryMarginMib": 400}}))

        assert "--memory-margin-mib=400" in changed["containers"][0]["args"]
        assert not any("margin" in argument for argument in pod_spec(workload(component))["containers"][0]["args"])


OPENSHIFT = ("--api-versions", "security.openshift.io/v1")


@pytest.mark.parametrize("component", ["webhook", "scheduler"])
def test_openshift_chooses_the_user(component: str) -> None:
    """Its SCC restricted-v2 rejects a Pod with a fixed user or group, and accepts the rest."""
    plain, there = (pod_spec(one(*WORKLOADS[component], *more))["securityContext"] for more in ((), OPENSHIFT))

    assert {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}} == there
    assert there.items() < plain.items()


def test_node_services_may_use_their_node_on_openshift() -> None:
    """Only they get the SCC privileged, and only there."""

    def bound(*more: str) -> set[str]:
        return {
            o["subjects"][0]["name"]
            for o in objects(*more)
            if o["kind"] == "RoleBinding" and o["roleRef"]["name"] == "system:openshift:scc:privileged"
        }

    assert set() == bound()
    assert {"hami-device-plugin", "hami-monitor"} == bound(*OPENSHIFT)


@COMPONENTS
def test_changed_config_is_reloaded_or_restarts_its_pods(component: str) -> None:
    """Folders are mounted, because a single mounted file never changes; kube-scheduler reads its file once."""
    spec = pod_spec(workload(component))
    mounted = {volume["name"] for volume in spec["volumes"] if "configMap" in volume}
    mounts = [mount for container in spec["containers"] for mount in container["volumeMounts"]]
    annotations = workload(component)["spec"]["template"]["metadata"].get("annotations", {})

    assert not [mount for mount in mounts if "subPath" in mount]
    assert {f"checksum/{name}" for name in mounted - {"device-config", "node-config"}} == set(annotations)


def test_changed_config_of_kube_scheduler_changes_its_checksum() -> None:
    """A changed checksum replaces its Pods."""
    before, after = (
        workload("scheduler", change)["spec"]["template"]["metadata"]["annotations"]
        for change in ({}, {"schedulerName": "other"})
    )

    assert before.keys() == after.keys()
    assert before["checksum/kube-scheduler"] != after["checksum/kube-scheduler"]


@COMPONENTS
def test_changed_device_config_restarts_nothing(component: str) -> None:
    """Each reader reloads it, and a restart of the device plugin would reject Pods."""
    change = {
        "deviceConfig": {"nvidia": {"defaultCores": 1}},
        "devicePlugin": {"nodeConfig": {"nodeconfig": [{"name": "a"}]}},
    }

    assert workload(component)["spec"] == workload(component, change)["spec"]


CHOSEN: Json = {
    "resources": {"limits": {"memory": "2Gi"}},
    "extraEnv": [{"name": "LANG", "value": "C"}],
    "extraArgs": ["--v=4"],
    "nodeSelector": {"pool": "one"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
    "labels": {"owner": "three"},
    "annotations": {"reloader": "four"},
    "extraVolumes": [{"name": "more", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    "podSecurityContext": {"fsGroup": 7},
    "securityContext": {"runAsUser": 8},
    "podLabels": {"team": "one"},
    "podAnnotations": {"note": "two"},
    "serviceAccount": {"create": False, "name": "theirs"},
}
"""Values that a user may set for each component."""
CHOSEN_FOR_ALL = dict.fromkeys(WORKLOADS, CHOSEN)


@COMPONENTS
def test_container_gets_the_users_additions(component: str) -> None:
    """The user's values are added to the chart's."""
    made = container(component, CHOSEN_FOR_ALL)

    assert ["--v=4"] == made["args"][-1:]
    assert [{"name": "LANG", "value": "C"}] == made["env"][-1:]
    assert {"memory": "2Gi"} == made["resources"]["limits"]
    assert {"name": "more", "mountPath": "/more"} in made["volumeMounts"]
    assert {"name": "more", "emptyDir": {}} in pod_spec(workload(component, CHOSEN_FOR_ALL))["volumes"]


@COMPONENTS
def test_users_security_contexts_replace_the_defaults(component: str) -> None:
    """Of the Pods and of every container. Merged, `privileged` would contradict the rest of the default."""
    spec = pod_spec(workload(component, CHOSEN_FOR_ALL))

    assert {"fsGroup": 7} == spec["securityContext"]
    assert [{"runAsUser": 8}] * len(spec["containers"]) == [each["securityContext"] for each in spec["containers"]]


def test_kube_scheduler_gets_the_users_additions() -> None:
    """Its tracing or its plugins may need a file and a variable."""
    more = {"extraEnv": [{"name": "LANG", "value": "C"}], "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}]}
    values: Json = {"scheduler": {"kubeScheduler": more, "extraVolumes": CHOSEN["extraVolumes"]}}
    made = pod_spec(workload("scheduler", values))["containers"][0]

    assert more == {"extraEnv": made["env"], "extraVolumeMounts": made["volumeMounts"][1:]}


def test_webhook_can_use_the_nodes_network() -> None:
    """Where the API server does not reach Pods; an update then never needs the same port twice on a Node."""
    spec = workload("webhook", {"webhook": {"hostNetwork": True}})["spec"]

    assert (True, "ClusterFirstWithHostNet") == tuple(
        pod_spec({"spec": spec})[key] for key in ("hostNetwork", "dnsPolicy")
    )
    assert {"maxSurge": 0, "maxUnavailable": 1} == spec["strategy"]["rollingUpdate"]
    assert "strategy" not in workload("webhook")["spec"]


def test_umbrella_charts_have_a_condition() -> None:
    """`enabled` is theirs; here false would install nothing and say nothing."""
    assert text() == text("--set", "enabled=true")
    with pytest.raises(RefusedError, match="enabled=false has an effect only as the condition of a dependency"):
        text("--set", "enabled=false")


@COMPONENTS
def test_pods_follow_the_users_placement(component: str) -> None:
    """Selectors, tolerations and affinity are passed on unchanged."""
    spec = pod_spec(workload(component, CHOSEN_FOR_ALL))

    assert "one" == spec["nodeSelector"]["pool"]
    assert {"nodeAffinity": {}} == spec["affinity"]
    assert ([{"operator": "Exists"}], "high") == (spec["tolerations"], spec["priorityClassName"])


@COMPONENTS
def test_pods_have_the_users_labels_and_annotations(component: str) -> None:
    """The user's labels cannot remove the label that the webhook ignores."""
    made = workload(component, CHOSEN_FOR_ALL)
    metadata = made["spec"]["template"]["metadata"]

    assert ("three", "four") == (made["metadata"]["labels"]["owner"], made["metadata"]["annotations"]["reloader"])
    assert ("ignore", "one") == (metadata["labels"]["hami.io/webhook"], metadata["labels"]["team"])
    assert "two" == metadata["annotations"]["note"]


@COMPONENTS
def test_service_account_can_exist_already(component: str) -> None:
    """The chart does not create it, but binds its rights."""
    made = objects(*given(CHOSEN_FOR_ALL))

    assert "theirs" == pod_spec(workload(component, CHOSEN_FOR_ALL))["serviceAccountName"]
    assert [] == [o for o in made if o["kind"] == "ServiceAccount"]
    assert {"theirs"} == {s["name"] for o in made if o["kind"].endswith("RoleBinding") for s in o["subjects"]}


@pytest.mark.parametrize(("follower", "leader"), [("webhook", "scheduler"), ("monitor", "devicePlugin")])
def test_neighbours_share_placement_by_default(follower: str, leader: str) -> None:
    """HAMi has one Pod instead of two, so one value places both."""
    place: Json = {"nodeSelector": {"pool": "one"}, "tolerations": [{"operator": "Exists"}]}
    spec = pod_spec(workload(follower, {leader: place}))

    assert place["nodeSelector"].items() <= spec["nodeSelector"].items()
    assert place["tolerations"] == spec["tolerations"]


def test_nothing_is_reachable_from_outside() -> None:
    """There is no NodePort, Job or host network, no hook but `helm test`, no object outside the release's namespace."""
    made = objects(*EVERYTHING)

    assert {"ClusterIP"} == {o["spec"].get("type", "ClusterIP") for o in made if o["kind"] == "Service"}
    assert [] == [o["kind"] for o in made if o["kind"] == "Job"]
    assert {"test"} == {o["metadata"]["annotations"]["helm.sh/hook"] for o in everything(*EVERYTHING) if is_hook(o)}
    assert {"hami", None} == {o["metadata"].get("namespace") for o in made}


def test_one_node_is_enough() -> None:
    """Replicas prefer different Nodes, but do not require them."""
    for component in ("webhook", "scheduler"):
        assert ["preferredDuringSchedulingIgnoredDuringExecution"] == list(
            pod_spec(workload(component))["affinity"]["podAntiAffinity"]
        )


def test_budget_never_stops_a_drain() -> None:
    """One replica has no budget; several allow one eviction at a time."""
    assert {"hami-webhook": 1} == budgets()
    assert {"hami-webhook": 1, "hami-scheduler": 1} == budgets({"scheduler": {"replicas": 2}})
    assert {} == budgets({"webhook": {"replicas": 1}})


def budgets(values: Json | None = None) -> dict[str, int]:
    """Return how many Pods each PodDisruptionBudget lets go."""
    made = objects(*given(values or {}))
    return {o["metadata"]["name"]: o["spec"]["maxUnavailable"] for o in made if o["kind"] == "PodDisruptionBudget"}


def test_node_services_request_the_driver_from_the_runtime() -> None:
    """Without these variables it adds no library. The device plugin also needs the device files of `compute`."""
    for component, capabilities in (("devicePlugin", "compute,utility"), ("monitor", "utility")):
        env = {each["name"]: each.get("value") for each in container(component)["env"]}
        assert ("all", capabilities) == (env["NVIDIA_VISIBLE_DEVICES"], env["NVIDIA_DRIVER_CAPABILITIES"])


@pytest.mark.parametrize(
    ("strategy", "root", "mounted"),
    [
        ("", "", "/"),
        ("", "/run/nvidia/driver", "/run/nvidia"),
        ("cdi-annotations", "", "/"),
        ("envvar", "", None),
        ("envvar", "/run/nvidia/driver", "/run/nvidia"),
    ],
)
def test_driver_is_mounted_where_specs_may_name_its_files(strategy: str, root: str, mounted: str | None) -> None:
    """Also a driver that is mounted on the Node later, as by the GPU Operator."""
    values: Json = {"devicePlugin": {"deviceListStrategy": strategy, "nvidiaDriverRoot": root}}
    spec = pod_spec(one("DaemonSet", "hami-device-plugin", *given(values)))
    roots = [each["hostPath"]["path"] for each in spec["volumes"] if each["name"] == "driver-root"]
    mounts = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "driver-root"]

    assert ([mounted] if mounted else []) == roots
    assert [(True, "HostToContainer")] * len(roots) == [(each["readOnly"], each["mountPropagation"]) for each in mounts]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("spread", False), ("topology-aware", True), ("numa,topology-aware", True)],
)
def test_links_are_scored_if_the_policy_uses_them(policy: str, expected: bool) -> None:
    """Also if `topology-aware` is one of several policies."""
    names = [each["name"] for each in container("devicePlugin", {"scheduler": {"gpuSchedulerPolicy": policy}})["env"]]

    assert expected == ("ENABLE_TOPOLOGY_SCORE" in names)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"migStrategy": "mixed"}, id="strategy"),
        pytest.param({"nodeConfig": {"nodeconfig": [{"name": "n", "operatingmode": "mig"}]}}, id="mode of a Node"),
        pytest.param(
            {"nodeConfiguration": {"config": '{"nodeconfig": [{"name": "n", "OperatingMode": "mig"}]}'}},
            id="HAMi's name, in other letters",
        ),
        pytest.param({"config": {"map": {"a": "nvidia: {operatingMode: mig}"}}}, id="mode in a named config"),
        pytest.param({"config": {"map": {"a": "flags: {migStrategy: single}"}}}, id="strategy in a named config"),
        pytest.param({"nodeConfigMap": "theirs", "migRights": True}, id="user's own ConfigMap"),
    ],
)
def test_plugin_is_privileged_only_for_mig(values: Json) -> None:
    """NVIDIA's runtime in a CDI mode does not give it the GPUs in MIG mode. In mode `legacy` it wants two variables."""
    plain, made = container("devicePlugin"), container("devicePlugin", {"devicePlugin": values})

    assert ["DAC_OVERRIDE", "SYS_ADMIN"] == plain["securityContext"]["capabilities"]["add"]
    assert {"runAsUser": 0, "privileged": True, "readOnlyRootFilesystem": True} == made["securityContext"]
    added = {each["name"] for each in made["env"]} - {each["name"] for each in plain["env"]}
    assert {"NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES"} == added


def test_runtime_class_applies_to_plugin_and_workloads() -> None:
    """If NVIDIA's runtime is not the default, plugin and Pods with a share need the RuntimeClass."""
    values = {"devicePlugin": {"runtimeClassName": "nvidia", "createRuntimeClass": True}}

    assert ["nvidia"] * 2 == [
        pod_spec(workload(component, values))["runtimeClassName"] for component in ("devicePlugin", "monitor")
    ]
    assert (
        "runtimeClassName: nvidia"
        in one("ConfigMap", "hami-scheduler-device", *given(values))["data"]["device-config.yaml"]
    )
    assert "nvidia" == one("RuntimeClass", "nvidia", *given(values))["handler"]


def test_common_labels_are_on_every_object() -> None:
    """The same for annotations."""
    made = objects(*given({"commonLabels": {"team": "one"}, "commonAnnotations": {"note": "two"}}))

    assert {"one"} == {o["metadata"]["labels"]["team"] for o in made}
    assert [] == [
        (o["kind"], o["metadata"]["name"]) for o in made if "note" not in o["metadata"].get("annotations", {})
    ]


def test_namespace_can_be_another() -> None:
    """Every object and every argument has it."""
    made = objects("--set", "namespaceOverride=other")

    assert {"other", None} == {o["metadata"].get("namespace") for o in made}
    assert "=hami/" not in text("--set", "namespaceOverride=other")


@pytest.mark.parametrize(
    ("root", "mounted", "here"),
    [
        ("/run/nvidia/driver", "/run/nvidia", "/driver-root/driver"),
        ("/home/kubernetes/bin/nvidia/", "/home/kubernetes/bin", "/driver-root/nvidia"),
        ("/", "/", "/driver-root"),
    ],
)
@pytest.mark.parametrize("component", ["devicePlugin", "monitor"])
def test_driver_that_is_installed_later_is_seen(component: str, root: str, mounted: str, here: str) -> None:
    """The folder above the driver root is mounted, and what is mounted below it on the host appears."""
    values = {"devicePlugin": {"nvidiaDriverRoot": root}}
    spec = pod_spec(workload(component, values))
    [mount] = [each for each in spec["containers"][-1]["volumeMounts"] if each["name"] == "driver-root"]
    [volume] = [each for each in spec["volumes"] if each["name"] == "driver-root"]

    assert f"--driver-root-ctr-path={here}" in spec["containers"][-1]["args"]
    assert ("/driver-root", "HostToContainer") == (mount["mountPath"], mount["mountPropagation"])
    assert {"path": mounted, "type": "DirectoryOrCreate"} == volume["hostPath"]


@pytest.mark.parametrize(
    ("root", "folder", "mounted"),
    [
        ("", "/run/hami/mps", "/driver-root/run/hami/mps"),
        ("/run/nvidia/driver", "/run/nvidia/driver/run/hami/mps", "/driver-root/driver/run/hami/mps"),
    ],
)
def test_mps_of_the_plugin_has_its_folder_in_the_drivers_root(root: str, folder: str, mounted: str) -> None:
    """Its daemon runs there, and sees the processes of all containers. Without it the Pod has no such right."""
    spec = pod_spec(workload("devicePlugin", {"devicePlugin": {"computeEnforcement": "mps", "nvidiaDriverRoot": root}}))
    [plugin] = spec["containers"]
    assert "--compute-enforcement=mps" in plugin["args"]
    assert (True, True) == (spec["hostPID"], plugin["securityContext"]["privileged"])
    assert [folder] == [each["hostPath"]["path"] for each in spec["volumes"] if each["name"] == "mps-pipes"]
    [mount] = [each for each in plugin["volumeMounts"] if each["name"] == "mps-pipes"]
    assert (mounted, None) == (mount["mountPath"], mount.get("readOnly"))

    default = pod_spec(workload("devicePlugin"))
    assert "hostPID" not in default
    assert not default["containers"][0]["securityContext"].get("privileged")
