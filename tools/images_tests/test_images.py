"""
The content of every image, and its start with a read-only root.
"""

import json
import re
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from bootstrap import ROOT
from elf import machine, needed_versions
from image.catalogue import ARCHES, version
from images_tests.unpacked import Image

MB = 10**6
LARGEST_MB = 200
USERS = {"webhook": "65532:65532", "scheduler": "65532:65532", "device-plugin": "0:0", "monitor": "0:0"}
BUILD_TOOL = re.compile(r"cc|gcc.*|g\+\+.*|clang.*|ld|as|make|cmake|ninja|zig|pip[\d.]*|easy_install|uv|apt-get")
LIBRARY = "opt/hami/lib/libvgpu.so"
OLDEST_GLIBC = (2, 17)
UNCHECKED_HASH = 0b01
"""The flags of byte code that is never compared with its source. Source: PEP 552."""


def test_image_is_little_larger_than_its_base(image: Image) -> None:
    """So a node with the base pulls little for a service."""
    sizes = [layer.size_bytes for layer in image.archive.layers]

    print(f"{image.name}: {sum(sizes) / MB:.0f} MB, {sum(sizes[1:]) / MB:.0f} MB above its base")

    assert sum(sizes[1:]) <= LARGEST_MB * MB


def test_image_has_no_build_tools(image: Image) -> None:
    """There is no compiler, header, installer, wheel or cache, for security and for size."""
    files = [path for path in image.root.rglob("*") if path.is_file() and not path.is_symlink()]

    tools = [path for path in files if path.parent.name in ("bin", "sbin") and BUILD_TOOL.fullmatch(path.name)]
    leftovers = [path for path in files if path.suffix in (".h", ".whl", ".a") or ".cache" in path.parts]
    installers = list(image.root.glob("**/site-packages/pip")) + list(image.root.glob("**/ensurepip"))

    assert [] == tools + leftovers + installers


def test_service_runs_as_an_ordinary_user_unless_it_needs_root(service: Image) -> None:
    """Only services that change files of the node run as root."""
    assert USERS[service.name] == service.user


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_service_answers_with_a_read_only_root(service: Image, flag: str) -> None:
    """The user of the image can import every module of the program."""
    done = service.run(*service.config["Entrypoint"], flag)

    assert (0, "") == (done.returncode, done.stderr)
    assert f"hami-{service.name}" in done.stdout


def test_service_starts_from_byte_code_only(service: Image) -> None:
    """With a read-only root nothing can be compiled later, so all modules of a start are compiled already."""
    script = (
        "import runpy, sys; sys.argv[1:] = ['--version']\n"
        "try: runpy.run_path(sys.argv[0])\n"
        "except SystemExit: pass\n"
        "print(*{m.__cached__ for m in list(sys.modules.values()) if getattr(m, '__cached__', None)}, sep='\\n')"
    )
    (program,) = service.config["Entrypoint"]
    script = script.replace("sys.argv[0]", repr(program))

    listed = service.run("/opt/hami/bin/python", "-c", script).stdout.splitlines()
    cached = [service.root / line.lstrip("/") for line in listed if line.endswith(".pyc")]

    assert len(cached) > 100
    assert [] == [path for path in cached if not path.exists()]


def test_byte_code_has_no_time(image: Image) -> None:
    """Byte code with the time of its source would differ between builds."""
    compiled = [path for path in image.root.rglob("*.pyc") if not path.is_symlink()]

    assert compiled
    assert [] == [path for path in compiled if path.read_bytes()[4] != UNCHECKED_HASH]


def test_labels_describe_the_image(service: Image) -> None:
    """Registries and nodes show them."""
    project = tomllib.loads((ROOT / f"services/{service.name}/pyproject.toml").read_text())["project"]
    expected = {
        "title": project["name"],
        "description": project["description"],
        "licenses": project["license"],
        "version": version(service.name, ROOT),
    }

    labels = {name.rpartition(".")[2]: value for name, value in service.config["Labels"].items()}

    assert {"revision", "created"} == labels.keys() - expected.keys()
    assert expected.items() <= labels.items()
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", labels["revision"])
    assert datetime.fromisoformat(labels["created"]) < datetime.now(UTC)


