"""
A values file of HAMi keeps its effect, by the table in aliases.yaml, and the notes name what is lost.
"""

import re
from typing import Any

import pytest

from .chart import (
    ALIASES,
    HAMI_DEFAULTS,
    HAMI_VALUES,
    SCHEMA,
    VALUES,
    Json,
    RefusedError,
    at,
    effective_values,
    given,
    hami_default,
    leaves,
    needs_helm,
    nested,
    notes,
    one,
    pod_spec,
    text,
)

pytestmark = needs_helm

CHANGED_ON_THE_WAY: dict[str, tuple[Any, Any]] = {
    "boolean": ("true", True),
    "certManager": (True, "cert-manager"),
    "parent": ("/srv/kubelet/device-plugins", "/srv/kubelet"),
    "aboveVgpu": ("/srv/vgpu", "/srv"),
    "nodeConfig": (
        '{"nodeconfig": [{"name": "your-node-name", "devicesplitcount": 9}, {"name": "gpu-1"}]}',
        {"nodeconfig": [{"name": "gpu-1"}]},
    ),
    "list": ([{"name": "LANG", "value": "C"}], [{"name": "LANG", "value": "C"}]),
    "arguments": (["--config=/config/config.yaml", "--v=2"], ["--v=2"]),
}
"""For each conversion: a value in HAMi's form, and in ours."""


def merged(below: Any, above: Any) -> Any:
    """Return map *above* merged over map *below*; other values replace *below*."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {key: merged(below.get(key), value) for key, value in above.items()}


def schema_at(path: str) -> Json:
    """Return the schema of the value at *path*."""
    schema: Json = SCHEMA
    for name in path.split("."):
        schema = schema["properties"][name]
    return schema


def another(path: str) -> Any:
    """Return a valid value for *path* that is not the default."""
    if path == "deviceConfig.content":
        return "nvidia: {resourceCountName: nvidia.com/gpu}"
    schema, default = schema_at(path), at(VALUES, path)
    if "enum" in schema:
        return next(choice for choice in schema["enum"] if choice not in {default, ""})
    by_type = {
        "boolean": not default,
        "integer": (default if isinstance(default, int) else 0) + 1,
        "number": 1.5,
        "array": ["one"],
        "object": {"limits": {"cpu": "1"}} if "limits" in schema.get("properties", {}) else {"key": "one"},
        "string": next(
            text for text in ("7m", "/srv", "mutex", "a.example/b") if re.match(schema.get("pattern", ""), text)
        ),
    }
    if "operator" in str(schema.get("items")):
        return [{"key": "team", "operator": "Exists"}]
    return by_type[schema["type"] if isinstance(schema["type"], str) else schema["type"][0]]


def examples() -> dict[str, tuple[Any, Any]]:
    """Return for each old name a value, and the value of the new name that must follow."""
    found = {}
    for old, row in ALIASES["renamed"].items():
        theirs, ours = CHANGED_ON_THE_WAY[row["as"]] if "as" in row else (another(row["to"]),) * 2
        found[old] = (theirs, ours if "as" in row else merged(hami_default(old), ours))
    return found


EXAMPLES = examples()


ALONE = ("devicePlugin.nodeConfiguration.externalConfigName", "device-config.content")
"""The names that contradict others: they replace the settings of Nodes, and the device config."""


@pytest.fixture(scope="module")
def translated() -> Json:
    """The chart's values after all examples together, and those of ALONE by themselves."""
    values: Json = {}
    for old, (theirs, _) in EXAMPLES.items():
        if old not in ALONE:
            values = merged(values, nested(old, theirs))
    effective = effective_values(values)
    for old in ALONE:
        new = ALIASES["renamed"][old]["to"]
        effective = merged(effective, nested(new, at(effective_values(nested(old, EXAMPLES[old][0])), new)))
    return effective


@pytest.mark.parametrize("old", ALIASES["renamed"])
def test_value_under_an_old_name_reaches_the_new_name(old: str, translated: Json) -> None:
    """Each row of the table works."""
    assert EXAMPLES[old][1] == at(translated, ALIASES["renamed"][old]["to"])


def test_pull_secrets_of_all_images_are_joined() -> None:
    """Each image's, as names or as objects, once each, after those under our name."""
    values: Json = {"image": {"pullSecrets": ["ours"]}}
    for number, old in enumerate(ALIASES["joined"]):
        values = merged(values, nested(old, ["ours", {"name": f"theirs-{number}"}, f"mirror-{number}"]))
    expected = [name for number in range(len(ALIASES["joined"])) for name in (f"theirs-{number}", f"mirror-{number}")]

    joined = at(effective_values(values), "image.pullSecrets")

    assert ("ours", len(joined)) == (joined[0], len(set(joined)))
    assert {"ours", *expected} == set(joined)


