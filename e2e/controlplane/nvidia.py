"""
NVIDIA's software on a node: the driver, the container toolkit, and what containerd is told about them.

Owns the kinds of nodes. `FakeNode.kind` names one. The driver is the fake one, laid out as NVIDIA's driver container
lays out its own. Every container can reach the fake hardware, as it could reach the kernel module through /proc and
/sys. Which devices it has depends on the device files that a runtime gives it.
Must never know a cluster. Neighbours: `parts` has the other programs of a node.
Sources: https://github.com/NVIDIA/nvidia-container-toolkit, https://github.com/NVIDIA/gpu-operator and containerd's
docs/cri/config.md.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from controlplane.machines.machine import Machine
from controlplane.programs import build
from testbed.driver.hardware import PROC, FakeNode
from testbed.driver.mps import install_mps

DRIVER_ROOT = "/run/nvidia/driver"
HARDWARE = "/run/nvidia/hardware"
CDI_FOLDER = "/var/run/cdi"
RUNTIME = "nvidia"
"""The name of NVIDIA's runtime as a handler of containerd and as a RuntimeClass."""

_OLD_TOOLKIT, _NEW_TOOLKIT = build.TOOLKITS
_LIBRARIES = f"usr/lib/{os.uname().machine}-linux-gnu"
_CONTROL_FILES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
_NULL = os.makedev(1, 3)
"""The device files are those of /dev/null, because this machine lacks the driver's."""

_SHOW_PROC = f"""
root=$(sed -n 's/.*"bundle": *"\\([^"]*\\)".*/\\1/p')/rootfs
for name in driver devices; do mount --bind {HARDWARE}/{PROC}/$name "$root/proc/$name"; done
"""
"""
A hook that gives a container what the driver shows in /proc, which this machine's kernel lacks.

Source of what it reads: https://github.com/opencontainers/runtime-spec/blob/main/runtime.md#state
"""

_SHOW_SYSTEM = f"""
cd {DRIVER_ROOT}
for path in usr/bin usr/lib; do mount -t overlay -o lowerdir=$PWD/$path:/$path overlay $path; done
for path; do
    if [ -L $path ]; then cp -P $path .$path
    elif [ -d $path ]; then mkdir -p .$path && mount --rbind $path .$path
    elif [ -e $path ]; then touch .$path && mount --bind $path .$path
    fi
done
"""
"""Shows the node's files beside the driver's in its root, and the folders and files in the arguments."""
_SYSTEM = ("/bin", "/lib", "/lib64", "/usr/lib64", "/proc", "/dev/null", HARDWARE, sys.prefix, sys.base_prefix)
"""What the programs of MPS need, which are Python programs here. On a real node they need the system's libraries."""

_ASK_VERSION = """
import ctypes, sys
nvml, version = ctypes.CDLL(sys.argv[1]), ctypes.create_string_buffer(80)
assert nvml.nvmlInit_v2() == 0 and nvml.nvmlSystemGetDriverVersion(version, 80) == 0
print(version.value.decode())
"""


@dataclass(frozen=True)
class NodeKind:
    """What a node has between its driver and its containers."""

    name: str
    meaning: str
    """One sentence for a person."""
    toolkit: str = ""
    """The version of NVIDIA's container toolkit, whose runtime containerd knows as `nvidia`. Empty means none."""
    mode: str = ""
    """The mode of its runtime."""
    host_spec: str = ""
    """The kind of the CDI spec of all devices that the node has from its boot. Empty means that it has no spec."""
    is_default: bool = False
    """Whether a container without a RuntimeClass has NVIDIA's runtime."""
    is_legacy: bool = False
    """Whether the runtime `nvidia` is the stand-in for the mode `legacy`."""
    has_cdi: bool = True
    """Whether containerd applies CDI specs."""


