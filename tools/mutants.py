"""
Change the code of a file or folder in small ways, and list the changes that no test notices.

    tools/mutants.py PATH

PATH is below the `src` of a part. mutmut works in a copy, build/mutants/PART, so the checkout stays as it is. Tests on
generated input and those of whole processes are left out, because they take too long for each change.
"""

import argparse
import os
import shutil
import subprocess
from pathlib import Path

from bootstrap import BUILD, ROOT, VENV, fail, to_the_end

VECTORS = "libs/hamicommon/vectors"
"""What the tests of every part read beside it."""
SLOW = ("test_certificate_loop*", "test_cli*", "test_hostile*", "test_renewal*", "test_runtime*", "test_service*")
CONFIG = """\
[mutmut]
source_paths = src
only_mutate = {pattern}
also_copy =
    conftest.py
    pytest.ini
    vectors
pytest_add_cli_args =
    -p
    no:cacheprovider
    -m
    not property
    {ignored}
pytest_add_cli_args_test_selection =
    tests
use_git_change_detection = false
"""


def part_of(path: Path) -> Path:
    """Return the part, a folder of the repository, that *path* is source code of."""
    if "src" not in path.parts[:-1] or not (ROOT / path).exists():
        fail(f"{path} is no source code of a part, such as services/webhook/src/hami_webhook/decide")
    return Path(*path.parts[: path.parts.index("src")])


def config(path: Path, part: Path) -> str:
    """Return mutmut's settings."""
    inside = path.relative_to(part)
    return CONFIG.format(
        pattern=inside if inside.suffix == ".py" else inside / "*",
        ignored="\n    ".join(f"--ignore-glob=*/{name}" for name in SLOW),
    )


def copy_of(part: Path) -> Path:
    """Return a fresh copy of *part*, with the vectors where its tests look for them from mutmut's copy in it."""
    copy = BUILD / "mutants" / part.name
    shutil.rmtree(copy, ignore_errors=True)
    for name in ("src", "tests", "vectors"):
        if (ROOT / part / name).exists():
            shutil.copytree(ROOT / part / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copytree(ROOT / VECTORS, copy.parent / VECTORS, dirs_exist_ok=True)
    for name in ("conftest.py", "pytest.ini"):
        shutil.copyfile(ROOT / name, copy / name)
    return copy


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("path", type=Path)
    path = parser.parse_args().path.resolve().relative_to(ROOT)
    part = part_of(path)
    copy = copy_of(part)
    (copy / "setup.cfg").write_text(config(path, part))
    mutmut = [str(VENV / "bin/mutmut")]
    environment = {**os.environ, "PYTHONPATH": ""}
    for command in (["run", "--max-children", "1"], ["results"]):
        if subprocess.run([*mutmut, *command], cwd=copy, env=environment, check=False).returncode:
            fail(f"mutmut {command[0]} ended early; its output is above")


if __name__ == "__main__":
    to_the_end(main)
