"""
Rendered configuration: arguments, device config, kube-scheduler's configuration, settings of single Nodes.
"""

import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hami_device_plugin.config.loader import files, load
from hami_device_plugin.config.settings import Config, parse_arguments
from hami_device_plugin.decide.probe.mock import read_mock_devices
from hamicommon.config.device_config import Texts, load_device_config
from hamicommon.config.node_overrides import load_node_overrides
from hamicommon.vendors import ascend, nvidia

from .chart import CHART, HAMI_DEFAULTS, Json, RefusedError, given, needs_helm, nested, objects, one, pod_spec, text

pytestmark = needs_helm

ROOT = CHART.parents[1]
TUNED = ("--values", str(CHART / "ci/hami-tuned-values.yaml"))
HAMI_CONFIG = (ROOT / "libs/hamicommon/vectors/device-config/default.yaml").read_text()
CONTENT = """
nvidia:
  resourceCountName: team.example/device
  resourceMemoryName: team.example/memory
cambricon:
  resourceCountName: cambricon.com/vmlu
"""


def device_config(*arguments: str) -> str:
    """Return device-config.yaml."""
    return str(one("ConfigMap", "hami-scheduler-device", *arguments)["data"]["device-config.yaml"])


def kube_scheduler_config(*arguments: str) -> Json:
    """Return kube-scheduler's configuration."""
    return yaml.safe_load(one("ConfigMap", "hami-scheduler", *arguments)["data"]["config.yaml"])  # type: ignore[no-any-return]


@functools.cache
def flags(program: str) -> set[str]:
    """Return the flags that *program* knows."""
    shown = subprocess.run(
        [Path(sys.executable).with_name(program), "--help"], capture_output=True, text=True, check=True
    ).stdout
    return set(re.findall(r"--[a-z_-]+", shown))


def webhook(*arguments: str) -> Json:
    """Return the registered webhook."""
    (found,) = one("MutatingWebhookConfiguration", "hami-webhook", *arguments)["webhooks"]
    return found  # type: ignore[no-any-return]


@pytest.mark.parametrize("tls", ["self", "given"])
@pytest.mark.parametrize(
    ("kind", "name", "program"),
    [
        ("Deployment", "hami-webhook", "hami-webhook"),
        ("Deployment", "hami-scheduler", "hami-scheduler"),
        ("DaemonSet", "hami-device-plugin", "hami-device-plugin"),
        ("DaemonSet", "hami-monitor", "hami-monitor"),
    ],
)
def test_program_accepts_every_rendered_flag(kind: str, name: str, program: str, tls: str) -> None:
    """A service does not start with an unknown flag."""
    values = ("--set", f"webhook.tls.mode={tls},webhook.tls.caBundle={'YQ==' if tls == 'given' else ''}")
    more = (
        "--set",
        "devicePlugin.nvidiaDriverRoot=/driver,scheduler.nodeLabelSelector.a=b,scheduler.prioritizeWeight=1",
    )
    passed = {word.split("=")[0] for word in pod_spec(one(kind, name, *values, *more))["containers"][-1]["args"]}
    assert set() == passed - flags(program)


def test_services_read_the_device_config() -> None:
    """The services read the values of a HAMi user as intended."""
    config = load_device_config(device_config(*TUNED))

    assert () == config.warnings
    assert ("nvidia.com/gpu", 4, 1.5, True, "nvidia") == (
        config[nvidia.SECTION].resource_count_name,
        config[nvidia.SECTION].device_split_count,
        config[nvidia.SECTION].device_memory_scaling,
        config[nvidia.SECTION].overwrite_env,
        config[nvidia.SECTION].runtime_class_name,
    )


def test_device_config_has_every_key() -> None:
    """HAMi's programs read it too, and take an absent number for 0."""
    keys = set(yaml.safe_load(device_config())["nvidia"])

    assert {"deviceSplitCount", "deviceMemoryScaling", "memoryFactor", "resourcePriorityName"} <= keys


