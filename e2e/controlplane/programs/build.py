"""
Build the programs of the cluster once, from the Go module proxy.

Owns the cache `${XDG_CACHE_HOME:-~/.cache}/hami-e2e`, with a folder for each product. Its name has a hash of all inputs
of the build, and it exists only if it is complete. A build removes what no run has used for KEPT_DAYS. Needs Go, and
the network the first time. Must never run what it builds.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
_KUBERNETES = SOURCES / "kubernetes"
KUBERNETES = {"1.33": "v1.33.13", "1.34": "v1.34.4", "1.35": "v1.35.4", "1.36": "v1.36.3", "1.37": "v1.37.2"}
"""The version of each minor. Its modules are in `kubernetes/versions/<minor>.mod`."""

DEFAULT_KUBERNETES = "1.37"
CONTAINERD = "v2.1.8"
TOOLKITS = ("1.17.8", "1.20.1")
"""The versions of NVIDIA's container toolkit that nodes have. Up to 1.17 its runtime's mode `auto` is `legacy`."""
HELM_VERSION = "v3.19.5"
KWOK_VERSION = "v0.7.0"
COREDNS_VERSION = "v1.12.4"
KREW_VERSION = "v0.4.3"
KUBERNETES_PARTS = (
    *("etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet"),
)
TOOLKIT_PROGRAMS = ("nvidia-cdi-hook", "nvidia-container-runtime", "nvidia-ctk")
FROM_ASSETS = ("etcd", "kube-apiserver", "kubectl")
"""The programs that come from the folder KUBEBUILDER_ASSETS, if that is set."""

PROGRESS_SECONDS = 20.0
KEPT_DAYS = 30


class BuildError(Exception):
    """A program could not be built. The message says what is missing or where the log is."""


@dataclass(frozen=True)
class Product:
    """One run of Go that builds programs into a folder."""

    name: str
    arguments: tuple[str, ...]
    """The arguments of `go`. `{out}` stands for the folder of the programs."""
    sources: tuple[Path, ...] = ()
    """The source files."""
    folder: Path = SOURCES
    takes: str = "a minute or two"
    environment: Mapping[str, str] = field(default_factory=dict)


def cache() -> Path:
    """Return the folder of the cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hami-e2e"


def binaries(kubernetes: str = DEFAULT_KUBERNETES, step: Callable[[str], None] = lambda _: None) -> Path:
    """
    Return a folder with all programs of a cluster of the minor *kubernetes*, and build what is missing.

    Each of NVIDIA's toolkits is a folder in it, because both have the same programs.

    Raises: BuildError, also for an unknown minor.
    """
    toolkits = [toolkit(version) for version in TOOLKITS]
    programs: dict[str, Path] = {}
    key = hashlib.sha256()
    for product in (_kubernetes(kubernetes), _CONTAINERD, PROGRAMS, HELM, *toolkits):
        place = made(product, step)
        key.update(place.name.encode())
        programs |= {product.name: place} if product in toolkits else {path.name: path for path in place.iterdir()}
    programs |= dict.fromkeys(KUBERNETES_PARTS, programs["kubernetes"])
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets:
        programs |= {part: Path(assets) / part for part in FROM_ASSETS}
        key.update(assets.encode())
    return _linked(cache() / f"bin-{kubernetes}-{key.hexdigest()[:12]}", programs)


def made(product: Product, step: Callable[[str], None]) -> Path:
    """Return the folder of *product*, and build it if it is missing. One run builds at a time. Raises: BuildError."""
    place = cache() / f"{product.name}-{_key(product)}"
    if not place.exists():
        cache().mkdir(parents=True, exist_ok=True)
        with _building(step):
            if not place.exists():
                _build(product, place, step)
    os.utime(place)
    return place


def go_version() -> str:
    """Return the version of this machine's Go. Raises: BuildError if there is none."""
    try:
        asked = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=True, cwd="/")
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(f"Go 1.24 or newer is needed to build the cluster, and `go env` failed: {error}") from error
    return asked.stdout.strip()


def _kubernetes(minor: str) -> Product:
    modules, command = _go_build(minor)
    return Product(
        f"kubernetes-{minor}",
        (*command, "-o", "{out}/kubernetes", "."),
        (_KUBERNETES / "main.go", *modules),
        _KUBERNETES,
        "15 to 20 minutes on two cores",
    )