LEGACY = NodeKind(
    "legacy",
    "NVIDIA's runtime adds the driver by itself, as up to toolkit 1.17; it is the default runtime.",
    is_default=True,
    is_legacy=True,
)
PLAIN = NodeKind("plain", "There is only runc, with CDI in containerd.")
JIT_CDI = NodeKind(
    "jit-cdi",
    f"NVIDIA's runtime of toolkit {_NEW_TOOLKIT} is the default runtime, in its default mode.",
    toolkit=_NEW_TOOLKIT,
    mode="auto",
    is_default=True,
)
HOST_SPEC = NodeKind(
    "host-spec",
    f"NVIDIA's runtime of toolkit {_OLD_TOOLKIT} is the default runtime, in mode cdi, with a spec from nvidia-ctk.",
    toolkit=_OLD_TOOLKIT,
    mode="cdi",
    host_spec="nvidia.com/gpu",
    is_default=True,
)
OPERATOR = NodeKind(
    "operator",
    f"The defaults of the GPU Operator: toolkit {_NEW_TOOLKIT} in mode cdi, only by its RuntimeClass.",
    toolkit=_NEW_TOOLKIT,
    mode="cdi",
    host_spec="management.nvidia.com/gpu",
)
NO_CDI = NodeKind(
    "no-cdi",
    "As legacy, and CDI is switched off in containerd.",
    is_default=True,
    is_legacy=True,
    has_cdi=False,
)
KINDS: Mapping[str, NodeKind] = {kind.name: kind for kind in (LEGACY, PLAIN, JIT_CDI, HOST_SPEC, OPERATOR, NO_CDI)}


# --- the driver ------------------------------------------------------------------------------------------------------


def install_driver(machine: Machine, libraries: Path, hardware: FakeNode) -> None:
    """Install the driver on a booted node that has none: *hardware*, and a driver root with *libraries*."""
    root, state = machine.path(DRIVER_ROOT), machine.path(HARDWARE)
    if root.exists():
        return
    hardware.write_hardware(state)
    # Processes of all users write the driver's state there.
    state.chmod(0o777)
    draft = root.with_name("driver.new")
    shutil.rmtree(draft, ignore_errors=True)
    lay_out(draft, libraries, state, len(hardware.gpus))
    draft.rename(root)


def show_system(machine: Machine) -> None:
    """
    Show the system's programs and libraries in the driver root of a booted node. NVIDIA's driver container has its own.

    The control daemon of MPS runs in that root.
    Source: https://github.com/NVIDIA/gpu-driver-container (`_mount_rootfs`)
    """
    if not (machine.path(DRIVER_ROOT) / "proc").exists():
        machine.run(["sh", "-ec", _SHOW_SYSTEM, "sh", *_SYSTEM])


def upgrade_driver(machine: Machine, libraries: Path, hardware: FakeNode) -> None:
    """Install the driver's files again, with the version that is loaded now, as NVIDIA's driver container does."""
    root = machine.path(DRIVER_ROOT)
    root.rename(root.with_name("driver.old"))
    install_driver(machine, libraries, hardware)


def lay_out(root: Path, libraries: Path, hardware: Path, devices: int) -> None:
    """
    Make the root of a driver for *devices* devices, with copies of the fake driver's *libraries* and programs.

    The libraries' names have the version that the driver reports with the folder *hardware*.
    """
    version = driver_version(libraries, hardware)
    folder = root / _LIBRARIES
    folder.mkdir(parents=True)
    for library in libraries.glob("lib*.so.1"):
        versioned = f"{library.stem}.{version}"
        shutil.copy2(library, folder / versioned)
        (folder / library.name).symlink_to(versioned)
    install_mps(root, libraries, Path(HARDWARE))
    (root / "dev").mkdir()
    for name in (*_CONTROL_FILES, *(f"nvidia{minor}" for minor in range(devices))):
        os.mknod(root / "dev" / name, 0o020666, _NULL)
        (root / "dev" / name).chmod(0o666)