def test_device_config_equals_that_of_hamis_chart() -> None:
    """Every vendor's section is there, and one key that HAMi's chart omits at its default."""
    rendered = yaml.safe_load(device_config())

    assert rendered["nvidia"].pop("disableCoreLimit") is False
    assert yaml.safe_load(HAMI_CONFIG) == rendered


def test_chips_inherit_common_values() -> None:
    """Chips share runtimeClassName and overwriteEnv, as in HAMi's chart; a chip's own value overrides them."""
    chips = [{"commonWord": "a"}, {"commonWord": "b", "runtimeClassName": "own", "overwriteEnv": False}]
    values = {
        "scheduler": {"overwriteEnv": "true"},
        "devices": {"ascend": {"enabled": True, "runtimeClassName": "ascend"}},
        "deviceConfig": {"vnpus": {"configs": chips}},
    }
    first, second = load_device_config(device_config(*given(values)))[ascend.SECTION].chips

    assert ("ascend", True) == (first.runtime_class_name, first.overwrite_env)
    assert ("own", False) == (second.runtime_class_name, second.overwrite_env)


def test_content_replaces_the_whole_device_config() -> None:
    """kube-scheduler and the webhook get the names in it."""
    content = given({"deviceConfig": {"content": CONTENT}})

    assert CONTENT.strip() == device_config(*content).strip()
    assert ["cambricon.com/vmlu", "team.example/device", "team.example/memory"] == names_asked_about(*content)


def test_content_needs_no_nvidia_without_the_device_plugin() -> None:
    """A cluster may have only another vendor's devices."""
    content = {"deviceConfig": {"content": "amd: {resourceCountName: amd.com/gpu}"}, "devicePlugin": {"enabled": False}}

    assert ["amd.com/gpu"] == names_asked_about(*given(content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("nvidia: [", "deviceConfig.content is not YAML"),
        (
            "cambricon: {resourceCountName: cambricon.com/vmlu}",
            "has no nvidia.resourceCountName",
        ),
        ("nvidia: {resourceCountName: gpu}", 'deviceConfig.content: "gpu" is not a resource name'),
    ],
)
def test_invalid_content_is_refused(content: str, message: str) -> None:
    """Helm fails before a program starts with it."""
    with pytest.raises(RefusedError, match=message):
        text(*given({"deviceConfig": {"content": content}}))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("devicePlugin.deviceSplitCount", 4, "devicePlugin.deviceSplitCount=4 has"),
        ("deviceConfig.nvidia.deviceMemoryScaling", 2, "deviceConfig.nvidia.deviceMemoryScaling=2 has"),
        ("scheduler.overwriteEnv", "true", "scheduler.overwriteEnv=true has"),
        ("resourceName", "team.example/gpu", 'resourceName="team.example/gpu" has'),
        ("devices.kunlun.enabled", False, "devices.kunlun.enabled=false has"),
    ],
)
def test_value_that_content_replaces_is_refused(path: str, value: object, message: str) -> None:
    """Under our name or HAMi's; it would change nothing."""
    with pytest.raises(RefusedError, match=f"{message} no effect beside deviceConfig.content"):
        text(*given(nested(path, value)), *given({"deviceConfig": {"content": CONTENT}}))


@pytest.mark.parametrize("version", HAMI_DEFAULTS)
def test_hami_defaults_beside_content_are_accepted(version: str) -> None:
    """A copy of HAMi's file asks for nothing else."""
    values = ("--values", str(HAMI_DEFAULTS[version]), *given({"device-config": {"content": CONTENT}}))

    assert CONTENT.strip() == device_config(*values).strip()


def test_plugin_reads_the_node_config() -> None:
    """It is HAMi's JSON, also when the value was HAMi's text."""
    config = one("ConfigMap", "hami-device-plugin", *TUNED)["data"]["config.json"]
    overrides = load_node_overrides(config)

    assert () == overrides.warnings
    assert 2 == overrides.apply(load_device_config(device_config())[nvidia.SECTION], "gpu-1").nvidia.device_split_count


