"""
The cache of programs: each is built once, by one run at a time, completely, and again after a change of its sources.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.programs import build, modules

GO = """#!/bin/sh
[ "$1" = env ] && { echo go1.99.0; exit; }
echo "$@" >> "$COMMANDS"
sleep "${SECONDS_TO_BUILD:-0}"
[ -n "$FAILS" ] && { echo "$FAILS" >&2; exit 1; }
echo program > "$2/program"
"""
"""A fake Go for the cache. It records its builds, and writes one program."""


class Bench:
    """A new cache, and a fake Go that builds quickly."""

    def __init__(self, folder: Path) -> None:
        self.source = folder / "source"
        self.source.write_text("one")
        self.product = build.Product("thing", ("build", "{out}"), (self.source,), folder)
        self.commands = folder / "commands"
        self.said: list[str] = []

    def make(self) -> Path:
        """Return the folder of the product."""
        return build.made(self.product, self.said.append)

    @property
    def builds(self) -> int:
        """The number of builds."""
        return len(self.commands.read_text().splitlines()) if self.commands.exists() else 0


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Return an empty cache."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/go").write_text(GO)
    (tmp_path / "bin/go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COMMANDS", str(tmp_path / "commands"))
    return Bench(tmp_path)


def test_product_is_built_once(bench: Bench) -> None:
    """Later calls find it, without output."""
    first = bench.make()
    words = list(bench.said)

    assert first == bench.make()
    assert "program\n" == (first / "program").read_text()
    assert 1 == bench.builds
    assert words == bench.said
    assert "building thing, a minute or two the first time" == words[0]


@pytest.mark.parametrize("changed", ["source", "argument", "Go"])
def test_product_is_built_again_after_a_change_of_its_inputs(bench: Bench, tmp_path: Path, changed: str) -> None:
    """The old one is kept for runs that still use it."""
    first = bench.make()

    if changed == "source":
        bench.source.write_text("two")
    elif changed == "argument":
        bench.product = replace(bench.product, arguments=("build", "{out}", "-more"))
    else:
        (tmp_path / "bin/go").write_text(GO.replace("1.99.0", "1.99.1"))

    assert first != bench.make()
    assert first.exists()
    assert 2 == bench.builds


def test_failed_build_leaves_nothing_and_says_why(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the end of the log, its path, and a hint about the network."""
    monkeypatch.setenv("FAILS", "dial tcp: lookup proxy: no such host")

    with pytest.raises(build.BuildError) as caught:
        bench.make()

    assert "thing could not be built, log " in str(caught.value)
    assert "the Go module proxy (`go env GOPROXY`) must be reachable" in str(caught.value)
    assert "dial tcp: lookup proxy: no such host" in str(caught.value)
    assert ["lock", "thing.log"] == sorted(path.name for path in build.cache().iterdir())


def test_two_runs_build_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second reports that it waits."""
    monkeypatch.setenv("SECONDS_TO_BUILD", "0.5")
    first = threading.Thread(target=lambda: build.made(bench.product, lambda _: None))
    first.start()
    while not bench.builds:
        time.sleep(0.01)

    bench.make()
    first.join()

    assert 1 == bench.builds
    assert "another run builds; waiting for it" == bench.said[0]


def test_incomplete_build_is_removed(bench: Bench, tmp_path: Path) -> None:
    """A killed build leaves no product."""
    program = (
        "import sys; from pathlib import Path; from controlplane.programs import build; folder = Path(sys.argv[1]);"
        "build.made(build.Product('thing', ('build', '{out}'), (folder / 'source',), folder), print)"
    )
    environment = {**os.environ, "SECONDS_TO_BUILD": "1"}
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], env=environment) as run:
        while not bench.builds:
            time.sleep(0.01)
        run.send_signal(signal.SIGKILL)
    assert list(build.cache().glob("draft-*"))

    place = bench.make()

    assert "program\n" == (place / "program").read_text()
    assert [] == list(build.cache().glob("draft-*"))


def test_unused_products_are_removed_by_the_next_build(bench: Bench) -> None:
    """A folder of programs has 200 MB, and every change of a version makes one more."""
    unused, used = (_folder(build.cache() / name) for name in ("thing-unused", "thing-used"))
    long_ago = time.time() - (build.KEPT_DAYS + 1) * 24 * 3600
    os.utime(unused, (long_ago, long_ago))

    bench.make()

    assert (False, True) == (unused.exists(), used.exists())


def test_missing_go_is_an_error_with_the_version(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no traceback."""
    monkeypatch.setenv("PATH", "/nonexistent")

    with pytest.raises(build.BuildError, match=r"Go 1\.24 or newer is needed"):
        bench.make()


