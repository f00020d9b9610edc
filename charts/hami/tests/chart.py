"""
The chart as its tests see it: its files, and what Helm makes of them.

Helm comes from PATH, or is built as the real cluster's programs are; where there is neither Helm nor Go, `needs_helm`
skips.
"""

import functools
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane import build

CHART = Path(__file__).parents[1]
INSTALLATIONS = sorted(CHART.glob("ci/*-values.yaml"))
KUBERNETES = "1.34.4"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
ALIASES = yaml.safe_load((CHART / "aliases.yaml").read_text())
HAMI_VALUES = yaml.safe_load((CHART / "ci/hami-2.10-values.yaml").read_text())

Json = dict[str, Any]


@functools.cache
def helm() -> Path | None:
    """Return Helm, built if need be; None where it cannot be."""
    found = shutil.which("helm")
    if found:
        return Path(found)
    if shutil.which("go") is None:
        return None
    return build.helm() / "helm"


needs_helm = pytest.mark.skipif(helm() is None, reason="neither Helm nor Go, which builds it, is in PATH")


class Refused(Exception):
    """Helm refused the values; the message is what it prints."""


def run(*arguments: str) -> str:
    """Return what Helm prints. Raises: Refused."""
    done = subprocess.run([str(helm()), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Refused(done.stderr)
    return done.stdout


@functools.cache
def text(*arguments: str, release: str = "hami", kubernetes: str = KUBERNETES, chart: Path = CHART) -> str:
    """Return the manifests of an installation."""
    place = ("--namespace", release, "--kube-version", kubernetes)
    return run("template", release, str(chart), *place, *arguments)


def objects(*arguments: str, **options: str) -> list[Json]:
    """Return the objects of an installation."""
    return [each for each in yaml.safe_load_all(text(*arguments, **options)) if each]


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
    """Return *path* as Helm's command line takes it."""
    return ".".join(name.replace(".", "\\.") for name in path)


def leaves(values: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield path and value of each leaf; empty maps are leaves."""
    if isinstance(values, dict) and values:
        for name, value in values.items():
            yield from leaves(value, (*path, name))
    else:
        yield path, values


def nested(path: str, value: Any) -> Json:
    """Return *value* in the maps that *path* names."""
    for name in reversed(path.split(".")):
        value = {name: value}
    return value  # type: ignore[no-any-return]


def at(values: Any, path: str) -> Any:
    """Return what is at *path*, None where nothing is."""
    for name in path.split("."):
        values = values.get(name) if isinstance(values, dict) else None
    return values


def pod_spec(workload: Json) -> Json:
    """Return the Pods' spec of a Deployment or DaemonSet."""
    return workload["spec"]["template"]["spec"]  # type: ignore[no-any-return]


def notes(tmp_path: Path, *arguments: str) -> str:
    """Return what is printed after an installation, which `helm template` leaves out."""
    copy = tmp_path / "chart"
    shutil.copytree(CHART, copy, ignore=shutil.ignore_patterns("tests"))
    body = (copy / "templates/NOTES.txt").read_text()
    (copy / "templates/notes.yaml").write_text(
        f'{{{{- define "notes" }}}}{body}{{{{ end }}}}\nkind: Notes\ntext: {{{{ include "notes" . | toJson }}}}\n'
    )
    rendered = run(
        "template", "hami", str(copy), "--kube-version", KUBERNETES, "-s", "templates/notes.yaml", *arguments
    )
    return str(yaml.safe_load(rendered)["text"])
