"""
Write the module file of a Kubernetes minor: `python -m controlplane.programs.modules 1.35`.

Run it after a version in `build` changed.

The go.mod of Kubernetes takes 31 modules from its source tree, which the module proxy does not have. Each is also
published as v0 with the same number. Owns `kubernetes/versions/`. Must never build.
Source: https://github.com/kubernetes/kubernetes/blob/master/staging/README.md.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from controlplane.programs import build

FOLDER = build.SOURCES / "kubernetes"


def module_file(minor: str, upstream: str) -> str:
    """Return the module file of *minor*, made of Kubernetes' go.mod *upstream*, before `go mod tidy`."""
    version = build.KUBERNETES[minor]
    staged = version.replace("v1.", "v0.", 1)
    staging = re.findall(r"^\s*(k8s\.io/\S+) => \./staging/", upstream, re.MULTILINE)
    requires = {
        "github.com/spf13/cobra": _required("github.com/spf13/cobra", upstream),
        "go.etcd.io/etcd/server/v3": _required("go.etcd.io/etcd/client/v3", upstream),
        "k8s.io/component-base": staged,
        "k8s.io/kubectl": staged,
        "k8s.io/kubernetes": version,
    }
    return "\n".join(
        [
            "module hami.io/e2e/kubernetes",
            "go " + _found(r"^go (\S+)$", upstream),
            "require (",
            *(f"\t{name} {wanted}" for name, wanted in requires.items()),
            ")",
            "replace (",
            *(f"\t{name} => {name} {staged}" for name in staging),
            ")",
            "",
        ]
    )


def _required(name: str, upstream: str) -> str:
    return _found(rf"^\s+{re.escape(name)} (v\S+)", upstream)


def _found(pattern: str, upstream: str) -> str:
    """Return the match of *pattern*. Raises: ValueError if the form of the go.mod has changed."""
    match = re.search(pattern, upstream, re.MULTILINE)
    if match is None:
        raise ValueError(f"the go.mod of k8s.io/kubernetes has no {pattern!r}")
    return match[1]


def main(minor: str) -> None:
    """Write `<minor>.mod` and `<minor>.sum`."""
    asked = ["go", "mod", "download", "-json", f"k8s.io/kubernetes@{build.KUBERNETES[minor]}"]
    answer = json.loads(subprocess.run(asked, check=True, capture_output=True, cwd="/").stdout)
    path = FOLDER / "versions" / f"{minor}.mod"
    path.write_text(module_file(minor, Path(answer["GoMod"]).read_text()))
    subprocess.run(["go", "mod", "tidy", f"-modfile={path}"], check=True, cwd=FOLDER)


if __name__ == "__main__":
    main(sys.argv[1])