def test_node_config_can_be_the_users_config_map() -> None:
    """With a ConfigMap of the user, the chart creates none."""
    arguments = ("--set", "devicePlugin.nodeConfigMap=theirs")
    volumes = {v["name"]: v for v in pod_spec(one("DaemonSet", "hami-device-plugin", *arguments))["volumes"]}

    assert "theirs" == volumes["node-config"]["configMap"]["name"]
    assert "hami-device-plugin" not in {o["metadata"]["name"] for o in objects(*arguments) if o["kind"] == "ConfigMap"}


def plugin_settings(config_json: str, values: Json) -> Config:
    """Return what the device plugin reads on the Node gpu-1, with *config_json* in the mounted ConfigMap."""
    arguments = parse_arguments(plugin_arguments(values))
    environ = {"NODE_NAME": "gpu-1"}
    device_config_file, node_config_file = files(arguments, environ)
    texts: Texts = {device_config_file: device_config(*given(values)), node_config_file: config_json}
    return load(arguments, environ, texts)


@pytest.mark.parametrize(
    "node",
    ['{"name": "gpu-1", "operatingmode": "mig"}', '{"Name": "gpu-1", "OperatingMode": "mig", "migStrategy": "none"}'],
)
def test_operating_mode_mig_is_what_the_plugin_starts_with(node: str) -> None:
    """HAMi's value, in any letter case, as HAMi reads it."""
    values: Json = {"devicePlugin": {"nodeConfiguration": {"config": f'{{"nodeconfig": [{node}]}}'}}}
    config = one("ConfigMap", "hami-device-plugin", *given(values))["data"]["config.json"]
    settings = plugin_settings(config, values)

    assert "mig" == settings.sharing.mode
    assert settings.mig_rules


@pytest.mark.parametrize("name", ["nodeConfigMap", "nodeConfiguration.externalConfigName"])
def test_plugin_reads_the_users_own_config_map(name: str) -> None:
    """The chart creates no ConfigMap of this name, and the plugin reads the user's."""
    values = nested(f"devicePlugin.{name}", "theirs")
    spec = pod_spec(one("DaemonSet", "hami-device-plugin", *given(values)))
    (volume,) = [each for each in spec["volumes"] if each["name"] == "node-config"]
    (mount,) = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "node-config"]
    theirs = '{"nodeconfig": [{"name": "gpu-1", "operatingmode": "mig", "filterdevices": {"index": [1]}}]}'
    settings = plugin_settings(theirs, values)

    assert ("theirs", "/config") == (volume["configMap"]["name"], mount["mountPath"])
    assert "mig" == settings.sharing.mode
    assert {1} == settings.sharing.excluded_indices
    assert "theirs" not in {each["metadata"]["name"] for each in objects(*given(values))}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {
                "devicePlugin": {
                    "nodeConfiguration": {"config": '{"nodeconfig": [{"name": "a", "operatingmode": "MIG"}]}'}
                }
            },
            'operatingmode of Node "a" is "MIG": write hami-core, mig or mps',
        ),
        (
            {"devicePlugin": {"nodeConfig": {"nodeconfig": [{"name": "a"}]}, "nodeConfigMap": "theirs"}},
            "nodeConfig has no effect beside devicePlugin.nodeConfigMap=theirs: write its entries to config.json",
        ),
        (
            {
                "deviceConfig": {"content": CONTENT},
                "devicePlugin": {"nodeConfig": {"nodeconfig": [{"name": "a", "operatingmode": "mig"}]}},
            },
            "operatingmode mig needs the profiles to offer: add nvidia.migProfileAllowlist to deviceConfig.content",
        ),
        (
            {"devicePlugin": {"config": {"map": {"a": "nvidia: ["}}}},
            "devicePlugin.config.map.a is not YAML",
        ),
    ],
    ids=["mode", "two sources", "no profiles", "named config"],
)
def test_node_config_without_effect_is_refused_at_render(values: Json, message: str) -> None:
    """Not by a plugin that does not start."""
    with pytest.raises(RefusedError, match=message):
        text(*given(values))