@pytest.mark.parametrize("version", HAMI_VALUES)
def test_hami_defaults_change_nothing(version: str) -> None:
    """HAMi's whole default file changes nothing but the tests' registry."""
    theirs = effective_values(HAMI_VALUES[version])
    differing = {
        ".".join(path)
        for path, value in leaves(VALUES)
        if value != {} and value != (at(theirs, ".".join(path)) or type(value)())
    }

    assert {"image.registry"} == differing


@pytest.mark.parametrize("version", HAMI_VALUES)
def test_copied_defaults_of_hami_are_not_wishes(version: str) -> None:
    """A copied file keeps the webhook closed, and kube-scheduler's image in the common registry."""
    theirs = effective_values(HAMI_VALUES[version])
    image = at(theirs, "scheduler.kubeScheduler.image")

    assert "Fail" == at(theirs, "webhook.failurePolicy")
    assert ("", "kube-scheduler") == (image["registry"], image["repository"])


def test_hamis_default_that_a_user_chose_is_kept() -> None:
    """Alone in the file, or beside a value that is not HAMi's default."""
    mirror = {"registry": "mirror.example", "repository": "google_containers/kube-scheduler"}
    copied = merged(hami_default("scheduler.kubeScheduler.image"), {"registry": "mirror.example"})
    alone = {"registry": hami_default("scheduler.kubeScheduler.image.registry")}

    chosen = effective_values({"scheduler": {"admissionWebhook": {"failurePolicy": "Ignore"}}})
    assert "Ignore" == at(chosen, "webhook.failurePolicy")
    for given_image, expected in ((copied, mirror), (alone, alone)):
        values = effective_values({"scheduler": {"kubeScheduler": {"image": given_image}}})
        assert expected.items() <= at(values, "scheduler.kubeScheduler.image").items()


@pytest.mark.parametrize("version", HAMI_DEFAULTS)
def test_defaults_of_every_version_render_the_same(version: str) -> None:
    """An untuned cluster gets the same installation from every version of HAMi, and without a values file."""
    assert text() == text("--values", str(HAMI_DEFAULTS[version]))


@pytest.mark.parametrize("version", HAMI_DEFAULTS)
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("devicePlugin.deviceListStrategy", "volume-mounts"),
        ("devicePlugin.nvidiaDriverRoot", "/run/nvidia/driver"),
        ("devicePlugin.deviceSplitCount", 4),
        ("devicePlugin.disablecorelimit", "true"),
        ("devicePlugin.passDeviceSpecsEnabled", True),
        ("devicePlugin.tolerations", [{"operator": "Exists"}]),
        ("scheduler.admissionWebhook.failurePolicy", "Fail"),
        ("scheduler.defaultSchedulerPolicy.gpuSchedulerPolicy", "binpack"),
    ],
)
def test_one_wish_in_a_copied_file_is_all_that_changes(version: str, path: str, value: Any) -> None:
    """Whoever copies HAMi's file and changes a line gets what the line alone gives."""
    wish = given(nested(path, value))

    assert text(*wish) == text("--values", str(HAMI_DEFAULTS[version]), *wish)


def plugin_of(*arguments: str) -> tuple[list[str], set[str], list[str]]:
    """Return the device plugin's arguments about devices, the volumes of the driver, and the added capabilities."""
    spec = pod_spec(one("DaemonSet", "hami-device-plugin", *arguments))
    (container,) = spec["containers"]
    said = [each for each in container["args"] if "device-list" in each or "driver-root" in each]
    volumes = {each["hostPath"]["path"] for each in spec["volumes"] if each["name"] in ("driver-root", "cgroup")}
    return said, volumes, container["securityContext"]["capabilities"]["add"]


@pytest.mark.parametrize("version", HAMI_DEFAULTS)
def test_copied_file_keeps_the_drivers_limits(version: str) -> None:
    """The strategy envvar is HAMi's default, and would take the driver's root and limits away. The notes say so."""
    file = ("--values", str(HAMI_DEFAULTS[version]))

    assert ([], {"/", "/sys/fs/cgroup"}, ["DAC_OVERRIDE", "SYS_ADMIN"]) == plugin_of(*file)
    assert "- devicePlugin.deviceListStrategy has no effect: it is HAMi's default; here it is cdi-cri" in notes(*file)
    assert "What these values cost" not in notes(*file)


