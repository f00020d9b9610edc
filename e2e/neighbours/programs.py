"""
The neighbours' programs: which versions, and how Go builds them.

They share the cache of the real cluster's programs. Must never run what is built.
"""

import json
import subprocess
from pathlib import Path

from controlplane.programs.build import BuildError, Product

PROMETHEUS_VERSION = "3.16.0"
ALERTMANAGER_VERSION = "0.31.1"
"""The last release whose module has the built page, without which it does not compile."""
KUEUE_VERSION = "0.17.0"
DESCHEDULER_VERSION = "0.36.0"
CERT_MANAGER_VERSION = "1.21.2"
KARPENTER_VERSION = "1.14.1"
KUBERAY_VERSION = "1.5.0"
KEDA_VERSION = "2.21.0"

_MODULES = Path(__file__).with_name("modules")
_DESCHEDULER = _MODULES / "descheduler"
_CERT_MANAGER = _MODULES / "cert-manager"


def _product(name: str, package: str, release: str, version: str, *flags: str) -> Product:
    """
    Return a program of Prometheus' authors.

    release     the version of its module
    version     what it says of itself
    """
    stamp = f"-X github.com/prometheus/common/version.Version={version}"
    command = ("install", "-v", "-trimpath", f"-ldflags=-s -w {stamp}", *flags, f"{package}@{release}")
    return Product(name, command, takes="10 minutes on two cores", environment={"GOBIN": "{out}"})


PROMETHEUS = _product(
    "prometheus",
    "github.com/prometheus/prometheus/cmd/prometheus",
    "v0.316.0",  # the library's number of 3.16.0
    PROMETHEUS_VERSION,
    "-tags=remove_all_sd,enable_kubernetes_sd",
)
"""Without its page, and of the clouds it knows Kubernetes alone: less than half of the packages."""
ALERTMANAGER = _product(
    "alertmanager",
    "github.com/prometheus/alertmanager/cmd/alertmanager",
    f"v{ALERTMANAGER_VERSION}",
    ALERTMANAGER_VERSION,
)
KUEUE_MODULE = f"sigs.k8s.io/kueue@v{KUEUE_VERSION}"
KUEUE = Product(
    "kueue",
    (
        *("install", "-v", "-trimpath"),
        f"-ldflags=-s -w -X sigs.k8s.io/kueue/pkg/version.GitVersion=v{KUEUE_VERSION}",
        f"sigs.k8s.io/kueue/cmd/kueue@v{KUEUE_VERSION}",
    ),
    takes="8 minutes on two cores",
    environment={"GOBIN": "{out}"},
)
DESCHEDULER_MODULE = f"sigs.k8s.io/descheduler@v{DESCHEDULER_VERSION}"
DESCHEDULER = Product(
    "descheduler",
    (
        *("build", "-v", "-trimpath"),
        f"-ldflags=-s -w -X sigs.k8s.io/descheduler/pkg/version.version=v{DESCHEDULER_VERSION}",
        *("-o", "{out}/", "sigs.k8s.io/descheduler/cmd/descheduler"),
    ),
    (_DESCHEDULER / "go.mod", _DESCHEDULER / "go.sum"),
    _DESCHEDULER,
    "5 minutes on two cores",
)
"""Its module replaces another, so `go install` refuses it, and a module file of ours has the same replacement."""


CERT_MANAGER_MODULE = f"github.com/cert-manager/cert-manager@v{CERT_MANAGER_VERSION}"
CERT_MANAGER = Product(
    "cert-manager",
    ("build", "-v", "-trimpath", "-ldflags=-s -w", "-o", "{out}/", "."),
    tuple(_CERT_MANAGER / name for name in ("main.go", "go.mod", "go.sum")),
    _CERT_MANAGER,
    "8 minutes on two cores",
)
"""Its controllers, started by a program of ours: its own are modules that no proxy has."""
KARPENTER_MODULE = f"sigs.k8s.io/karpenter@v{KARPENTER_VERSION}"
KARPENTER = Product(
    "karpenter",
    ("install", "-v", "-trimpath", "-ldflags=-s -w", f"sigs.k8s.io/karpenter/kwok@v{KARPENTER_VERSION}"),
    takes="5 minutes on two cores",
    environment={"GOBIN": "{out}"},
)
"""With the provider whose Nodes are objects alone."""
KUBERAY_MODULE = f"github.com/ray-project/kuberay/ray-operator@v{KUBERAY_VERSION}"
KUBERAY = Product(
    "kuberay",
    ("install", "-v", "-trimpath", "-ldflags=-s -w", KUBERAY_MODULE),
    takes="5 minutes on two cores",
    environment={"GOBIN": "{out}"},
)
KEDA_MODULE = f"github.com/kedacore/keda/v2@v{KEDA_VERSION}"


def keda() -> Product:
    """
    Return KEDA's operator and its server of metrics, built in the folder of the module.

    Its module replaces another, so `go install` refuses it. Raises: BuildError.
    """
    return Product(
        "keda",
        (
            *("build", "-v", "-trimpath"),
            f"-ldflags=-s -w -X github.com/kedacore/keda/v2/version.Version={KEDA_VERSION}",
            *("-o", "{out}/", "./cmd/operator", "./cmd/adapter"),
        ),
        folder=module_folder(KEDA_MODULE),
        takes="25 minutes on two cores",
    )


def module_folder(module: str) -> Path:
    """Return the folder of the sources of *module*, `path@version`, with its chart. Raises: BuildError."""
    asked = ["go", "mod", "download", "-json", module]
    try:
        answer = subprocess.run(asked, check=True, capture_output=True, text=True, cwd="/").stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(f"the sources of {module} could not be downloaded: {error}") from error
    return Path(json.loads(answer)["Dir"])
