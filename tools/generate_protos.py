"""
Generate Python stubs from our .proto files, in place.

Run as `tox -e protos`; with `--check` it writes nothing and fails when the committed stubs differ.
"""

import filecmp
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parent.parent
FOLDERS = {
    "libs/hamicommon/src/hamicommon/runtime/kubelet_api": ("python", "pyi", "grpc_python"),
    "services/scheduler/src/hami_scheduler/serve/kube/messages": ("python", "pyi"),
}
"""What protoc makes of the .proto files in each."""


def generate(folder: str, into: Path) -> Path:
    """Write the stubs of *folder* below *into* and return where; the import paths inside are the package's own."""
    package = f"{folder.partition('/src/')[2]}/_proto"
    names = [f"{package}/{proto.name}" for proto in sorted((ROOT / folder).glob("*.proto"))]
    outputs = [f"--{kind}_out={into}" for kind in FOLDERS[folder]]
    if protoc.main(["protoc", f"-I{package}={ROOT / folder}", *outputs, *names]) != 0:
        sys.exit("protoc refused the .proto files; its reason is above")
    return into / package


def main() -> None:
    """Write or check the stubs of each folder."""
    for folder in FOLDERS:
        committed = ROOT / folder / "_proto"
        with tempfile.TemporaryDirectory() as made_in:
            made = generate(folder, Path(made_in))
            names = sorted(path.name for path in made.iterdir())
            if "--check" not in sys.argv:
                for name in names:
                    (committed / name).write_bytes((made / name).read_bytes())
                continue
            _, differing, missing = filecmp.cmpfiles(made, committed, names, shallow=False)
            if differing or missing:
                sys.exit(f"stale stubs in {folder}: {', '.join(differing + missing)}; run `tox -e protos`")


if __name__ == "__main__":
    main()
