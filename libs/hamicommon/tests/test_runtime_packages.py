"""
Large packages are imported in part.
"""

import subprocess
import sys


def found(statements: str) -> str:
    """Return what *statements* print in a new interpreter."""
    return subprocess.run([sys.executable, "-c", statements], check=True, capture_output=True, text=True).stdout


def test_client_library_is_imported_without_the_parts_that_no_service_uses() -> None:
    """They would cost every service memory and start-up time."""
    unused = ("kubernetes.client", "kubernetes.dynamic", "kubernetes.aio.dynamic", "jsonschema", "requests")

    assert "[]\n" == found(
        f"import sys, hamicommon.runtime.api.kube; print([name for name in {unused} if name in sys.modules])"
    )


def test_parts_that_were_left_out_can_still_be_imported() -> None:
    """As for a debugger or a test in the same process."""
    assert "True\n" == found(
        "import hamicommon.runtime.api.kube; from kubernetes import client; print(hasattr(client, 'CoreV1Api'))"
    )


def test_package_that_does_not_exist_is_left_to_its_import() -> None:
    """The error is the import's own."""
    assert "None\n" == found(
        "from hamicommon.runtime.api.packages import *; print(import_without_contents('nothing.at'))".replace(
            "nothing.at", "no_such_package"
        )
    )
