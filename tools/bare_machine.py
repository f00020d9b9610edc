"""
Run a check in a fresh clone on a bare Debian, without any package, cache or image of an earlier run.

    tools/bare_machine.py [--keep] CHECK        demo, test or e2e-real

The bare machine is a folder with a minimal Debian, the packages that README asks for, an empty HOME and a clone of
HEAD. It sees the kernel, network, control groups and Go of this machine, and finds packages where this machine does.
Owns what a bare machine has. Its processes and mounts end with their namespaces. A run that is killed leaves only its
folder, which the next run replaces. No real cluster may run on this machine meanwhile, for both would use the same
control groups.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bootstrap import ROOT, fail, to_the_end
from image.base import SUITE, apt_options, mirrors
from installer import pip_settings
from testbed.debian import PackageError, commands, ensure
from testbed.folders import FolderInUseError, claimed

PREREQUISITES = ("ca-certificates", "gcc", "git", "libc6-dev", "make", "python3-venv")
"""What README asks for, beside Go."""

FOLDER = Path("/var/tmp/hami-bare")
CHECKOUT = "/srv/checkout"
HOSTS = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
"""The file that Debian's installer and container engines write, and no package has."""
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
PIP_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "cert", "proxy", "timeout", "default-timeout")
GO_SETTINGS = ("GOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE")
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")

ENTER = """
set -e
root=$1 shows=$2; shift 2
mount --bind "$root" "$root"
cd "$root"
for folder in /dev /sys $shows; do
    mkdir -p ".$folder"
    mount --rbind "$folder" ".$folder"
done
mount -t proc proc proc
mount -t tmpfs tmpfs run
pivot_root . mnt
exec chroot . sh -c 'umount --lazy /mnt; cd "$0"; "$@"; exit $?' "$@"
"""
"""
Makes *root* the root of a new mount namespace, and runs a command in the folder given before it.

Its shell is the first process of the namespace: it reaps processes that lost their parent, and does not exec.
"""


def run(root: Path, folder: str, command: Sequence[str], environment: Mapping[str, str], shows: Sequence[str]) -> int:
    """
    Run *command* in *folder* of the machine below *root*; return its exit status.

    shows   folders of this machine that it sees
    """
    enter = ["sh", "-c", ENTER, "enter", str(root), " ".join(shows), folder, *command]
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    done = subprocess.run([*namespaces, *enter], env=environment, stdin=subprocess.DEVNULL, check=False)
    return done.returncode


def make(root: Path) -> None:
    """Install Debian with the prerequisites into *root*, and clone HEAD."""
    with tempfile.TemporaryDirectory(prefix="hami-bare-apt-") as scratch:
        options = ["--mode=root", "--variant=minbase", f"--include={','.join(PREREQUISITES)}"]
        target = [SUITE, str(root), *mirrors()]
        _call("mmdebstrap", "--quiet", *options, *apt_options(Path(scratch)), *target)
    (root / "etc/hosts").write_text(HOSTS)
    _call("git", "clone", "--quiet", "--no-local", str(ROOT), f"{root}{CHECKOUT}")


def settings(root: Path) -> dict[str, str]:
    """Return the environment by which pip and Go find packages as on this machine; certificates go into *root*."""
    pip = {name: value for name, value in pip_settings(sys.executable).items() if name in PIP_SETTINGS}
    found = {f"PIP_{name.replace('-', '_').upper()}": value for name, value in pip.items()}
    found |= {name: os.environ[name] for name in (*PROXIES, "SSL_CERT_FILE") if name in os.environ}
    if shutil.which("go"):
        found |= {name: _call("go", "env", name).strip() for name in GO_SETTINGS}
    for path in {CERTIFICATES, found.get("PIP_CERT", CERTIFICATES), found.get("SSL_CERT_FILE", CERTIFICATES)}:
        if Path(path).is_file():
            copy = Path(f"{root}{path}")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    return found


def check(name: str, root: Path) -> int:
    """Run `make` *name* on a bare machine below *root*; return its exit status."""
    print(f"bare: installing Debian {SUITE} with {', '.join(PREREQUISITES)}", flush=True)
    make(root)
    go = [_call("go", "env", "GOROOT").strip()] if shutil.which("go") else []
    path = ":".join(
        [*(f"{folder}/bin" for folder in go), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
    )
    environment = {"PATH": path, "HOME": "/root", "TERM": os.environ.get("TERM", "dumb"), **settings(root)}
    print(
        f"bare: make {name} in a clone of {_call('git', '-C', str(ROOT), 'log', '-1', '--format=%h %s').strip()}",
        flush=True,
    )
    began, used = time.monotonic(), _processor_seconds()
    status = run(root, CHECKOUT, ["make", name], environment, go)
    took, used = time.monotonic() - began, _processor_seconds() - used
    result = "passed" if status == 0 else f"failed with {status}"
    print(f"bare: make {name} {result} in {took:.0f} s, with {used:.0f} s of processor time", flush=True)
    return status


@contextmanager
def empty(folder: Path) -> Iterator[None]:
    """Hold *folder* exclusively during a block, without what a killed run left in it. Raises: FolderInUseError."""
    with claimed(folder):
        shutil.rmtree(folder)
        with claimed(folder):
            folder.chmod(0o755)
            yield


def _processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _call(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        fail(f"{command[0]} failed with {done.returncode}:\n{done.stderr.strip()}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description="Run a check in a fresh clone on a bare Debian.")
    parser.add_argument("check", choices=("demo", "test", "e2e-real"))
    parser.add_argument("--keep", action="store_true", help="leave the machine's folder, to look into it")
    options = parser.parse_args()
    if os.geteuid() != 0:
        fail("a bare machine takes root: sudo make bare")
    if _call("git", "-C", str(ROOT), "status", "--porcelain"):
        print("bare: changes that are not committed are not in the clone", flush=True)
    try:
        ensure(commands(["mmdebstrap"]), print)
    except PackageError as error:
        fail(str(error))
    try:
        with empty(FOLDER):
            status = check(options.check, FOLDER)
            if options.keep:
                print(f"bare: the machine is in {FOLDER}", flush=True)
            else:
                shutil.rmtree(FOLDER)
    except FolderInUseError as error:
        fail(str(error))
    sys.exit(status)


if __name__ == "__main__":
    to_the_end(main)
