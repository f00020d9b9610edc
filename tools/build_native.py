"""
Build `native/hami-core` into `build/native` with whatever CMake, ninja and C compiler there is.

The system's tools come first, then those `bootstrap.py` put into `.venv`.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV_TOOLS = ROOT / ".venv/bin"
BUILD = ROOT / "build/native"


def tool(name: str) -> str:
    """Return the path of *name*, from `.venv` if it is there, else from the system."""
    found = shutil.which(name, path=str(VENV_TOOLS)) or shutil.which(name)
    if found is None:
        sys.exit(f"build_native: {name} is missing; run make setup, or: apt-get install {name}")
    return found


def compiler() -> str:
    """Return the C compiler: the system's, or a script that calls Zig's."""
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return found
    script = BUILD.parent / "zig-cc"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(f'#!/bin/sh\nexec "{VENV_TOOLS / "python"}" -m ziglang cc "$@"\n')
    script.chmod(0o755)
    return str(script)


def main() -> None:
    environment = {**os.environ, "CMAKE_MAKE_PROGRAM": tool("ninja")}
    cmake = tool("cmake")
    if not (BUILD / "build.ninja").exists():
        configure = [
            cmake,
            *("-S", "native/hami-core", "-B", str(BUILD), "-G", "Ninja", "-Wno-dev"),
            f"-DCMAKE_C_COMPILER={os.environ.get('CC') or compiler()}",
            f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}",
            f"-DPython3_EXECUTABLE={VENV_TOOLS / 'python'}",
            "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
        ]
        subprocess.run([*configure, "--log-level=WARNING"], cwd=ROOT, env=environment, check=True)
    subprocess.run([tool("ninja"), "-C", str(BUILD), "--quiet"], cwd=ROOT, env=environment, check=True)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"build_native: {error.cmd[0]} failed with {error.returncode}; its output is above")
