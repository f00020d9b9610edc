"""
Generate the kubelet API's Python stubs from our .proto files, in place.

Run as `tox -e protos`; with `--check` it writes nothing and fails when the committed stubs differ.
"""

import filecmp
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "libs/hamicommon/src/hamicommon/runtime/kubelet_api"
PACKAGE = "hamicommon/runtime/kubelet_api/_proto"


def generate(into: Path) -> Path:
    """Write the stubs below *into* and return their folder; the import paths inside are the package's own."""
    virtual = f"{PACKAGE}={SOURCES}"
    names = [f"{PACKAGE}/{proto.name}" for proto in sorted(SOURCES.glob("*.proto"))]
    outputs = [f"--{kind}_out={into}" for kind in ("python", "pyi", "grpc_python")]
    if protoc.main(["protoc", f"-I{virtual}", *outputs, *names]) != 0:
        sys.exit("protoc refused the .proto files; its reason is above")
    return into / PACKAGE


def main() -> None:
    committed = SOURCES / "_proto"
    with tempfile.TemporaryDirectory() as folder:
        made = generate(Path(folder))
        names = sorted(path.name for path in made.iterdir())
        if "--check" in sys.argv:
            _, differing, missing = filecmp.cmpfiles(made, committed, names, shallow=False)
            if differing or missing:
                sys.exit(f"stale stubs: {', '.join(differing + missing)}; run `tox -e protos`")
            return
        for name in names:
            (committed / name).write_bytes((made / name).read_bytes())


if __name__ == "__main__":
    main()
