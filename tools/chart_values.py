"""
Generate the files of the chart and the pages that follow from what is written once elsewhere.

`charts/hami/schema.yaml` has meanings and types, `values.yaml` the defaults, `hamicommon.vendors` the sections of
`deviceConfig`, `aliases.yaml` HAMi's names. The generated files are values.schema.json, alias-defaults.json,
vendors.json, the vendors' part of values.yaml, docs/values.md and docs/vendors.md.
With `--check` it writes nothing, and fails if a committed file differs.
"""

import ast
import copy
import dataclasses
import inspect
import itertools
import json
import sys
import textwrap
import typing
from pathlib import Path
from typing import Any

import yaml

from hamicommon.config.device_config import DeviceConfig, load_device_config
from hamicommon.vendors import descriptions, nvidia
from hamicommon.vendors.description import Section, Vendor
from hamicommon.wire.go.yaml_reader import Key

ROOT = Path(__file__).parent.parent
CHART = ROOT / "charts/hami"
Json = dict[str, Any]
_BEGIN = "  # vendors: written by tools/chart_values.py, from libs/hamicommon/src/hamicommon/vendors\n"
_END = "  # vendors: end\n"
"""The generated part of values.yaml is between these lines."""

_TYPES: dict[Any, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}
_CHANGED_ON_THE_WAY: dict[str, Json] = {
    "boolean": {"enum": [True, False, "true", "false", "", None]},
    "certManager": {"type": ["boolean", "null"]},
    "parent": {"type": ["string", "null"], "pattern": "^/.*[^/]$"},
    "aboveVgpu": {"type": ["string", "null"], "pattern": "^/.*[^/]$"},
    "nodeConfig": {"type": ["string", "null"]},
    "list": {
        "type": ["array", "object", "null"],
        "maxProperties": 0,
        "items": {"type": "object", "required": ["name"]},
    },
    "arguments": {"type": ["array", "null"], "items": {"type": "string"}},
}
"""The schema of an old name, by conversion in templates/_aliases.tpl."""
_NAMES: Json = {"type": ["array", "null"], "items": {"type": ["string", "object"], "required": ["name"]}}
"""The schema of an old name whose list is joined: names, or objects with a name."""


def main() -> None:
    stale = []
    for path, text in generated().items():
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(str(path.relative_to(ROOT)))
    if stale:
        sys.exit(f"stale: {', '.join(stale)}; run `.venv/bin/python tools/chart_values.py`")


def generated() -> dict[Path, str]:
    """Return the text of each generated file."""
    values_text = with_vendors((CHART / "values.yaml").read_text(encoding="utf-8"))
    values, aliases, own = _plain(values_text), _load("aliases.yaml"), _load("schema.yaml")
    add_sections(own["properties"]["deviceConfig"]["properties"], own.pop("parts"))
    add_defaults(own, values)
    whole = {"$schema": "http://json-schema.org/draft-07/schema#"} | copy.deepcopy(own)
    add_old_names(whole, aliases)
    refuse_other_keys(whole)
    compared = {*_targets(aliases), *aliases["replaced"], *aliases["replacedByContent"]}
    defaults = {path: at(values, path) for path in sorted(compared)}
    return {
        CHART / "values.yaml": values_text,
        CHART / "vendors.json": json.dumps(annotation_keys(), indent=1) + "\n",
        CHART / "values.schema.json": json.dumps(whole, indent=1, ensure_ascii=False) + "\n",
        CHART / "alias-defaults.json": json.dumps(defaults, indent=1) + "\n",
        ROOT / "docs/values.md": document(own, aliases),
        ROOT / "docs/vendors.md": vendors_page(values),
    }


def with_vendors(values: str) -> str:
    """Return the text of values.yaml with the generated sections of the vendors."""
    before, _, rest = values.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    sections = (description.section for description in descriptions().values())
    written = {section.name: chart_section(section) for section in sections}
    lines = yaml.safe_dump({name: keys for name, keys in written.items() if keys}, sort_keys=False)
    return before + _BEGIN + textwrap.indent(lines, "  ") + _END + after


