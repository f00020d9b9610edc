"""
The cluster on the command line: check, prepare, up, status, down.
"""

import argparse
import sys
from pathlib import Path

from controlplane import prerequisites
from controlplane.cluster import ClusterError, ControlPlane
from controlplane.images.oci import OUR_ARCH
from controlplane.programs import build
from testbed import debian
from testbed.driver.hardware import TWO_NODES
from testbed.folders import FolderInUseError

FOLDER = Path("/var/tmp/hami-controlplane")  # the folder's owner is checked when it is claimed


def main() -> int:
    """Run the command. An error is one line on stderr and status 1."""
    args = _parser().parse_args()
    try:
        globals()[f"_{args.command}"](args)
    except (ClusterError, debian.PackageError, FolderInUseError, build.BuildError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="controlplane", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("check", "exit with an error if this machine cannot run a cluster"),
        ("prepare", "install the packages, build the programs and print their folder"),
        ("up", "start the cluster, or its parts that do not run"),
        ("status", "list the parts of the cluster"),
        ("down", "remove the cluster"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--folder", type=Path, default=FOLDER, help=f"folder of the cluster (default {FOLDER})")
        command.add_argument("--kubernetes", choices=build.KUBERNETES, default=build.DEFAULT_KUBERNETES)
    return parser


def _check(_: argparse.Namespace) -> None:
    reason = prerequisites.missing()
    if reason:
        raise ClusterError(reason)


def _prepare(args: argparse.Namespace) -> None:
    debian.ensure(prerequisites.PACKAGES, _say)
    for product in (build.kube_scheduler(args.kubernetes, OUR_ARCH), build.COREDNS, build.KREW, build.KWOK):
        build.made(product, _say)
    print(build.binaries(args.kubernetes, _say))


def _up(args: argparse.Namespace) -> None:
    cluster = ControlPlane(args.folder, args.kubernetes, outlives_us=True)
    cluster.up(TWO_NODES, _say)
    print(f"export KUBECONFIG={cluster.kubeconfig}")


def _status(args: argparse.Namespace) -> None:
    rows = ControlPlane(args.folder, args.kubernetes).status()
    if not rows:
        print(f"no cluster in {args.folder}")
    for machine, part, pid, health in rows:
        print(f"{machine:12} {part:24} {pid or '-':>8}  {health}")


def _down(args: argparse.Namespace) -> None:
    ControlPlane(args.folder, args.kubernetes).down()


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