@pytest.mark.parametrize("name", ["scheduler", "monitor"])
def test_build_metric_has_the_commit_of_the_labels(image_of: Callable[[str], Image], name: str) -> None:
    """Dashboards and registries show the same commit."""
    image = image_of(name)
    script = (
        "from hamicommon.runtime.serving.build import build_family\n"
        "[[_, labels, *_]] = build_family('').samples\n"
        "print(labels['revision'], labels['build_date'])"
    )

    told = image.run("/opt/hami/bin/python", "-c", script).stdout.split()

    assert [image.config["Labels"][f"org.opencontainers.image.{label}"] for label in ("revision", "created")] == told


def test_library_loads_with_a_glibc_of_2_17(image_of: Callable[[str], Image]) -> None:
    """Containers that load it may be older than the image."""
    wanted = needed_versions(image_of("device-plugin").root / LIBRARY)

    versions = [tuple(map(int, name.removeprefix("GLIBC_").split("."))) for name in wanted]

    assert versions
    assert max(versions) <= OLDEST_GLIBC


def test_library_has_the_architecture_of_the_image(image_of: Callable[[str], Image]) -> None:
    """It may be built on another architecture, and the image's loader loads it."""
    image = image_of("device-plugin")

    done = image.run("/opt/hami/bin/python", "-c", f"import ctypes; ctypes.CDLL('/{LIBRARY}')")

    assert image.archive.config["architecture"] == ARCHES[machine(image.root / LIBRARY)]
    assert (0, "") == (done.returncode, done.stderr)


def test_bill_of_materials_follows_the_schema(image: Image) -> None:
    """So scanners can read it."""
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(image.bill)) is None


def test_bill_of_materials_lists_the_packages_of_the_lock(service: Image) -> None:
    """Except our two packages, everything installed is in a lock."""
    listed = {(part["name"], part["version"]) for part in service.bill["components"] if "pypi" in part.get("purl", "")}

    ours = {pair for pair in listed if pair[0] in ("hamicommon", f"hami-{service.name}")}

    assert len(ours) == 2
    assert listed - ours <= locked(service.name)


def test_bill_of_materials_lists_the_packages_of_the_base(image: Image) -> None:
    """Most vulnerabilities are found in the base."""
    named = {part["name"] for part in image.bill["components"] if part.get("purl", "").startswith("pkg:deb/")}

    assert named >= {"libc6", "libssl3", "python3.11-minimal"}


def test_bill_of_materials_is_in_the_image_too(image: Image) -> None:
    """A registry has it without the archive. Only the digest cannot be in it."""
    inside = json.loads((image.root / "opt/hami/share/sbom.cdx.json").read_text())
    [digest] = image.bill["metadata"]["component"].pop("hashes")

    assert inside == image.bill
    assert image.archive.digest == f"sha256:{digest['content']}"


def test_licences_are_in_the_image(image: Image) -> None:
    """Ours, of each Debian package, of each Go module, and of Python packages that come with theirs."""
    share = image.root / "opt/hami/share"
    debian = {part["name"] for part in image.bill["components"] if "pkg:deb" in part.get("purl", "")}
    modules = [part["name"] for part in image.bill["components"] if "pkg:golang" in part.get("purl", "")]
    packages = [part for part in image.bill["components"] if "pkg:pypi" in part.get("purl", "")]

    assert (ROOT / "LICENSE").read_text() == (share / "LICENSE").read_text()
    assert [] == [name for name in debian if not (image.root / "usr/share/doc" / name / "copyright").exists()]
    assert [] == [name for name in modules if not any((share / "licences" / name).iterdir())]
    assert [] == [part["name"] for part in packages if "licenses" not in part]
    assert bool(modules) == (image.name == "device-plugin")


@pytest.mark.parametrize("command", ["gpu-hold --help", "python3 -c 'import pynvml'", "sleep 0", "sh -c true"])
def test_workloads_have_the_commands_of_the_tests(image_of: Callable[[str], Image], command: str) -> None:
    """The manifests of the tests use them, and the image's PATH finds them."""
    done = image_of("workloads").run("sh", "-c", command)

    assert (0, "") == (done.returncode, done.stderr)


def test_gpu_table_without_a_driver_says_so(image_of: Callable[[str], Image]) -> None:
    """NVML is on the node, not in the image."""
    done = image_of("workloads").run("gpu-table")

    assert 1 == done.returncode
    assert done.stderr.startswith("gpu_table: ")


def locked(name: str) -> set[tuple[str, str]]:
    """Return the names and versions of a lock."""
    text = Path(ROOT / f"requirements/{name}.lock").read_text()
    return set(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))