def test_wish_for_envvar_is_followed_and_its_cost_is_told() -> None:
    """Alone, or in a copied file without ctrPath, which says that the file was copied."""
    alone = given({"devicePlugin": {"deviceListStrategy": "envvar"}})
    unset = ("--set-json", "devicePlugin.monitor.ctrPath=null")
    copied = ("--values", str(HAMI_DEFAULTS["2.10"]), *unset)

    for arguments in (alone, copied):
        assert (["--device-list-strategy=envvar"], set(), ["DAC_OVERRIDE"]) == plugin_of(*arguments)
        assert "- devicePlugin.deviceListStrategy=envvar: only the library limits memory" in notes(*arguments)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            {"devicePlugin": {"deviceListStrategy": "volume-mounts"}},
            "devicePlugin.deviceListStrategy=volume-mounts: only",
        ),
        ({"devicePlugin": {"memoryEnforcement": "none"}}, "devicePlugin.memoryEnforcement=none: only the library"),
        ({"devicePlugin": {"allocation": "lock"}}, "devicePlugin.allocation=lock: only the library"),
        ({"devicePlugin": {"securityContext": {"runAsUser": 0}}}, "devicePlugin.securityContext: only the library"),
        ({"webhook": {"failurePolicy": "Ignore"}}, "webhook.failurePolicy=Ignore: while the webhook is unreachable"),
        (
            {"scheduler": {"reservedAnnotations": {"enabled": False}}},
            "scheduler.reservedAnnotations.enabled=false: a user",
        ),
    ],
)
def test_notes_say_what_a_wish_costs(values: Json, told: str) -> None:
    """One line for each, and none for an installation that has all protections."""
    said = [line for line in notes(*given(values)).splitlines() if line.startswith("- ")]

    assert [True] == [line.startswith(f"- {told}") for line in said], said
    assert "What these values cost" not in notes()


@pytest.mark.parametrize(
    "values",
    [
        {"deviceListStrategy": "envvar,cdi-cri"},
        {"securityContext": {"privileged": True}},
        {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}},
        {"mockDevices": [{"name": "card", "memoryMib": 1024}], "deviceListStrategy": "envvar"},
        {"enabled": False, "memoryEnforcement": "none"},
    ],
)
def test_notes_do_not_warn_of_what_costs_nothing(values: Json) -> None:
    """The driver can limit memory, or there is none."""
    assert "What these values cost" not in notes(*given({"devicePlugin": values}))


@pytest.mark.parametrize(
    ("path", "value", "needed"),
    [("deviceListStrategy", "envvar", "CDI"), ("allocation", "lock", "allocation by identity")],
)
def test_required_limits_of_the_driver_need_their_way(path: str, value: str, needed: str) -> None:
    """Every Node would offer nothing."""
    expected = f"devicePlugin.memoryEnforcement=required needs {needed}, and devicePlugin.{path}={value}: remove one"

    with pytest.raises(RefusedError, match=expected):
        text(*given({"devicePlugin": {"memoryEnforcement": "required", path: value}}))


@pytest.mark.parametrize(
    ("old", "theirs", "new", "ours"),
    [
        ("devicePlugin.deviceSplitCount", 4, "deviceConfig.nvidia.deviceSplitCount", 5),
        ("global.labels", {"team": "a"}, "commonLabels", {"team": "b"}),
        ("scheduler.certManager.enabled", True, "webhook.tls.mode", "given"),
    ],
)
def test_different_values_under_two_names_are_refused(old: str, theirs: Any, new: str, ours: Any) -> None:
    """The chart does not guess which one is right."""
    with pytest.raises(RefusedError, match=rf"are the same value, which is called {new} here: remove {old}"):
        text(*given(merged(nested(old, theirs), nested(new, ours))))


def test_equal_values_under_two_names_are_accepted() -> None:
    """A file that is being rewritten may contain both."""
    both = given({"devicePlugin": {"deviceSplitCount": 4}, "deviceConfig": {"nvidia": {"deviceSplitCount": 4}}})

    assert text(*both) == text(*given({"deviceConfig": {"nvidia": {"deviceSplitCount": 4}}}))


def test_copied_default_of_hami_gives_way_to_our_name() -> None:
    """A user who copied HAMi's whole file and then sets our name means our name."""
    both = given({"devicePlugin": {"deviceSplitCount": 10}, "deviceConfig": {"nvidia": {"deviceSplitCount": 4}}})

    assert text(*both) == text(*given({"deviceConfig": {"nvidia": {"deviceSplitCount": 4}}}))


@pytest.mark.parametrize("old", ALIASES["refused"])
def test_impossible_value_stops_the_installation(old: str) -> None:
    """The message says what to do instead."""
    default = hami_default(old)
    value = {True: False, False: True, "": "node-1", "none": "mixed"}[default]

    with pytest.raises(RefusedError) as refused:
        text(*given(nested(old, value)))

    assert f"{old}={str(value).lower()} cannot be kept: {ALIASES['refused'][old]}" in str(refused.value)