def test_unknown_minor_is_rejected(bench: Bench) -> None:
    """The message lists the known ones."""
    with pytest.raises(build.BuildError, match=r"Kubernetes 1\.20 is not one of 1\.33, 1\.34, 1\.35"):
        build.binaries("1.20")


def test_programs_of_kubebuilder_are_used_if_set(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three programs come from there, the others from the cache. The folder differs from the one without."""
    monkeypatch.setattr(build, "made", lambda product, _: _folder(tmp_path / "made" / product.name))
    without = build.binaries()
    assets = _folder(tmp_path / "assets", *build.FROM_ASSETS)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))

    found = build.binaries()

    assert found != without
    links = {path.name: path.resolve().parent for path in found.iterdir()}
    assert set(build.FROM_ASSETS) == {name for name, folder in links.items() if folder == assets}
    assert {"kubelet", "kube-proxy", "kube-scheduler", "kube-controller-manager"} <= set(links)


def _folder(path: Path, *names: str) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for name in names or (path.name.partition("-")[0],):
        (path / name).touch()
    return path


@pytest.mark.parametrize("minor", build.KUBERNETES)
def test_modules_on_disk_are_those_of_the_version(minor: str) -> None:
    """The file of each minor names its version, and has its checksums."""
    text = (modules.FOLDER / "versions" / f"{minor}.mod").read_text()
    sums = (modules.FOLDER / "versions" / f"{minor}.sum").read_text()

    version = build.KUBERNETES[minor]
    assert f"\tk8s.io/kubernetes {version}\n" in text
    assert f"k8s.io/kubernetes {version} h1:" in sums
    assert f"\tk8s.io/apiserver => k8s.io/apiserver {version.replace('v1.', 'v0.', 1)}\n" in text


def test_containerd_on_disk_is_the_version_that_is_stamped() -> None:
    """Otherwise the program would print a wrong version."""
    assert (
        f"github.com/containerd/containerd/v2 {build.CONTAINERD} " in (build.SOURCES / "containerd/go.mod").read_text()
    )


def test_newest_toolkit_of_the_nodes_is_the_one_in_the_device_plugins_image() -> None:
    """Nodes then run the hooks of the version that described their driver."""
    modules_file = build.SOURCES.parents[2] / "services/device-plugin/toolkit/go.mod"

    assert f"github.com/NVIDIA/nvidia-container-toolkit v{build.TOOLKITS[-1]}" in modules_file.read_text()


def test_module_file_replaces_the_staging_modules_of_kubernetes() -> None:
    """Staging modules have their published numbers, and etcd's server has the version of its client."""
    upstream = """module k8s.io/kubernetes

go 1.25.0

require (
\tgithub.com/spf13/cobra v1.10.0
\tgo.etcd.io/etcd/client/v3 v3.6.5
)

replace (
\tk8s.io/api => ./staging/src/k8s.io/api
\tk8s.io/kubectl => ./staging/src/k8s.io/kubectl
)
"""
    written = modules.module_file("1.35", upstream).splitlines()

    assert "go 1.25.0" in written
    staged = build.KUBERNETES["1.35"].replace("v1.", "v0.", 1)
    assert [f"\tk8s.io/api => k8s.io/api {staged}", f"\tk8s.io/kubectl => k8s.io/kubectl {staged}"] == [
        line for line in written if "=>" in line
    ]
    assert "\tgo.etcd.io/etcd/server/v3 v3.6.5" in written
    with pytest.raises(ValueError, match="cobra"):
        modules.module_file("1.35", "go 1.25.0\n")
