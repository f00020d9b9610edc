"""
Images in a registry: one tag, one content. Runs Debian's registry on this machine.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import images
from controlplane.images.oci import packed
from image.archive import config_digest
from publish.kube_scheduler import VersionError, built_version, plain
from publish.registry import Registry, RegistryError
from testbed import registry
from testbed.debian import commands, missing
from testbed.ports import free_port

NEEDED = commands(["docker-registry", "skopeo"])


@pytest.fixture(scope="module")
def registry_name(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An empty registry on this machine."""
    if missing(NEEDED) and os.geteuid() != 0:
        pytest.skip(f"missing: apt-get install {' '.join(missing(NEEDED))}")
    name = f"127.0.0.1:{free_port()}"
    with registry.serving(tmp_path_factory.mktemp("registry"), name):
        yield name


def archive(folder: Path, content: str, arch: str = "amd64") -> Path:
    """Return the archive of an image with *content*."""
    program = folder / "program"
    program.write_text(content)
    return packed(folder / f"{content}-{arch}.tar", "localhost/it:1", {"/it": program}, ["/it"], arch)


def manifest(reference: str) -> dict[str, object]:
    """Return the manifest or index of an image in the registry."""
    command = ["skopeo", "inspect", "--raw", "--tls-verify=false", f"docker://{reference}"]
    found: dict[str, object] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return found


def test_image_is_pushed_once(registry_name: str, tmp_path: Path) -> None:
    """Another push of the same image changes nothing and names the same digest."""
    image = {"amd64": archive(tmp_path, "one")}

    first, second = (Registry(registry_name).push("once", "1", image) for _ in range(2))

    assert (True, False) == (first.is_new, second.is_new)
    assert first.digest == second.digest
    assert config_digest(image["amd64"]) == manifest(f"{registry_name}/once@{first.digest}")["config"]["digest"]  # type: ignore[index]


def test_tag_with_other_content_is_refused(registry_name: str, tmp_path: Path) -> None:
    """A Node that has the tag would not pull it again, so two Nodes would run different programs."""
    target = Registry(registry_name)
    target.push("refused", "1", {"amd64": archive(tmp_path, "one")})
    other = {"amd64": archive(tmp_path, "other")}

    with pytest.raises(RegistryError, match=r"/refused:1 has another content: release a new version.*--replace"):
        target.push("refused", "1", other)

    assert target.push("refused", "1", other, replaces=True).is_new


def test_images_of_two_architectures_have_one_tag(registry_name: str, tmp_path: Path) -> None:
    """Each Node pulls the image of its architecture."""
    both = {arch: archive(tmp_path, "both", arch) for arch in ("arm64", "amd64")}

    first, second = (Registry(registry_name).push("both", "1", both) for _ in range(2))
    entries = manifest(first.reference)["manifests"]

    assert [("amd64", "linux"), ("arm64", "linux")] == [
        (entry["platform"]["architecture"], entry["platform"]["os"])
        for entry in entries  # type: ignore[attr-defined]
    ]
    assert (True, False) == (first.is_new, second.is_new)


def test_registry_that_does_not_answer_is_named(tmp_path: Path) -> None:
    """The message has the image and the reason."""
    name = f"127.0.0.1:{free_port()}"

    with pytest.raises(RegistryError, match=rf"{name}/it:1: .*connection refused"):
        Registry(name).push("it", "1", {"amd64": archive(tmp_path, "one")})


def test_kube_scheduler_is_copied_in_the_version_of_the_cluster(
    registry_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A distribution's suffix is not part of the tag, as in the chart."""
    upstream = Registry(registry_name).push("upstream/kube-scheduler", "v1.34.4", {"amd64": archive(tmp_path, "one")})
    copied = [f"--kube-scheduler-from={registry_name}/upstream", "--kubernetes=v1.34.4+k3s1", "kube-scheduler"]
    monkeypatch.setattr("sys.argv", ["images.py", "push", registry_name, *copied])

    images.main()

    assert upstream.digest in capsys.readouterr().out
    assert manifest(upstream.reference) == manifest(f"{registry_name}/kube-scheduler:v1.34.4")


@pytest.mark.parametrize(
    ("version", "expected"), [("v1.34.4+k3s1", "v1.34.4"), ("v1.33.2-gke.100", "v1.33.2"), ("1.37.2", "v1.37.2")]
)
def test_version_of_a_distribution_is_that_of_kubernetes(version: str, expected: str) -> None:
    """The chart names kube-scheduler's image by Kubernetes' version."""
    assert expected == plain(version)


def test_other_patch_version_is_built_as_the_known_one() -> None:
    """Only one patch of each minor has its modules here."""
    assert "v1.34.4" == built_version("v1.34.2")


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("latest", "--kubernetes latest is no version"),
        ("v1.31.0", "copy it with --kube-scheduler-from registry.k8s.io"),
    ],
)
def test_version_that_cannot_be_built_is_refused(version: str, message: str) -> None:
    """The message says what to do instead."""
    with pytest.raises(VersionError, match=message):
        built_version(plain(version))