def chart_section(section: Section[Any]) -> Json:
    """Return the chart's values of *section*; empty if values.yaml has them by hand."""
    if not dataclasses.is_dataclass(section.empty):
        return {}
    rules: dict[str, Key] = {field.name: field.metadata["key"] for field in dataclasses.fields(section.empty)}
    if not any(key.chart for key in rules.values()):
        return {}
    return {
        key.name: key.chart or getattr(section.empty, name)
        for name, key in rules.items()
        if not name.startswith("legacy_")
    }


def annotation_keys() -> dict[str, list[str]]:
    """Return the annotations with grants of every vendor whose keys are fixed, and those of our device plugin."""
    return {
        "allocatedKeys": sorted(vendor.allocated_key for vendor in DeviceConfig().vendors()),
        "pluginPodKeys": sorted(nvidia.PLUGIN_POD_KEYS),
        "pluginNodeKeys": sorted(nvidia.PLUGIN_NODE_KEYS),
    }


def add_sections(properties: Json, parts: Json) -> None:
    """Add the sections of the device config to *properties*; *parts* describes resource names."""
    for section in (description.section for description in descriptions().values()):
        kind = section.kind or type(section.empty)
        properties[section.name] = _field_schema(kind, Key(section.name), section.meaning)
    nvidia = properties["nvidia"]["properties"]
    properties["nvidia"]["properties"] = {name: each for name, each in nvidia.items() if name not in _names_in(nvidia)}
    _add_names(properties, parts)


def _names_in(properties: Json) -> list[str]:
    """Return the keys that name a resource."""
    return [name for name in properties if name.startswith("resource")]


def _add_names(properties: Json, parts: Json) -> None:
    for name in _names_in(properties):
        meaning = properties[name].get("description") or parts["resources"].get(name, "")
        properties[name] = parts["resourceName"] | {"description": meaning}
    for each in properties.values():
        _add_names(each.get("items", each).get("properties", {}), parts)


def dataclass_properties(kind: type[Any]) -> Json:
    """Return the JSON Schema of each key of *kind*, without legacy keys."""
    types, meanings = typing.get_type_hints(kind), field_docstrings(kind)
    rules: dict[str, Key] = {
        field.name: field.metadata["key"] for field in dataclasses.fields(kind) if "key" in field.metadata
    }
    return {
        key.name: _field_schema(types[name], key, meanings.get(name, ""))
        for name, key in rules.items()
        if not name.startswith("legacy_")
    }


def field_docstrings(kind: type[Any]) -> dict[str, str]:
    """Return the docstring below each field of *kind*, on one line."""
    body = typing.cast(ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]).body
    return {
        field.target.id: " ".join(below.value.value.split())
        for field, below in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str)
    }


def _field_schema(kind: Any, key: Key, meaning: str) -> Json:
    schema: Json = {}
    if typing.get_origin(kind) is tuple:
        schema = {"type": "array", "items": _whole_schema(typing.get_args(kind)[0])}
    elif dataclasses.is_dataclass(kind):
        schema = _whole_schema(typing.cast(type[Any], kind))
    elif key.choices:
        schema["enum"] = list(key.choices)
    else:
        schema["type"] = [_TYPES[kind], "string"] if key.quoted_number else _TYPES[kind]
    for word, limit in (("minimum", key.least), ("maximum", key.most)):
        if limit is not None:
            schema[word] = limit
    return schema | ({"description": meaning} if meaning else {})


def _whole_schema(kind: type[Any]) -> Json:
    if dataclasses.is_dataclass(kind):
        return {"type": "object", "properties": dataclass_properties(kind)}
    return {"type": _TYPES[kind]}


def add_defaults(schema: Json, values: Any) -> None:
    """Add the default of each property to *schema*; an object's defaults are its properties'."""
    for name, property_ in schema.get("properties", {}).items():
        if isinstance(values, dict) and name in values:
            if "properties" in property_:
                add_defaults(property_, values[name])
            else:
                property_["default"] = values[name]


