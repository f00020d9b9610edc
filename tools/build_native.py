"""
Build `native/hami-core` into `build/native` with whatever CMake, ninja and C compiler there is.

Owns the choice of tools and the build folder: it is made anew when any of them changes. The tools that `bootstrap` put
into `.venv` come before the system's, for it puts there only what the system lacks.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from bootstrap import BUILD, ROOT, VENV, alone, fail, system_compiler, to_the_end

OUTPUT = BUILD / "native"
CONFIGURED = OUTPUT / "configured-with"
"""The command that configured the build folder; written last, so that its absence means an interrupted one."""


def tool(name: str) -> str:
    """Return the path of *name*, from `.venv` if it is there, else from the system."""
    found = shutil.which(name, path=str(VENV / "bin")) or shutil.which(name)
    if found is None:
        fail(f"{name} is missing: make setup")
    return found


def zig(tool: str) -> str:
    """Return a script that is Zig's *tool* (cc, ar, ranlib), with its caches in the tree."""
    script = BUILD / f"zig-{tool}"
    script.write_text(
        "#!/bin/sh\n"
        f'export ZIG_GLOBAL_CACHE_DIR="{BUILD / "zig-cache"}" ZIG_LOCAL_CACHE_DIR="{BUILD / "zig-cache"}"\n'
        f'exec "{VENV / "bin/python"}" -m ziglang {tool} "$@"\n'
    )
    script.chmod(0o755)
    return str(script)


def toolchain() -> list[str]:
    """Return the CMake variables of the system's C compiler, or of Zig's with what else a system without one lacks."""
    compiler = system_compiler()
    if compiler is not None:
        return [f"-DCMAKE_C_COMPILER={compiler}"]
    return [f"-DCMAKE_C_COMPILER={zig('cc')}", f"-DCMAKE_AR={zig('ar')}", f"-DCMAKE_RANLIB={zig('ranlib')}"]


def run(*command: str) -> None:
    """Run *command* and show what it prints only if it fails."""
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stdout)
        fail(f"{Path(command[0]).name} failed with {done.returncode}; the reason is above")


def build() -> None:
    """Configure if need be, and build."""
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
