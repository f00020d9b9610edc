"""
Simulate on an archive: the scheduler's own program decides, because the client has none of its code.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from kubectl_hami.commands.frame import UsageError
from kubectl_hami.read.archive import Archive

_PROGRAM: Final = "hami-scheduler"


def simulated(archive: Archive, options: argparse.Namespace) -> int:
    """
    Run the scheduler's `simulate` on the snapshot in *archive*, and return its exit code.

    Raises:
        UsageError: the program is not on PATH, or the archive has no snapshot.
    """
    if options.output == "yaml":
        raise UsageError("simulate on an archive prints text or json")
    if not archive.snapshot:
        raise UsageError("the archive has no snapshot: the scheduler did not answer when it was taken")
    beside = Path(sys.argv[0]).with_name(_PROGRAM)
    program = str(beside) if os.access(beside, os.X_OK) else shutil.which(_PROGRAM)
    if program is None:
        raise UsageError(f"simulate on an archive needs {_PROGRAM} on PATH: the image of the scheduler has it")
    with tempfile.NamedTemporaryFile(suffix=".json") as snapshot:
        snapshot.write(archive.snapshot)
        snapshot.flush()
        command = [program, "simulate", "--snapshot", snapshot.name, "-n", options.namespace or archive.namespace]
        command += ["-o", options.output, *(["--all"] if options.all else [])]
        command += [part for file in options.file for part in ("-f", file)]
        return subprocess.run(command, check=False).returncode