FOREIGN = {name: row["instead"] for row in ALIASES["foreign"] for name in row["names"]}


@pytest.mark.parametrize("name", FOREIGN)
def test_name_of_another_chart_is_rejected_with_what_to_write(name: str) -> None:
    """Helm prints the name and the value to set, of which each is in the schema."""
    with pytest.raises(RefusedError) as refused:
        text(*given(nested(name, "one")))

    assert f"\n{name} is not a value of this chart: {FOREIGN[name]}\n" in str(refused.value)
    paths = [path.rstrip(",") for path in FOREIGN[name].split() if re.fullmatch(r"\w+(\.\w+)+,?", path)]
    assert paths
    assert all(schema_at(path) for path in paths)


def test_every_foreign_name_is_told_at_once() -> None:
    """By the whole path that the user wrote. Null and empty lists ask for nothing."""
    values = {"kubeScheduler": {"image": {"tag": "v1"}, "imageTag": "v1"}, "nvidianodeSelector": {"gpu": "on"}}
    nothing: Json = {"imagePullSecrets": [], "extraEnvs": {}, "migstrategy": None}

    with pytest.raises(RefusedError) as refused:
        text(*given(values | nothing))

    assert ["kubeScheduler.image.tag", "kubeScheduler.imageTag", "nvidianodeSelector.gpu"] == [
        line.split(" ")[0] for line in str(refused.value).splitlines() if " is not a value of this chart: " in line
    ]
    assert text() == text(*given(nothing))


@pytest.mark.parametrize(
    "values",
    [
        {
            "platform": {"openshift": True},
            "openshift": {"securityContextConstraints": {"create": True, "name": "hami-device-plugin"}},
            "selinux": {"enabled": True, "type": "container_file_t", "level": "s0"},
        },
        {"platform": "openshift", "openshift": True, "selinux": True},
    ],
)
def test_hamis_values_for_openshift_are_accepted_and_named(values: Json) -> None:
    """
    The chart finds OpenShift itself, so the wish is followed. `strict` stops at them.

    Source: https://github.com/Project-HAMi/HAMi/pull/2208
    """
    told = {line.split(" ")[1] for line in notes(*given(values)).splitlines() if " has no effect: " in line}

    assert {"platform", "openshift", "selinux"} == told
    assert text() == text(*given(values))
    with pytest.raises(RefusedError, match=r"(?s)strict=true.*- openshift .*- platform .*- selinux"):
        text(*given(values | {"strict": True}))


def test_value_without_effect_is_named_and_changes_nothing() -> None:
    """The notes name each, and the manifests stay the same."""
    values: Json = {}
    for old in [*ALIASES["dropped"], *ALIASES["ignored"]]:
        values = merged(values, nested(old, {"key": "one"} if isinstance(hami_default(old), dict) else "one"))
    arguments = given(values)
    told = notes(*arguments).splitlines()

    assert {
        f"- {old} has no effect: {why}" for kind in ("dropped", "ignored") for old, why in ALIASES[kind].items()
    } <= set(told)
    assert text() == text(*arguments)


def test_strict_refuses_every_value_without_effect() -> None:
    """Each is named with its reason, because Argo CD shows no notes."""
    values: Json = {"strict": True}
    for old in [*ALIASES["dropped"], *ALIASES["ignored"]]:
        values = merged(values, nested(old, {"key": "one"} if isinstance(hami_default(old), dict) else "one"))
    for old in ALIASES["replaced"]:
        values = merged(values, nested(old, hami_default(old)))
    neighbours = {"scheduler.kubeScheduler.image.pullPolicy", "devicePlugin.monitor.ctrPath"}
    for old in neighbours:
        values = merged(values, nested(old, hami_default(old)))

    with pytest.raises(RefusedError, match="strict=true, and these values have no effect") as refused:
        text(*given(values))

    # HAMi's defaults ask for nothing.
    told = {*ALIASES["dropped"], *ALIASES["ignored"], *ALIASES["replaced"]} - neighbours
    assert told == {line[2:].partition(" ")[0] for line in str(refused.value).splitlines() if line.startswith("- ")}


def test_strict_accepts_what_has_an_effect() -> None:
    """Old names that are translated, and defaults that ask for nothing."""
    values = {"devicePlugin": {"deviceSplitCount": 4, "hostPID": True}, "global": {"imagePullSecrets": ["login"]}}

    assert text(*given(values | {"strict": True})) == text(*given(values))


