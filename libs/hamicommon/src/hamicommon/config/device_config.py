"""
The device config: the YAML that HAMi's chart renders, as frozen values, with every error reported at once.

Each vendor's section is described in its module of `vendors`. In an absent section all resource names are empty and
match nothing. An absent key has the chart's default.
Neighbours: `hamicommon.wire.go.yaml_reader` reads nodes into values, `node_overrides` reads the file of single Nodes.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/charts/hami/templates/scheduler/device-configmap.yaml
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass, replace
from typing import Any, Final, TypeVar

from hamicommon.errors import HamiError
from hamicommon.vendors import ascend, descriptions, iluvatar
from hamicommon.vendors.description import Section, Vendor, is_resource_name
from hamicommon.wire.go.yaml_nodes import Mapping, Scalar, YamlError, read
from hamicommon.wire.go.yaml_reader import Key, Report, key, read_mapping

T = TypeVar("T")
_WHOLE_FILE = "(file): "
"""Begins a problem of the file as a whole."""


class ConfigError(HamiError):
    """A configuration has errors; `problems` lists them as `path: reason`."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("configuration: " + "; ".join(problems))
        self.problems = problems

    def in_file(self, path: str) -> "ConfigError":
        """Return the same error, with the file *path* in each problem."""
        return ConfigError(tuple(f"{path}: {problem.removeprefix(_WHOLE_FILE)}" for problem in self.problems))


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands for the text of a file that cannot be read."""

    reason: str
    is_missing: bool = False


Texts = dict[str, str | Unreadable]
"""The content of files, by path."""


def _section_fields() -> list[tuple[str, Any, Any]]:
    """Return a field for the section of every vendor."""
    sections = (description.section for description in descriptions().values())
    return [(each.name, each.kind or type(each.empty), key(each.name, each.empty)) for each in sections]


SECTIONS: Final = make_dataclass("Sections", _section_fields(), frozen=True, slots=True)
"""The sections of all vendors, as one dataclass with a field for each."""


@dataclass(frozen=True, slots=True)
class DeviceConfig:
    """
    The whole file.

    `warnings`, `ignored` (keys that only other programs read) and `old_forms` (forms of older versions, which are read)
    are lists of `path: reason`.
    """

    sections: Any = field(default_factory=SECTIONS)
    """A value of `SECTIONS`."""
    warnings: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    old_forms: tuple[str, ...] = ()

    def __getitem__(self, section: Section[T]) -> T:
        value: T = getattr(self.sections, section.name)
        return value

    def replaced(self, section: Section[T], value: T) -> "DeviceConfig":
        """Return the same config with *value* for *section*."""
        return replace(self, sections=replace(self.sections, **{section.name: value}))

    def vendors(self) -> tuple[Vendor, ...]:
        """Return every vendor, one entry a chip where a vendor has several. Their keys are distinct."""
        return tuple(
            replace(vendor, name=name)
            for name, description in descriptions().items()
            for vendor in description.vendors(self[description.section])
        )

    def enabled(self, *, has_ascend: bool, has_iluvatar: bool) -> "DeviceConfig":
        """Return the config without the vendors that HAMi enables by a flag, unless they are enabled."""
        with_ascend = self if has_ascend else self.replaced(ascend.SECTION, replace(self[ascend.SECTION], chips=()))
        return with_ascend if has_iluvatar else with_ascend.replaced(iluvatar.SECTION, ())


_OTHER_READERS = ("version", "flags", "resources", "sharing", "imex")
"""Top-level keys of NVIDIA's own plugin configuration, which may share the file."""


def load_device_config(text: str) -> DeviceConfig:
    """
    Return the device config in *text*.

    Raises:
        ConfigError: the text is not YAML, or values are wrong; `problems` lists all of them.
    """
    report = Report()
    config = DeviceConfig(_load(text, report))
    if not report.problems and config == DeviceConfig():
        report.problem("(file)", "no vendor section; at least one, such as nvidia, must be there")
    if report.problems:
        raise ConfigError(tuple(report.problems))
    return replace(
        config,
        warnings=tuple(report.warnings),
        ignored=tuple(report.ignored),
        old_forms=tuple(report.old_forms),
    )


def _load(text: str, report: Report) -> Any:
    try:
        root = read(text)
    except YamlError as error:
        report.problem("(file)", str(error))
        return SECTIONS()
    if root is None or (isinstance(root, Scalar) and root.is_null):
        return SECTIONS()
    known = [description.section for description in descriptions().values()]
    if isinstance(root, Mapping):
        for section in known:
            if section.translate:
                section.translate(root, report)
    sections: Any = read_mapping(SECTIONS, root, "", report, handled=_OTHER_READERS)
    is_sound = not report.problems
    for section in known:
        if section.check and is_sound:
            section.check(getattr(sections, section.name), report)
    finished = {each.name: each.finish(getattr(sections, each.name)) for each in known if each.finish}
    sections = replace(sections, **finished)
    if isinstance(root, Mapping):
        _check_names(sections, list(root.items), report)
    return sections


def _check_names(sections: Any, written: list[str], report: Report) -> None:
    """Report resource names that are used twice; *written* is the order of the sections in the file."""
    places: dict[str, str] = {}
    names = sorted(_resource_names(sections), key=lambda found: written.index(re.split(r"[.[]", found[0])[0]))
    for path, name in names:
        if name in places:
            report.problem(path, f"{name!r} is already the name of {places[name]}; each resource needs its own name")
        places.setdefault(name, path)


def _resource_names(section: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the value of every resource name in *section* that has an effect."""
    for each in fields(section):
        rules: Key | None = each.metadata.get("key")
        if rules is None or rules.without_effect:
            continue
        value, place = getattr(section, each.name), f"{path}{rules.name}"
        if rules.check is is_resource_name and value:
            yield place, value
        elif is_dataclass(value):
            yield from _resource_names(value, f"{place}.")
        elif isinstance(value, tuple):
            for index, item in enumerate(value):
                if is_dataclass(item):
                    yield from _resource_names(item, f"{place}[{index}].")