def test_kube_scheduler_sends_every_node_without_throttling() -> None:
    """kube-scheduler's defaults would hide Nodes, and throttle or delay requests."""
    config = kube_scheduler_config()

    assert (100, 2) == (config["percentageOfNodesToScore"], config["podMaxBackoffSeconds"])
    assert {"qps": 1000, "burst": 2000} == config["clientConnection"]
    assert "parallelism" not in config


def test_prioritize_weight_sets_verb_weight_and_flag() -> None:
    """One value sets the verb, its weight, and the scheduler's flag."""
    chosen = ("--set", "scheduler.prioritizeWeight=20")
    (extender,) = kube_scheduler_config(*chosen)["extenders"]
    (default,) = kube_scheduler_config()["extenders"]

    assert ("prioritize", 20) == (extender["prioritizeVerb"], extender["weight"])
    assert "--prioritize=true" in pod_spec(one("Deployment", "hami-scheduler", *chosen))["containers"][-1]["args"]
    assert "prioritizeVerb" not in default
    assert "--prioritize=true" not in pod_spec(one("Deployment", "hami-scheduler"))["containers"][-1]["args"]


def test_kube_scheduler_calls_the_extender_in_its_pod() -> None:
    """Inside the Pod, with Node names only, and only for managed resources."""
    (extender,) = kube_scheduler_config()["extenders"]
    arguments = pod_spec(one("Deployment", "hami-scheduler"))["containers"][1]["args"]

    assert f"--http_bind={extender['urlPrefix'].removeprefix('http://')}" in arguments
    verbs = tuple(extender[f"{verb}Verb"] for verb in ("filter", "bind", "preempt"))
    assert (("filter", "bind", "preempt"), True) == (verbs, extender["nodeCacheCapable"])
    assert all(each["ignoredByScheduler"] for each in extender["managedResources"])


def test_scheduler_and_extender_share_one_lease() -> None:
    """The extender follows the Lease of its kube-scheduler, which has the scheduler's name."""
    name = ("--set", "schedulerName=other")
    arguments = pod_spec(one("Deployment", "hami-scheduler", *name))["containers"][1]["args"]
    rules = one("Role", "hami-scheduler", *name)["rules"]

    election = kube_scheduler_config(*name)["leaderElection"]
    assert ("other", "10s", "7s") == tuple(election[key] for key in ("resourceName", "leaseDuration", "renewDeadline"))
    assert {"--leader-elect-resource-name=other", "--leader-elect-resource-namespace=hami"} <= set(arguments)
    assert ["other"] == rules[1]["resourceNames"]


def names_asked_about(*arguments: str) -> list[str]:
    """Return the managed resources, which the API server and kube-scheduler must agree on."""
    _, condition = webhook(*arguments)["matchConditions"]
    assert "asks-for-a-device" == condition["name"]
    (names,) = re.findall(r"\[\".+?\"\]", condition["expression"])
    managed = [each["name"] for each in kube_scheduler_config(*arguments)["extenders"][0]["managedResources"]]
    assert json.loads(names) == managed
    return managed


def test_webhook_sees_only_pods_with_a_managed_resource() -> None:
    """A webhook that fails closed must not stop other Pods."""
    assert ("Fail", 5) == (webhook()["failurePolicy"], webhook()["timeoutSeconds"])