def driver_version(libraries: Path, hardware: Path) -> str:
    """Return the version that the NVML in *libraries* reports."""
    done = subprocess.run(
        [sys.executable, "-c", _ASK_VERSION, str(libraries / "libnvidia-ml.so.1")],
        env={**os.environ, "FAKE_DRIVER_DIR": str(hardware)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


# --- the toolkit -----------------------------------------------------------------------------------------------------


def toolkit_folder(binaries: Path, kind: NodeKind) -> Path:
    """Return the folder of the toolkit's programs."""
    return binaries / build.toolkit(kind.toolkit).name


def environment(binaries: Path, machine: Machine, kind: NodeKind) -> Mapping[str, str]:
    """Return what containerd, and so NVIDIA's runtime, has in its environment: programs, configuration, hardware."""
    own = [str(toolkit_folder(binaries, kind))] if kind.toolkit else []
    return {
        "PATH": ":".join([*own, str(binaries), "/usr/sbin:/usr/bin:/sbin:/bin"]),
        "XDG_CONFIG_HOME": str(machine.folder),
        "FAKE_DRIVER_DIR": HARDWARE,
    }


def configuration(binaries: Path, kind: NodeKind) -> str:
    """Return the configuration of NVIDIA's runtime, `nvidia-container-runtime/config.toml`."""
    folder = toolkit_folder(binaries, kind)
    return f"""\
[nvidia-container-cli]
root = "{DRIVER_ROOT}"

[nvidia-container-runtime]
mode = "{kind.mode}"
runtimes = ["runc"]

[nvidia-container-runtime.modes.cdi]
default-kind = "{kind.host_spec or "nvidia.com/gpu"}"
spec-dirs = ["{CDI_FOLDER}"]

[nvidia-ctk]
path = "{folder / "nvidia-ctk"}"
"""


def write_host_spec(binaries: Path, machine: Machine, kind: NodeKind) -> None:
    """Describe all devices of the booted node in a CDI spec, as a node does at its boot, if its kind has one."""
    if not kind.host_spec or machine.path(_spec_file(kind)).exists():
        return
    machine.path(CDI_FOLDER).mkdir(exist_ok=True)
    folder = toolkit_folder(binaries, kind)
    vendor, _, device_class = kind.host_spec.partition("/")
    # The Operator's spec is made for its own programs, which use all devices.
    mode = "management" if vendor.startswith("management.") else "nvml"
    machine.run(
        [
            *("env", f"FAKE_DRIVER_DIR={HARDWARE}", str(folder / "nvidia-ctk"), "cdi", "generate", f"--mode={mode}"),
            *(f"--vendor={vendor}", f"--class={device_class}", f"--output={_spec_file(kind)}"),
            *(f"--driver-root={DRIVER_ROOT}", f"--nvidia-cdi-hook-path={folder / 'nvidia-cdi-hook'}"),
        ]
    )


def _spec_file(kind: NodeKind) -> str:
    return f"{CDI_FOLDER}/{kind.host_spec.replace('/', '-')}.yaml"


# --- containerd ------------------------------------------------------------------------------------------------------


def with_hardware(base: str, machine: Machine) -> str:
    """Return the OCI spec *base* of every container of a node, with access to the fake hardware of *machine*."""
    spec = json.loads(base)
    spec["process"].setdefault("env", []).append(f"FAKE_DRIVER_DIR={HARDWARE}")
    options = ["rbind", "rprivate", "rw"]
    spec["mounts"].append({"destination": HARDWARE, "type": "bind", "source": HARDWARE, "options": options})
    if machine.path(f"{HARDWARE}/{PROC}").exists():
        hook = {"path": "/bin/sh", "args": ["sh", "-ec", _SHOW_PROC], "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]}
        spec["hooks"] = {"createContainer": [hook]}
    return json.dumps(spec)


def runtimes(binaries: Path, kind: NodeKind, base_spec: Path) -> str:
    """Return containerd's settings for CDI and its runtimes. Every container starts from the file *base_spec*."""
    programs = {"runc": ""}
    if kind.is_legacy:
        programs[RUNTIME] = str(binaries / "legacy-runtime")
    elif kind.toolkit:
        programs[RUNTIME] = str(toolkit_folder(binaries, kind) / "nvidia-container-runtime")
    settings = "plugins.'io.containerd.cri.v1.runtime'"
    text = f"""\
[{settings}]
# Lowering it takes CAP_SYS_RESOURCE, which root of a virtual machine may lack.
restrict_oom_score_adj = true
enable_cdi = {str(kind.has_cdi).lower()}
cdi_spec_dirs = ["{CDI_FOLDER}"]

[{settings}.containerd]
default_runtime_name = "{RUNTIME if kind.is_default else "runc"}"
"""
    for name, program in programs.items():
        text += f"""
[{settings}.containerd.runtimes.{name}]
runtime_type = "io.containerd.runc.v2"
base_runtime_spec = "{base_spec}"
[{settings}.containerd.runtimes.{name}.options]
BinaryName = "{program}"
"""
    return text
