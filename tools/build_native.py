"""
Build the library, the hook and the fake driver into `build/native`, with this machine's CMake, ninja and C compiler.

Owns the choice of tools and the build folder, which is rebuilt when one of them changes. Tools in `.venv` come before
the system's, because `bootstrap` installs there only what the system lacks.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from bootstrap import BUILD, ROOT, VENV, alone, fail, system_compiler, to_the_end

OUTPUT = BUILD / "native"
CONFIGURED = OUTPUT / "configured-with"
"""The command that configured the build folder. Written last: if it is missing, the configuration was interrupted."""


def tool(name: str) -> str:
    """Return the path of the tool *name*, from `.venv` or else from the system."""
    found = shutil.which(name, path=str(VENV / "bin")) or shutil.which(name)
    if found is None:
        fail(f"{name} is missing: make setup")
    return found


def zig(tool: str) -> str:
    """Write a script that runs Zig's *tool* (cc, ar, ranlib) with its caches in the tree, and return its path."""
    script = BUILD / f"zig-{tool}"
    script.write_text(
        "#!/bin/sh\n"
        f'export ZIG_GLOBAL_CACHE_DIR="{BUILD / "zig-cache"}" ZIG_LOCAL_CACHE_DIR="{BUILD / "zig-cache"}"\n'
        f'exec "{VENV / "bin/python"}" -m ziglang {tool} "$@"\n'
    )
    script.chmod(0o755)
    return str(script)


def toolchain() -> list[str]:
    """Return the CMake variables of the system's C compiler, or of Zig's compiler, archiver and indexer."""
    compiler = system_compiler()
    if compiler is not None:
        return [f"-DCMAKE_C_COMPILER={compiler}"]
    return [f"-DCMAKE_C_COMPILER={zig('cc')}", f"-DCMAKE_AR={zig('ar')}", f"-DCMAKE_RANLIB={zig('ranlib')}"]


def run(*command: str) -> None:
    """Run *command*, and show its output only if it fails."""
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stdout)
        fail(f"{Path(command[0]).name} failed with {done.returncode}; the reason is above")


def build() -> None:
    """Configure if necessary, and build."""
    configure = [
        tool("cmake"),
        *("-S", str(ROOT / "native/hami-core"), "-B", str(OUTPUT), "-G", "Ninja", "-Wno-dev"),
        *toolchain(),
        f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}",
        f"-DPython3_EXECUTABLE={VENV / 'bin/python'}",
        "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
    ]
    if not CONFIGURED.exists() or CONFIGURED.read_text() != "\n".join(configure):
        print("native: building libvgpu.so and the fake driver", flush=True)
        shutil.rmtree(OUTPUT, ignore_errors=True)
        run(*configure)
        CONFIGURED.write_text("\n".join(configure))
    run(tool("ninja"), "-C", str(OUTPUT))


def main() -> None:
    with alone("native"):
        build()


if __name__ == "__main__":
    to_the_end(main)