@pytest.mark.parametrize("content", ["", HAMI_CONFIG], ids=["values", "content"])
@pytest.mark.parametrize(
    ("enabled", "without"),
    [
        ({"ascend": True, "iluvatar": True}, ()),
        ({"ascend": False, "iluvatar": True}, ("huawei.com/",)),
        ({}, ("huawei.com/", "iluvatar.ai/")),
    ],
)
def test_every_vendors_resources_are_managed(enabled: dict[str, bool], without: tuple[str, ...], content: str) -> None:
    """Every managed resource is listed once, in order; two vendors only if both services enable them."""
    devices = {name: {"enabled": value} for name, value in enabled.items()}
    values = given({"deviceConfig": {"content": content}, "devices": devices})
    managed = {name for vendor in load_device_config(HAMI_CONFIG).vendors() for name in vendor.resource_names}
    told = {f"--enable-{name}={str(enabled.get(name, False)).lower()}" for name in ("ascend", "iluvatar")}

    assert sorted(name for name in managed if not name.startswith(without or ("-",))) == names_asked_about(*values)
    for name in ("hami-webhook", "hami-scheduler"):
        assert told <= set(pod_spec(one("Deployment", name, *values))["containers"][-1]["args"])


@pytest.mark.parametrize(
    ("vendor", "value"),
    [
        ("amd", "deviceConfig.amd=null"),
        *((name, f"devices.{name}.enabled=false") for name in ("enflame", "kunlun", "mthreads", "vastai", "biren")),
    ],
)
def test_disabled_vendor_is_not_managed(vendor: str, value: str) -> None:
    """Its Pods stay with the default scheduler."""
    off = ("--set", value)
    section = yaml.safe_load(device_config())[vendor]

    assert {vendor} == set(yaml.safe_load(device_config())) - set(yaml.safe_load(device_config(*off)))
    assert set(section.values()) == set(names_asked_about()) - set(names_asked_about(*off))


@pytest.mark.parametrize(
    ("overwrite", "schedulers"),
    [("true", '["","hami-scheduler","default-scheduler"]'), ("false", '["","hami-scheduler"]')],
)
def test_webhook_does_not_see_pods_of_other_schedulers(overwrite: str, schedulers: str) -> None:
    """They are created while no webhook answers, regardless of their requests."""
    condition, _ = webhook("--set", f"webhook.forceOverwriteDefaultScheduler={overwrite}")["matchConditions"]

    assert condition["expression"].endswith(f"object.spec.schedulerName in {schedulers}")


def test_webhook_makes_its_own_certificate() -> None:
    """The chart creates an empty Secret, so an upgrade changes neither the certificate nor the registration."""
    arguments = pod_spec(one("Deployment", "hami-webhook"))["containers"][0]["args"]

    assert {
        "--tls-secret=hami/hami-webhook-tls",
        "--tls-names=hami-webhook.hami.svc",
        "--webhook-configuration=hami-webhook",
    } <= set(arguments)
    assert {"data", "stringData"}.isdisjoint(one("Secret", "hami-webhook-tls"))
    assert "caBundle" not in webhook()["clientConfig"]


def test_certificate_of_cert_manager_is_trusted_and_mounted() -> None:
    """The Issuer is the chart's or the user's."""
    arguments = ("--set", "webhook.tls.mode=cert-manager")
    certificate = one("Certificate", "hami-webhook", *arguments)
    configuration = one("MutatingWebhookConfiguration", "hami-webhook", *arguments)
    theirs = (*arguments, "--set", "webhook.tls.issuerRef.name=theirs")

    assert "hami/hami-webhook" == configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
    assert (
        "--webhook-configuration=hami-webhook"
        in pod_spec(one("Deployment", "hami-webhook", *arguments))["containers"][0]["args"]
    )
    assert certificate["spec"]["secretName"] == mounted_secret(*arguments)
    assert ["hami-webhook.hami.svc"] == certificate["spec"]["dnsNames"]
    assert "hami-webhook" == one("Issuer", "hami-webhook", *arguments)["metadata"]["name"]
    assert {"name": "theirs"} == one("Certificate", "hami-webhook", *theirs)["spec"]["issuerRef"]
    assert "Issuer" not in {o["kind"] for o in objects(*theirs)}


