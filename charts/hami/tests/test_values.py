"""
Values, schema, documentation and HAMi's names agree.
"""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import chart_values
from hamicommon.config.device_config import load_device_config
from hamicommon.vendors import nvidia
from hamicommon.vendors.nvidia import NvidiaConfig

from .chart import (
    ALIASES,
    CHART,
    HAMI_DEFAULTS,
    HAMI_VALUES,
    INSTALLATIONS,
    PLATFORMS,
    SCHEMA,
    VALUES,
    Json,
    at,
    leaves,
    nested,
)

VALIDATOR = jsonschema.Draft7Validator(SCHEMA)
OLD_NAMES = {old for kind in ("renamed", "joined", "dropped", "ignored", "refused") for old in ALIASES[kind]}
FOREIGN_NAMES = {name for row in ALIASES["foreign"] for name in row["names"]}


def described(schema: Json, path: str = "") -> dict[str, Json]:
    """Return the schema of each value by its path. An object with properties is not a value."""
    found: dict[str, Json] = {}
    for name, each in schema["properties"].items():
        if "properties" in each and "default" not in each:
            found |= described(each, f"{path}{name}.")
        else:
            found[f"{path}{name}"] = each
    return found


def named(schema: Json, path: str = "") -> set[str]:
    """Return the path of each value and of each object of values."""
    return {
        found
        for name, each in schema.get("properties", {}).items()
        for found in ({f"{path}{name}"} | named(each, f"{path}{name}."))
    }


VALUES_OF_OURS = {
    path: schema
    for path, schema in described(SCHEMA).items()
    if not any(path == old or path.startswith(f"{old}.") for old in OLD_NAMES | FOREIGN_NAMES)
}


@pytest.mark.parametrize("path", chart_values.generated(), ids=lambda path: path.name)
def test_generated_file_is_current(path: Path) -> None:
    """`.venv/bin/python tools/chart_values.py` rewrites it."""
    assert chart_values.generated()[path] == path.read_text()


def test_schema_is_valid_json_schema() -> None:
    """It is valid JSON Schema."""
    jsonschema.Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    "file",
    [CHART / "values.yaml", *INSTALLATIONS.values(), *HAMI_DEFAULTS.values(), *PLATFORMS.values()],
    ids=lambda file: f"{file.parent.name}/{file.name}",
)
def test_values_file_is_valid(file: Path) -> None:
    """The defaults, each example, and HAMi's defaults are valid."""
    given = yaml.safe_load(file.read_text()) or {}

    assert [] == [error.message for error in VALIDATOR.iter_errors(given)]


def test_every_value_is_explained() -> None:
    """Each description is a sentence, also of HAMi's names."""
    assert [] == [path for path, each in described(SCHEMA).items() if not each.get("description", "").endswith(".")]


def test_every_value_has_a_default() -> None:
    """values.yaml is complete, except for unset limits."""
    inner = (".requests", ".limits", ".claims", ".maxSurge", ".nodeconfig")
    missing = [path for path in VALUES_OF_OURS if at(VALUES, path) is None and not path.endswith(inner)]

    assert [] == missing


def test_objects_reject_unknown_keys() -> None:
    """Objects with properties reject unknown keys, except `global`, which charts share."""

    def open_objects(schema: Json, path: str) -> list[str]:
        here = [path] if "properties" in schema and schema["additionalProperties"] is not False else []
        below = [*schema.get("properties", {}).items(), *([("[]", schema["items"])] if "items" in schema else [])]
        return here + [found for name, each in below for found in open_objects(each, f"{path}.{name}")]

    assert [".global"] == open_objects(SCHEMA, "")


def test_device_config_has_the_services_defaults() -> None:
    """values.yaml has the same defaults as the services."""
    name = {"resourceCountName": VALUES["resourceName"]}
    config = load_device_config(yaml.safe_dump({"nvidia": name | VALUES["deviceConfig"]["nvidia"]}))

    allowlist = config[nvidia.SECTION].mig_profile_allowlist
    assert NvidiaConfig(resource_count_name="nvidia.com/gpu", mig_profile_allowlist=allowlist) == config[nvidia.SECTION]
    assert () == config.warnings


@pytest.mark.parametrize("version", HAMI_VALUES)
def test_every_value_of_hami_is_known(version: str) -> None:
    """It has the same name here, or a row in the table."""
    known = named(SCHEMA)
    unknown = [
        path
        for path in (".".join(names) for names, _ in leaves(HAMI_VALUES[version]))
        if not any(path == name or path.startswith(f"{name}.") for name in known)
    ]

    assert [] == unknown


def test_both_names_of_each_row_exist() -> None:
    """In a release of HAMi's or in its main branch, and here."""
    hami = {".".join(names) for values in HAMI_VALUES.values() for names, _ in leaves(values)}
    made_up = [
        old
        for old in [*OLD_NAMES, *ALIASES["replaced"]]
        if not any(path == old or path.startswith(f"{old}.") for path in hami)
    ]

    of_the_main_branch = {"platform", "openshift", "selinux"}
    assert {"scheduler.admissionWebhook.objectSelector.matchLabels"} == set(made_up) - of_the_main_branch
    targets = {row["to"] for row in ALIASES["renamed"].values()} | set(ALIASES["joined"].values())
    assert set() == targets - named(SCHEMA)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("scheduler.replica", 2, "Additional properties are not allowed ('replica' was unexpected)"),
        ("webhook.tls.mode", "auto", "'auto' is not one of ['self', 'cert-manager', 'given']"),
        ("webhook.replicas", 0, "0 is less than the minimum of 1"),
        ("legacyMetrics", "false", "'false' is not of type 'boolean'"),
        ("scheduler.overwriteEnv", "no", "'no' is not one of [True, False, 'true', 'false', '', None]"),
        ("devicePlugin.deviceSplitCount", 0, "0 is less than the minimum of 1"),
        ("deviceConfig.nvidia.defaultCores", 101, "101 is greater than the maximum of 100"),
        ("deviceConfig.nvidia.deviceSplitcount", 4, "('deviceSplitcount' was unexpected)"),
        ("devicePlugin.nodeConfig.nodeconfig", [{"devicesplitcount": 4}], "'name' is a required property"),
        ("hookPath", "usr/local/", "does not match"),
        ("monitor.service.type", "NodePort", "('type' was unexpected)"),
        ("wireVersion", "2.3", "does not match"),
    ],
)
def test_wrong_value_is_refused(path: str, value: Any, message: str) -> None:
    """Helm rejects it before rendering, and names it."""
    (error,) = VALIDATOR.iter_errors(nested(path, value))

    assert message in error.message
