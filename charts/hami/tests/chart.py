"""
The chart's files, and what Helm renders from them.

Helm comes from PATH, or is built with Go. Without both, `needs_helm` skips the tests.
"""

import functools
import json
import shutil
import subprocess
import tempfile
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.programs import build

CHART = Path(__file__).parents[1]
HAMI_DEFAULTS = {file.stem: file for file in CHART.glob("hami-defaults/*.yaml")}
"""The default values file of each version of HAMi's chart."""
INSTALLATIONS = {file.stem.removesuffix("-values"): file for file in sorted(CHART.glob("ci/*-values.yaml"))}
PLATFORMS = {file.stem: file for file in sorted(CHART.glob("platforms/*.yaml"))}
"""The values for each platform that needs some, without a registry."""
FIRST = ("--values", str(CHART / "ci/default-values.yaml"))
"""The values below all others: the registry, without which the chart stops."""
KUBERNETES = "1.34.4"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
PARTS: dict[str, str] = yaml.safe_load((CHART / "parts.yaml").read_text())
"""The version of each service."""
ALIASES = yaml.safe_load((CHART / "aliases.yaml").read_text())
HAMI_VALUES = {version: yaml.safe_load(file.read_text()) for version, file in HAMI_DEFAULTS.items()}

Json = dict[str, Any]


@functools.cache
def helm() -> Path | None:
    """Return Helm's path, built if necessary; None without Helm and Go."""
    found = shutil.which("helm")
    if found:
        return Path(found)
    if shutil.which("go") is None:
        return None
    return build.made(build.HELM, print) / "helm"


needs_helm = pytest.mark.skipif(helm() is None, reason="neither Helm nor Go, which builds it, is in PATH")


class TwiceError(Exception):
    """A map has a key twice. Flux and kustomize reject it; other readers silently take the last."""


class OnceLoader(yaml.CSafeLoader):
    """
    Loads YAML whose maps have each key once.

    Source: https://yaml.org/spec/1.2.2/#3213-node-comparison
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return the map of *node*. Raises: TwiceError."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = sorted({str(key) for key in keys if keys.count(key) > 1})
        if twice:
            raise TwiceError(f"{', '.join(twice)}: twice in one map, {node.start_mark}")
        return super().construct_mapping(node, deep)


class RefusedError(Exception):
    """Helm rejected the values; the message is Helm's output."""


def run(*arguments: str) -> str:
    """Return Helm's output. Raises: RefusedError."""
    done = subprocess.run([str(helm()), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RefusedError(done.stderr)
    return done.stdout


def rendering(folder: Path) -> str:
    """Return a PATH, made in *folder*, whose helm renders what it should install, and whose kubectl does nothing."""
    place = folder / "bin"
    place.mkdir()
    template = f"exec {helm()} template --kube-version {KUBERNETES}"
    scripts = {"helm": f'[ "$1" = install ] && shift && {template} "$@"', "kubectl": "exit 0"}
    for name, script in scripts.items():
        (place / name).write_text(f"#!/bin/sh\n{script}\n")
        (place / name).chmod(0o755)
    return f"{place}:/usr/bin:/bin"


@functools.cache
def text(*arguments: str, release: str = "hami", kubernetes: str = KUBERNETES, chart: Path = CHART) -> str:
    """Return the manifests of an installation."""
    place = ("--namespace", release, "--kube-version", kubernetes)
    return run("template", release, str(chart), *place, *FIRST, *arguments)


@functools.cache
def everything(*arguments: str, **options: str) -> tuple[Json, ...]:
    """Return the objects of an installation, and those of `helm test`. Raises: TwiceError."""
    loaded = yaml.load_all(text(*arguments, **options), OnceLoader)
    return tuple(each for each in loaded if each)


def is_hook(found: Json) -> bool:
    """Return whether Helm creates this object at an event, not with the installation."""
    return "helm.sh/hook" in found["metadata"].get("annotations", {})


@functools.cache
def objects(*arguments: str, **options: str) -> tuple[Json, ...]:
    """Return the objects of an installation."""
    return tuple(each for each in everything(*arguments, **options) if not is_hook(each))


def one(kind: str, name: str, *arguments: str, **options: str) -> Json:
    """Return one object of an installation."""
    (found,) = [o for o in objects(*arguments, **options) if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    return found


def given(values: Json) -> tuple[str, ...]:
    """Return the arguments that give *values*."""
    return tuple(
        word for path, value in leaves(values) for word in ("--set-json", f"{escaped(path)}={json.dumps(value)}")
    )


def escaped(path: tuple[str, ...]) -> str:
    """Return *path* in the form of Helm's command line."""
    return ".".join(name.replace(".", "\\.") for name in path)


def leaves(values: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield path and value of each leaf; empty maps are leaves."""
    if isinstance(values, dict) and values:
        for name, value in values.items():
            yield from leaves(value, (*path, name))
    else:
        yield path, values


def nested(path: str, value: Any) -> Json:
    """Return *value* nested in maps along *path*."""
    for name in reversed(path.split(".")):
        value = {name: value}
    return value  # type: ignore[no-any-return]


def at(values: Any, path: str) -> Any:
    """Return the value at *path*, or None."""
    for name in path.split("."):
        values = values.get(name) if isinstance(values, dict) else None
    return values


def hami_default(path: str) -> Any:
    """Return HAMi's default at *path*, from the newest version that has it."""
    found = [at(HAMI_VALUES[version], path) for version in ("2.10", "2.9", "2.8")]
    return next((value for value in found if value is not None), None)


def pod_spec(workload: Json) -> Json:
    """Return the Pods' spec of a Deployment or DaemonSet."""
    return workload["spec"]["template"]["spec"]  # type: ignore[no-any-return]


@functools.cache
def _answer(expression: str, *arguments: str) -> Any:
    """Return the value of a template expression in the chart. `helm template` shows neither notes nor values."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "chart"
        shutil.copytree(CHART, copy, ignore=shutil.ignore_patterns("tests"))
        defined = f'{{{{- define "notes" }}}}{(copy / "templates/NOTES.txt").read_text()}{{{{ end }}}}'
        answer = f'{{{{- include "hami.translate" . }}}}\nkind: Answer\nanswer: {{{{ {expression} | toJson }}}}\n'
        (copy / "templates/answer.yaml").write_text(defined + answer)
        options = ("--kube-version", KUBERNETES, "--show-only", "templates/answer.yaml")
        return yaml.safe_load(run("template", "hami", str(copy), *options, *arguments))["answer"]


def notes(*arguments: str) -> str:
    """Return the notes that Helm prints after an installation."""
    return str(_answer('include "notes" .', *FIRST, *arguments))


def effective_values(values: Json) -> Json:
    """Return .Values as templates see them, for given *values* above FIRST, if they name no registry."""
    first = () if at(values, "global.imageRegistry") else FIRST
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(values, file)
        file.flush()
        return _answer(".Values", *first, "--values", file.name)  # type: ignore[no-any-return]