def kube_scheduler(minor: str, arch: str) -> Product:
    """
    Return kube-scheduler alone, as a cluster of *minor* has it.

    arch        architecture, by Go's name: `amd64`

    Raises: BuildError for an unknown minor.
    """
    modules, command = _go_build(minor)
    return Product(
        f"kube-scheduler-{minor}-{arch}",
        (*command, "-o", "{out}/kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
        modules,
        _KUBERNETES,
        "5 to 10 minutes on two cores",
        {"GOARCH": arch},
    )


def _go_build(minor: str) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Return the module files of *minor*, and the beginning of the command. Raises: BuildError."""
    version = KUBERNETES.get(minor)
    if version is None:
        raise BuildError(f"Kubernetes {minor} is not one of {', '.join(KUBERNETES)}")
    modules = _KUBERNETES / "versions" / f"{minor}.mod"
    major, number = minor.split(".")
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": number}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    flags = " ".join(["-s -w", *(f"-X {package}.{n}={v}" for package in packages for n, v in stamps.items())])
    command = ("build", "-v", "-trimpath", f"-modfile={modules}", f"-ldflags={flags}")
    return (modules, modules.with_suffix(".sum")), command


_CONTAINERD = Product(
    "containerd",
    (
        *("build", "-v", "-trimpath"),
        f"-ldflags=-s -w -X github.com/containerd/containerd/v2/version.Version={CONTAINERD}",
        *("-o", "{out}/", "tool"),
    ),
    (SOURCES / "containerd/go.mod", SOURCES / "containerd/go.sum"),
    SOURCES / "containerd",
)
PROGRAMS = Product(
    "programs",
    ("build", "-v", "-trimpath", "-ldflags=-s -w", "-o", "{out}/", "./..."),
    (*(SOURCES / "ours" / name for name in ("go.mod", "pause/main.go", "legacy-runtime/main.go")),),
    SOURCES / "ours",
    "some seconds",
)
HELM = Product(
    "helm",
    ("install", "-v", "-trimpath", "-ldflags=-s -w", f"helm.sh/helm/v3/cmd/helm@{HELM_VERSION}"),
    environment={"GOBIN": "{out}"},
)


def toolkit(version: str) -> Product:
    """Return NVIDIA's container toolkit, without libnvidia-container, which is C and not a Go module."""
    source = "github.com/NVIDIA/nvidia-container-toolkit"
    return Product(
        f"nvidia-toolkit-{version}",
        (
            *("install", "-v", "-trimpath", f"-ldflags=-s -w -X {source}/internal/info.version={version}"),
            *(f"{source}/cmd/{name}@v{version}" for name in TOOLKIT_PROGRAMS),
        ),
        environment={"GOBIN": "{out}", "CGO_ENABLED": "1"},
    )


KWOK = Product(
    "kwok",
    ("install", "-v", "-trimpath", "-ldflags=-s -w", f"sigs.k8s.io/kwok/cmd/kwok@{KWOK_VERSION}"),
    environment={"GOBIN": "{out}"},
)
"""Simulates Nodes: hundreds for benchmarks, and those of both kinds."""
COREDNS = Product(
    "coredns",
    ("install", "-v", "-trimpath", "-ldflags=-s -w", f"github.com/coredns/coredns@{COREDNS_VERSION}"),
    takes="three minutes on two cores",
    environment={"GOBIN": "{out}", "CGO_ENABLED": "0"},
)
"""Lets Pods find Services by name."""
KREW = Product(
    "krew",
    ("install", "-v", "-trimpath", "-ldflags=-s -w", f"sigs.k8s.io/krew/cmd/krew@{KREW_VERSION}"),
    takes="a minute",
    environment={"GOBIN": "{out}"},
)
"""Installs plugins of kubectl."""


def _key(product: Product) -> str:
    digest = hashlib.sha256(go_version().encode())
    for argument in (*product.arguments, *product.environment.values()):
        digest.update(argument.replace(str(SOURCES), "").encode() + b"\0")
    for source in product.sources:
        digest.update(source.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


@contextmanager
def _building(step: Callable[[str], None]) -> Iterator[None]:
    """During a block, hold the lock of builds. Incomplete and unused folders are removed first."""
    with (cache() / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            step("another run builds; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for draft in cache().glob("draft-*"):
            shutil.rmtree(draft, ignore_errors=True)
        _remove_unused()
        yield


def _remove_unused() -> None:
    oldest = time.time() - KEPT_DAYS * 24 * 3600
    for path in cache().iterdir():
        if path.stat().st_mtime > oldest:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _build(product: Product, place: Path, step: Callable[[str], None]) -> None:
    step(f"building {product.name}, {product.takes} the first time")
    began = time.monotonic()
    draft = Path(tempfile.mkdtemp(prefix="draft-", dir=cache()))
    try:
        _run_go(product, draft, began, step)
        draft.chmod(0o755)
        draft.rename(place)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    step(f"built {product.name} in {time.monotonic() - began:.0f} s")


def _run_go(product: Product, draft: Path, began: float, step: Callable[[str], None]) -> None:
    log = cache() / f"{product.name}.log"
    arguments = [argument.replace("{out}", str(draft)) for argument in product.arguments]
    environment = {name: value.replace("{out}", str(draft)) for name, value in product.environment.items()}
    fixed = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false"}
    with log.open("wb") as said:
        process = subprocess.Popen(
            ["go", *arguments], cwd=product.folder, env={**os.environ, **fixed, **environment}, stdout=said, stderr=said
        )
        try:
            _watch(process, product.name, log, began, step)
        except BaseException:
            process.kill()
            process.wait()
            raise
    if process.returncode != 0:
        raise BuildError(_explained(product.name, log))


def _watch(process: subprocess.Popen[bytes], name: str, log: Path, began: float, step: Callable[[str], None]) -> None:
    while True:
        try:
            process.wait(PROGRESS_SECONDS)
        except subprocess.TimeoutExpired:
            lines = log.read_bytes().count(b"\n")
            step(f"building {name}: {lines} packages, {time.monotonic() - began:.0f} s")
        else:
            return


def _explained(name: str, log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-8:]
    hint = ""
    if any("dial tcp" in line or "no such host" in line or "proxy" in line for line in lines):
        hint = "; the Go module proxy (`go env GOPROXY`) must be reachable the first time"
    return "\n".join([f"{name} could not be built, log {log}{hint}:", *lines])


def _linked(place: Path, programs: Mapping[str, Path]) -> Path:
    """Return *place* with a link for each of *programs*."""
    missing: Sequence[str] = [str(path) for path in programs.values() if not path.exists()]
    if missing:
        raise BuildError(f"missing programs: {', '.join(missing)}")
    if not place.exists():
        cache().mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix="links-", dir=cache()))
        for name, path in programs.items():
            (draft / name).symlink_to(path)
        draft.chmod(0o755)
        try:
            draft.rename(place)
        except OSError:
            shutil.rmtree(draft)  # another run was first
    os.utime(place)
    return place
