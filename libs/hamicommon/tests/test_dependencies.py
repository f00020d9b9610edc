"""
Each package declares exactly the packages that it imports.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ["libs/hamicommon", *(f"services/{name}" for name in ("device-plugin", "monitor", "scheduler", "webhook"))]
KUBELET_STUBS = ROOT / "libs/hamicommon/src/hamicommon/runtime/kubelet_api/_proto"
KUBE_STUBS = ROOT / "services/scheduler/src/hami_scheduler/serve/kube/messages/_proto"
DISTRIBUTIONS = {
    "google": "protobuf",
    "grpc": "grpcio",
    "prometheus_client": "prometheus-client",
    "pynvml": "nvidia-ml-py",
    "yaml": "PyYAML",
}
"""Distributions whose module has another name."""


def project(package: str) -> dict[str, Any]:
    """Return the `project` table of *package*."""
    table: dict[str, Any] = tomllib.loads((ROOT / package / "pyproject.toml").read_text())["project"]
    return table


def declared(package: str) -> dict[str, str]:
    """Return the requirements of *package*, extras included, as name to the rest."""
    table = project(package)
    extras = table.get("optional-dependencies", {}).values()
    requirements = [*table["dependencies"], *(text for extra in extras for text in extra)]
    return {found[1]: found[2] for found in (re.fullmatch(r"([\w-]+)(.*)", text) for text in requirements) if found}


def imported(package: str) -> Iterator[str]:
    """Yield the top-level name of every absolute import in the sources of *package*."""
    for path in (ROOT / package / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module.partition(".")[0]


@pytest.mark.parametrize("package", PACKAGES)
def test_dependencies_are_what_is_imported(package: str) -> None:
    """A service that starts here also starts without other packages."""
    own = project(package)["name"].replace("-", "_")
    foreign = set(imported(package)) - sys.stdlib_module_names - {own}

    assert {DISTRIBUTIONS.get(name, name) for name in foreign} == set(declared(package))


@pytest.mark.parametrize(
    ("package", "stubs"),
    [
        ("libs/hamicommon", KUBELET_STUBS),
        ("services/device-plugin", KUBELET_STUBS),
        ("services/scheduler", KUBE_STUBS),
    ],
    ids=["hamicommon", "device-plugin", "scheduler"],
)
def test_stubs_run_with_the_oldest_versions_that_are_declared(package: str, stubs: Path) -> None:
    """The generated code refuses anything older than what generated it."""
    code = "".join(path.read_text() for path in stubs.glob("*.py"))
    needed = {
        "grpcio": re.findall(r"GRPC_GENERATED_VERSION = '([\d.]+)'", code),
        "protobuf": [".".join(found) for found in re.findall(r"Domain.PUBLIC,\s+(\d+),\s+(\d+),\s+(\d+),", code)],
    }

    assert {name: {f">={version}" for version in versions} for name, versions in needed.items() if versions} == {
        name: {version} for name, version in declared(package).items() if name in needed
    }
