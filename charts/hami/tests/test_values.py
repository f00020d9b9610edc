"""The chart's values, its schema and the services say the same."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hamicommon.config import load_device_config

CHART = Path(__file__).parents[1]
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
FLAG = re.compile(r"^\s+- (--[a-z_-]+)=", re.MULTILINE)
ROOT = "values"


def resolved(schema):
    """Return *schema*, or the definition it refers to."""
    return SCHEMA["definitions"][schema["$ref"].rsplit("/", 1)[1]] if "$ref" in schema else schema


def keys_of_values(values, schema, path=ROOT):
    """Yield the path of each key in *values*, as deep as *schema* names keys."""
    properties = resolved(schema).get("properties")
    if not isinstance(values, dict) or properties is None:
        return
    for key, value in values.items():
        yield f"{path}.{key}"
        yield from keys_of_values(value, properties.get(key, {}), f"{path}.{key}")


def keys_of_schema(schema, path=ROOT):
    """Yield the path of each key that *schema* names."""
    for key, value in resolved(schema).get("properties", {}).items():
        yield f"{path}.{key}"
        yield from keys_of_schema(value, f"{path}.{key}")


def open_objects(schema, path=ROOT):
    """Yield the path of each object in *schema* that names its keys and lets others pass."""
    schema = resolved(schema)
    if "properties" in schema and schema.get("additionalProperties", True) is not False:
        yield path
    for key, value in schema.get("properties", {}).items():
        yield from open_objects(value, f"{path}.{key}")


def test_schema_knows_every_value():
    """No value is undocumented, in the defaults or in an example of an installation."""
    known = set(keys_of_schema(SCHEMA))

    for file in [CHART / "values.yaml", *(CHART / "ci").iterdir()]:
        given = set(keys_of_values(yaml.safe_load(file.read_text()), SCHEMA))
        assert set() == given - known, file.name


def test_every_value_has_its_default_written_down():
    """values.yaml is complete, so that it can be read in place of the templates."""
    optional = {path for path in keys_of_schema(SCHEMA) if path.startswith(f"{ROOT}.global")}
    optional |= {f"{ROOT}.devicePlugin.nodeConfig.nodeconfig"}
    optional |= {path for path in keys_of_schema(SCHEMA) if path.endswith((".requests", ".limits"))}

    assert set() == set(keys_of_schema(SCHEMA)) - optional - set(keys_of_values(VALUES, SCHEMA))


def test_misspelt_key_is_refused_everywhere():
    """Each object that names its keys lets no other pass."""
    assert [] == list(open_objects(SCHEMA))


def test_device_config_of_the_defaults_is_one_the_services_read():
    """What the helper template renders, from the same values."""
    names = {
        "resourceCountName": VALUES["resourceName"],
        "resourceMemoryName": VALUES["resourceMem"],
        "resourceMemoryPercentageName": VALUES["resourceMemPercentage"],
        "resourceCoreName": VALUES["resourceCores"],
        "resourcePriorityName": VALUES["resourcePriority"],
    }
    config = load_device_config(yaml.safe_dump({"nvidia": names | VALUES["deviceConfig"]["nvidia"]}))

    assert ("nvidia.com/gpu", 10) == (config.nvidia.resource_count_name, config.nvidia.device_split_count)
    assert () == config.warnings
    helper = (CHART / "templates/_helpers.tpl").read_text()
    assert all(f"  {key}: {{{{" in helper for key in names)


@pytest.mark.parametrize(
    ("folder", "file", "program"),
    [
        ("webhook", "deployment.yaml", "hami-webhook"),
        ("scheduler", "deployment.yaml", "hami-scheduler"),
        ("device-plugin", "daemonset.yaml", "hami-device-plugin"),
        ("monitor", "daemonset.yaml", "hami-monitor"),
    ],
)
def test_service_knows_every_flag_the_chart_passes(folder, file, program):
    """A flag that was renamed in a service is noticed here, not on a cluster."""
    passed = set(FLAG.findall((CHART / "templates" / folder / file).read_text())) - {"--config"}
    shown = subprocess.run(
        [Path(sys.executable).with_name(program), "--help"], capture_output=True, text=True, check=True
    ).stdout

    assert passed
    assert set() == passed - set(re.findall(r"--[a-z_-]+", shown))
