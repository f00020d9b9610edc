"""
Build `kubectl hami` as one file for PATH, and what Krew installs.

    client_file.py                              build/kubectl-hami, for this platform
    client_file.py --krew URL [PLATFORM ...]    build/krew: an archive for each platform, and hami.yaml

Such a file holds the client and all that it needs, from requirements/kubectl-hami.lock. Some packages have parts that
were compiled for one Python. It holds them for every Python in PYTHONS, because their names differ. It unpacks itself
once, below ~/.shiv.
Neighbours: shiv writes the file, `publish.krew` the archives, `installer` knows where packages are.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from bootstrap import BUILD, ROOT, VENV, alone, fail, to_the_end
from installer import pip_settings, uv_environment
from publish.krew import PLUGIN, PROGRAM, manifest, write_archive
from publish.parts import CLIENT, PARTS, version_of

OUTPUT = BUILD / PROGRAM
KREW = BUILD / "krew"
WORK = BUILD / "kubectl-hami.parts"
OURS = ("libs/hamicommon", "clients/kubectl-hami")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = {
    "linux-amd64": "x86_64-manylinux_2_28",
    "linux-arm64": "aarch64-manylinux_2_28",
    "darwin-amd64": "x86_64-apple-darwin",
    "darwin-arm64": "aarch64-apple-darwin",
}
"""By the name that Krew has for a platform, the one that uv has."""
ARCHES = {"x86_64": "amd64", "aarch64": "arm64"}
VERSION_CHECK = f"""\
import sys
version = "%d.%d" % sys.version_info[:2]
if version not in {PYTHONS}:
    sys.stderr.write("kubectl-hami needs Python {PYTHONS[0]} to {PYTHONS[-1]}, ")
    sys.stderr.write("and python3 on the PATH is " + version + "\\n")
    sys.exit(2)
"""
"""Runs before the client. Older Pythons must understand it."""


def install(target: Path, *arguments: str) -> None:
    """Install packages into the folder *target*, without the environment of this checkout."""
    python = VENV / "bin/python"
    command = [str(VENV / "bin/uv"), "pip", "install", "--python", str(python), "--target", str(target), *arguments]
    environment = uv_environment(pip_settings(python), os.environ)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        fail("uv failed; the reason is above")


def collect(site: Path, name: str) -> None:
    """Put the client into the folder *site*, and all that it needs on the platform *name*, for every Python."""
    for python in PYTHONS:
        parts = WORK / python
        wanted = ("--python-platform", PLATFORMS[name], "--python-version", python, "--only-binary", ":all:")
        install(parts, "--require-hashes", "--requirement", "requirements/kubectl-hami.lock", *wanted)
        shutil.copytree(parts, site, dirs_exist_ok=True)
        shutil.rmtree(parts)
    install(site, "--no-deps", *(str(ROOT / package) for package in OURS))


def build(name: str, output: Path) -> None:
    """Write the file for the platform *name* to *output*."""
    shutil.rmtree(WORK, ignore_errors=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    install(WORK / "tool", "--require-hashes", "--requirement", "requirements/shiv.lock")
    collect(WORK / "site", name)
    check = WORK / "version_check.py"
    check.write_text(VERSION_CHECK)
    command = [sys.executable, "-m", "shiv.cli", f"--site-packages={WORK / 'site'}", "--compressed", "--reproducible"]
    command += [f"--output-file={output}", "--entry-point", "kubectl_hami.main:main", f"--preamble={check}"]
    command += ["--python", "/usr/bin/env python3"]
    environment = {**os.environ, "PYTHONPATH": str(WORK / "tool"), "SOURCE_DATE_EPOCH": "946684800"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        fail("shiv failed; the reason is above")
    shutil.rmtree(WORK)
    size = output.stat().st_size / 2**20
    print(f"{output.relative_to(ROOT)}: {size:.0f} MiB, for {name} with Python {PYTHONS[0]} to {PYTHONS[-1]}")


def build_krew(base_url: str, names: list[str]) -> None:
    """Write an archive for each platform, and the manifest that looks for them at *base_url*."""
    shutil.rmtree(KREW, ignore_errors=True)
    version, archives = version_of(PARTS[CLIENT], ROOT), {}
    for name in names:
        program = KREW / name / PROGRAM
        build(name, program)
        archives[name] = KREW / f"{PROGRAM}-{version}-{name}.tar.gz"
        write_archive(program, ROOT / "LICENSE", archives[name])
        shutil.rmtree(program.parent)
    path = KREW / f"{PLUGIN}.yaml"
    made = manifest(version, base_url, archives, f"{PYTHONS[0]} to {PYTHONS[-1]}")
    path.write_text(yaml.safe_dump(made, sort_keys=False, width=120))
    print(f"{path.relative_to(ROOT)}: upload the archives beside it to {base_url}")


def url(text: str) -> str:
    """Return *text* if Krew can download from there."""
    if urlsplit(text).scheme not in ("https", "http") or not urlsplit(text).netloc:
        raise argparse.ArgumentTypeError(f"{text!r} is not like https://downloads.example.com/hami")
    return text


def arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="client_file", description="Build kubectl hami as one file.")
    parser.add_argument("--krew", metavar="URL", type=url, help="make archives and a manifest; they will lie at URL")
    parser.add_argument("platforms", metavar="PLATFORM", nargs="*", help=f"with --krew: {', '.join(PLATFORMS)} (all)")
    options = parser.parse_args()
    unknown = sorted(set(options.platforms) - set(PLATFORMS))
    if unknown:
        parser.error(f"platform {unknown[0]!r} is not one of {', '.join(PLATFORMS)}")
    if options.platforms and not options.krew:
        parser.error("PLATFORM needs --krew URL")
    return options


def this_platform() -> str:
    """Return the name of this machine's platform."""
    machine = platform.machine()
    name = f"{platform.system().lower()}-{ARCHES.get(machine, machine)}"
    if name not in PLATFORMS:
        fail(f"this machine is {name}, and one file is built for {', '.join(PLATFORMS)}: use pipx or pip")
    return name


def main() -> None:
    options = arguments()
    with alone("kubectl-hami.build"):
        if options.krew:
            build_krew(options.krew, options.platforms or list(PLATFORMS))
        else:
            build(this_platform(), OUTPUT)


if __name__ == "__main__":
    to_the_end(main)