def add_old_names(schema: Json, aliases: Json) -> None:
    """Add HAMi's names to *schema*."""
    for old, row in aliases["renamed"].items():
        target = copy.deepcopy(property_at(schema, row["to"]))
        accepted = copy.deepcopy(_CHANGED_ON_THE_WAY[row["as"]]) if "as" in row else _or_null(target)
        _put(schema, old, accepted | {"description": f"HAMi's name of {row['to']}."})
    for old, new in aliases["joined"].items():
        _put(schema, old, _NAMES | {"description": f"Added to {new}."})
    for kind, word in (("dropped", "No effect"), ("ignored", "No effect"), ("refused", "Only HAMi's default")):
        for old, reason in aliases[kind].items():
            _put(schema, old, {"description": f"{word}: {reason}."})
    for row in aliases["foreign"]:
        for name in row["names"]:
            _put(schema, name, {"description": f"Rejected: {row['instead']}."})
    schema["properties"]["global"]["additionalProperties"] = True


def _or_null(schema: Json) -> Json:
    """Return *schema* without a default, and with null allowed, which means not given."""
    schema.pop("default", None)
    if "enum" in schema:
        return schema | {"enum": [*schema["enum"], None]}
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return schema | {"type": list(dict.fromkeys([*kinds, "null"]))}


def property_at(schema: Json, path: str) -> Json:
    """Return the schema of the value at *path*."""
    for name in path.split("."):
        schema = schema["properties"][name]
    return schema


def _put(schema: Json, path: str, value: Json) -> None:
    *parents, last = path.split(".")
    for name in parents:
        schema = schema.setdefault("properties", {}).setdefault(name, {"type": ["object", "null"]})
    if last not in schema.setdefault("properties", {}):
        schema["properties"][last] = value


def refuse_other_keys(schema: Json) -> None:
    """Reject unknown keys in every object that lists its properties."""
    if "properties" in schema:
        schema.setdefault("additionalProperties", False)
        for property_ in schema["properties"].values():
            refuse_other_keys(property_)
    if isinstance(schema.get("items"), dict):
        refuse_other_keys(schema["items"])


def at(values: Any, path: str) -> Any:
    """Return the value at *path*, or None."""
    for name in path.split("."):
        values = values.get(name) if isinstance(values, dict) else None
    return values


def document(schema: Json, aliases: Json) -> str:
    """Return docs/values.md."""
    lines = [
        "# Values of the chart",
        "",
        "Generated by `tools/chart_values.py`. The chart rejects any other key.",
    ]
    plain = {name: each for name, each in schema["properties"].items() if "properties" not in each}
    lines += _table("Common", "", {"properties": plain})
    for name, each in schema["properties"].items():
        if "properties" in each:
            lines += _table(f"`{name}`", f"{name}.", each)
    lines += [
        "",
        "## HAMi's names",
        "",
        "A values file of HAMi 2.8, 2.9 or 2.10 works as it is, with `image.registry` added. A value given by both",
        "names must be the same in both, unless the table says otherwise.",
        "",
    ]
    lines += ["| HAMi's name | Here |", "|---|---|"]
    yields = {old: f", without effect if {row['yields']}" for old, row in aliases["renamed"].items() if "yields" in row}
    lines += [f"| `{old}` | `{row['to']}`{yields.get(old, '')} |" for old, row in aliases["renamed"].items()]
    lines += [f"| `{old}` | added to `{new}` |" for old, new in aliases["joined"].items()]
    for title, kind in (
        ("HAMi's default counts as not given", "replaced"),
        ("No effect since HAMi 2.10, always named after an installation", "dropped"),
        ("No effect, named after an installation unless it is HAMi's default", "ignored"),
        ("Only HAMi's default is accepted", "refused"),
    ):
        lines += ["", f"### {title}", "", "| HAMi's name | Why |", "|---|---|"]
        reasons = {old: row["why"] if isinstance(row, dict) else row for old, row in aliases[kind].items()}
        lines += [f"| `{old}` | {reason} |" for old, reason in reasons.items()]
    lines += [
        "",
        "### Rejected, because HAMi's charts 2.8 to 2.10 have no such name",
        "",
        "| Name | Instead |",
        "|---|---|",
    ]
    lines += [f"| {_codes(row['names'])} | {row['instead']} |" for row in aliases["foreign"]]
    return "\n".join(lines) + "\n"