def test_given_certificate_is_mounted_and_its_authority_trusted() -> None:
    """The webhook then has no right to write."""
    arguments = ("--set", "webhook.tls.mode=given,webhook.tls.caBundle=YQ==,webhook.tls.secretName=theirs")

    assert "theirs" == mounted_secret(*arguments)
    assert "YQ==" == webhook(*arguments)["clientConfig"]["caBundle"]
    rules = one("ClusterRole", "hami-webhook", *arguments)["rules"]
    assert {"list", "watch"} == {verb for rule in rules for verb in rule["verbs"]}
    assert "hami-webhook" not in {o["metadata"]["name"] for o in objects(*arguments) if o["kind"] == "Role"}


def mounted_secret(*arguments: str) -> str:
    """Return the name of the Secret with the webhook's certificate."""
    volumes = {v["name"]: v for v in pod_spec(one("Deployment", "hami-webhook", *arguments))["volumes"]}
    return str(volumes["tls"]["secret"]["secretName"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            "webhook.tls.mode=given",
            "caBundle is empty: set it to the PEM .* or set webhook.tls.mode=self",
        ),
        ("webhook.tls.caBundle=YQ==", "set webhook.tls.mode=given, or remove caBundle"),
        ("webhook.tls.issuerRef.name=a", "set webhook.tls.mode=cert-manager, or remove issuerRef"),
        ("devicePlugin.createRuntimeClass=true", "needs a name: set devicePlugin.runtimeClassName=nvidia"),
        ("scheduler.replica=2", "additional properties 'replica' not allowed"),
        ("webhook.tls.mode=auto", "value must be one of 'self', 'cert-manager', 'given'"),
    ],
)
def test_contradicting_values_are_refused_with_the_fix(values: str, message: str) -> None:
    """Helm's message names the fix."""
    with pytest.raises(RefusedError, match=message):
        text("--set", values)


def test_namespaces_can_be_excluded() -> None:
    """By name, by label, or by a platform that writes the selector."""
    found = webhook("--set", "webhook.ignoredNamespaces={kube-system,ci},webhook.namespaceSelector.matchLabels.a=b")

    assert {"a": "b"} == found["namespaceSelector"]["matchLabels"]
    assert {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "ci"]} in found[
        "namespaceSelector"
    ]["matchExpressions"]
    assert "namespaceSelector" not in webhook("--set", "webhook.manageNamespaceSelector=false")


def plugin_arguments(values: Json) -> list[str]:
    """Return the device plugin's arguments."""
    return list(pod_spec(one("DaemonSet", "hami-device-plugin", *given(values)))["containers"][0]["args"])


def test_named_configs_are_mounted_and_not_hidden_by_flags() -> None:
    """A flag would win over them, so defaults are not passed; the user's own values are."""
    config = {"map": {"many": "nvidia: {deviceSplitCount: 20}\n"}, "default": "many"}
    values: Json = {"devicePlugin": {"config": config, "gds": True}}
    arguments = plugin_arguments(values)

    assert "--config-file-srcdir=/available-configs" in arguments
    assert "--default-config=many" in arguments
    assert "--gds-enabled=true" in arguments
    assert not [each for each in arguments if each.startswith(("--mofed-enabled", "--device-list-strategy"))]
    assert config["map"] == one("ConfigMap", "hami-device-plugin-configs", *given(values))["data"]
    assert "--config-file-srcdir=/available-configs" in plugin_arguments({"devicePlugin": {"config": {"name": "mine"}}})


def test_named_configs_come_from_one_place() -> None:
    """The chart's ConfigMap, or the user's."""
    with pytest.raises(RefusedError, match="exclude each other: put the configs of map into your ConfigMap"):
        objects(*given({"devicePlugin": {"config": {"map": {"a": ""}, "name": "mine"}}}))


def test_mock_devices_are_what_the_plugin_reads() -> None:
    """A cluster without devices, with the chart alone."""
    values: Json = {"devicePlugin": {"mockDevices": [{"name": "NVIDIA L4", "memoryMib": 23034, "count": 2}]}}

    assert "--mock-devices=/mock/devices.yaml" in plugin_arguments(values)
    text = one("ConfigMap", "hami-device-plugin-mock", *given(values))["data"]["devices.yaml"]
    assert 2 == len(read_mock_devices(text, "n1"))
