"""
Take the bill of materials out of an image, in CycloneDX's form.

`services/bill.py` has written it during the build. Owns its check by CycloneDX's schema, and adds the digest, which no
file of the image can have.
Source: https://cyclonedx.org/docs/1.6/json/
"""

import json
import re
import tempfile
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from image.archive import Archive, unpack
from image.buildah import BuildError

VERSION = SchemaVersion.V1_6
BILL = "opt/hami/share/sbom.cdx.json"


def write_bill(archive: Path, image: Archive, path: Path) -> None:
    """
    Write the bill of materials of *image*, whose files are in *archive*, to *path*.

    Raises:
        BuildError: the image has none, or it does not match CycloneDX's schema.
    """
    with tempfile.TemporaryDirectory() as folder:
        unpack(archive, re.compile(re.escape(BILL)), Path(folder))
        written = Path(folder) / BILL
        if not written.exists():
            raise BuildError(f"the image has no {BILL}: its Dockerfile does not run services/bill.py")
        bill = json.loads(written.read_text())
    digest = image.digest.removeprefix("sha256:")
    bill["metadata"]["component"]["hashes"] = [{"alg": "SHA-256", "content": digest}]
    text = json.dumps(bill, indent=2)
    error = JsonStrictValidator(VERSION).validate_str(text)
    if error is not None:
        raise BuildError(f"{path.name} is not a valid bill of materials: {str(error).splitlines()[0]}")
    path.write_text(text + "\n")