def _table(title: str, prefix: str, schema: Json) -> list[str]:
    rows = list(_rows(prefix, schema))
    return ["", f"## {title}", "", "| Value | Default | May be | Meaning |", "|---|---|---|---|", *rows]


def _rows(prefix: str, schema: Json) -> typing.Iterator[str]:
    for name, each in schema["properties"].items():
        if "properties" in each and "default" not in each:
            yield from _rows(f"{prefix}{name}.", each)
        else:
            cells = (f"`{prefix}{name}`", _default(each), may_be(each), each.get("description", ""))
            yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(schema: Json) -> str:
    """Return the default for the table; a long list links to values.yaml."""
    text = f"`{json.dumps(schema['default'])}`" if "default" in schema else ""
    return text if len(text) <= 200 else "[values.yaml](../charts/hami/values.yaml)"


def may_be(schema: Json) -> str:
    """Return the type and range of a value in a few words."""
    if "enum" in schema:
        return ", ".join(f"`{choice}`" if choice != "" else "empty" for choice in schema["enum"])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    words = " or ".join(kind for kind in kinds if kind != "null")
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None:
        words += f", {least:g} or more" if most is None else f", {least:g} to {most:.10g}"
    return words


def vendors_page(values: Json) -> str:
    """Return docs/vendors.md."""
    names = {
        "resourceCountName": "resourceName",
        "resourceMemoryName": "resourceMem",
        "resourceMemoryPercentageName": "resourceMemPercentage",
        "resourceCoreName": "resourceCores",
        "resourcePriorityName": "resourcePriority",
    }
    sections = {name: section for name, section in values["deviceConfig"].items() if name in _section_names()}
    sections["nvidia"] |= {key: values[name] for key, name in names.items()}
    config = load_device_config(yaml.safe_dump(sections))
    lines = [
        "# Vendors",
        "",
        "Generated by `tools/chart_values.py`, with the names of the chart's default values.",
        "",
        "- **Key** names the vendor in the annotations that say what a Pod was granted.",
        "- **Devices** says where the scheduler reads the devices of a Node: in its annotation, or in its capacity.",
        "- **Chosen by** lists the Pod annotations that allow or forbid devices.",
        "- **Other annotations** are what else a Pod's author may write, beside [those for every vendor](use.md).",
        "",
        "| Vendor | Key | Resources | Devices | Chosen by | Other annotations |",
        "|---|---|---|---|---|---|",
    ]
    titles = {name: description.title for name, description in descriptions().items()}
    lines += [_vendor_row(titles[vendor.name], vendor) for vendor in config.vendors()]
    return "\n".join(lines) + "\n"


def _section_names() -> set[str]:
    return {description.section.name for description in descriptions().values()}


def _vendor_row(title: str, vendor: Vendor) -> str:
    devices = f"`{vendor.register_key}`" if vendor.register_key else "capacity"
    chosen = _codes(vendor.choosing_annotations) or "–"
    others = _codes(vendor.author_keys) or "–"
    cells = (title, f"`{vendor.key}`", _codes(vendor.resource_names), devices, chosen, others)
    return "| " + " | ".join(cells) + " |"


def _codes(names: typing.Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names if name)


def _targets(aliases: Json) -> set[str]:
    return {row["to"] for row in aliases["renamed"].values()}


def _load(name: str) -> Json:
    return _plain((CHART / name).read_text(encoding="utf-8"))


def _plain(text: str) -> Json:
    # JSON turns YAML's shared anchors into copies, which may be changed.
    return typing.cast(Json, json.loads(json.dumps(yaml.safe_load(text))))


if __name__ == "__main__":
    main()