@pytest.mark.parametrize("version", HAMI_DEFAULTS)
def test_notes_name_only_the_defaults_that_lose_an_effect(version: str) -> None:
    """A default that changes nothing is not worth a note."""
    told = notes("--values", str(HAMI_DEFAULTS[version])).split("Values under HAMi's names:\n")[1]
    lost = {old for old in [*ALIASES["replaced"], *ALIASES["dropped"]] if at(HAMI_VALUES[version], old) is not None}

    assert lost == {line.removeprefix("- ").split(" ")[0] for line in told.splitlines()}


def test_defaults_of_hami_2_9_lose_the_shared_enflame_names() -> None:
    """Pods of 2.9 that request them are no longer managed, so the notes say it."""
    told = notes("--values", str(HAMI_DEFAULTS["2.9"]))

    assert "- enflameResourceNameVGCU has no effect: since HAMi 2.10" in told


def test_notes_name_renamed_values() -> None:
    """The notes tell how to rewrite the file."""
    assert "- devicePlugin.deviceSplitCount is deviceConfig.nvidia.deviceSplitCount here" in notes(
        *given({"devicePlugin": {"deviceSplitCount": 4}})
    )


def test_region_files_stay_where_hami_put_them() -> None:
    """Plugin and monitor mount HAMi's folder, where the region files of running Pods are."""
    values = given({"devicePlugin": {"libPath": "/data/hami/vgpu"}})
    mounted = {
        volume["hostPath"]["path"]
        for name in ("hami-device-plugin", "hami-monitor")
        for volume in pod_spec(one("DaemonSet", name, *values))["volumes"]
        if volume["name"] in {"library", "containers"}
    }

    assert {"/data/hami/vgpu", "/data/hami/vgpu/containers"} == mounted


def test_folder_that_is_not_called_vgpu_is_refused() -> None:
    """The message says where the files must be."""
    with pytest.raises(RefusedError, match=r"libPath=/data/gpu cannot be kept: .* move the folder to /data/vgpu"):
        text(*given({"devicePlugin": {"libPath": "/data/gpu"}}))


@pytest.mark.parametrize(
    ("path", "value", "right"),
    [
        ("devicePlugin.image.repository", "mirror/hami", "where your registry has hami/device-plugin"),
        ("webhook.image.repository", "projecthami/hami", "where your registry has hami/webhook"),
        ("devicePlugin.image.tag", "v2.10.0", "the tag that your hami/device-plugin has"),
        ("scheduler.image.tag", "v2.9.1", "the tag that your hami/scheduler has"),
        ("image.tag", "v2.8.0", "the tag that your hami/webhook has"),
    ],
)
def test_hamis_image_is_refused(path: str, value: str, right: str) -> None:
    """HAMi's program ends with our arguments, or does something else."""
    with pytest.raises(RefusedError, match=rf"{path}={value} is .*: remove it, or set it to {right}"):
        text(*given(nested(path, value)))


def test_image_of_the_users_registry_is_accepted() -> None:
    """A mirror may have other paths and tags; a digest overrides the tag."""
    digest = "sha256:" + "0" * 64
    values = {"devicePlugin": {"image": {"repository": "hami/plugin", "tag": "2.1.0"}}, "image": {"registry": "r"}}
    pinned = {"devicePlugin": {"image": {"tag": "v2.10.0", "digest": digest}}, "image": {"registry": "r"}}

    assert "image: r/hami/plugin:2.1.0" in text(*given(values))
    assert f"image: r/hami/device-plugin@{digest}" in text(*given(pinned))


def test_our_registry_wins_over_hamis() -> None:
    """HAMi's mirror does not have our images, so a file that names it needs no change. `strict` asks for one."""
    both = {"global": {"imageRegistry": "mirror.example"}, "image": {"registry": "registry.example"}}
    images = re.findall(r"image: (\S+?)/", text(*given(both)))

    assert {"registry.example"} == set(images)
    assert any(image.startswith("kube-scheduler:") for image in re.findall(r"image: \S+?/(\S+)", text(*given(both))))
    assert "- global.imageRegistry has no effect: image.registry is set" in notes(*given(both))
    with pytest.raises(RefusedError, match=r"- global\.imageRegistry has no effect"):
        text(*given(both | {"strict": True}))


def test_common_registry_overrides_kube_schedulers() -> None:
    """HAMi's chart does the same."""
    values = {
        "global": {"imageRegistry": "registry.example"},
        "scheduler": {"kubeScheduler": {"image": {"registry": "other.example"}}},
    }

    assert "image: registry.example/kube-scheduler:v" in text(*given(values))
