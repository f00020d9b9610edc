"""
Arguments and configuration files of the programs of the cluster.

Writes files, and asks `ctr` for a default. Must never start a service. Every setting that is not a default has its
reason here.
Sources: the reference pages of kube-apiserver, kube-controller-manager, kube-scheduler, etcd, KubeletConfiguration
(kubelet.config.k8s.io/v1beta1), KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1) and containerd's
docs/cri/config.md.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from controlplane import nvidia
from controlplane.images.store import CONTAINERD_ROOT, CONTAINERD_SOCKET
from controlplane.machines import network
from controlplane.machines.machine import Machine, Service
from controlplane.nvidia import NodeKind
from controlplane.pki import AUTHORITY, Authority
from controlplane.programs import build

API_PORT = 6443
INSIDE = f"https://{network.CONTROL_ADDRESS}:{API_PORT}"
"""The URL of the API server in the network of the cluster."""

PAUSE_IMAGE = "localhost/pause:3"
FRONT_PROXY = "front-proxy-client"
"""The name in the certificate of `_front_proxy`."""
NODE_FOLDERS = (
    "/usr/local/vgpu",
    "/var/lib/cni",
    CONTAINERD_ROOT,
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
)
"""The private folders of a node that survive a power cut."""

_ETCD = "http://127.0.0.1:2379"
_AUDIT_FILE_MIB = 2048
"""Large, so that the audit log stays one file, which a reader follows."""


@dataclass(frozen=True)
class Features:
    """What API server, controllers and scheduler do beyond the defaults of their version."""

    gates: tuple[str, ...] = ()
    """Feature gates that are on."""
    apis: tuple[str, ...] = ()
    """API versions that are served: `scheduling.k8s.io/v1beta1`."""

    @property
    def flags(self) -> tuple[str, ...]:
        """The arguments that every part takes."""
        gates = ",".join(f"{gate}=true" for gate in self.gates)
        return (f"--feature-gates={gates}",) if gates else ()


DEFAULTS = Features()


def scheduler_image(kubernetes: str) -> str:
    """Return the name of kube-scheduler's image, for a chart that runs it."""
    return f"localhost/kube-scheduler:{build.KUBERNETES[kubernetes]}"


def issue_control(pki: Authority) -> None:
    """Issue the certificates of the control machine's parts and of the administrator."""
    hosts = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    hosts += ["kubernetes.default.svc.cluster.local", "127.0.0.1", network.CONTROL_ADDRESS, network.API_SERVICE]
    pki.issue("apiserver", "kube-apiserver", hosts=hosts)
    pki.issue("apiserver-to-kubelet", "kube-apiserver-kubelet-client", ["system:masters"])
    pki.issue("admin", "kubernetes-admin", ["system:masters"])
    pki.issue("controller-manager", "system:kube-controller-manager")
    pki.issue("scheduler", "system:kube-scheduler")
    pki.issue("proxy", "system:kube-proxy")
    pki.issue_key("service-accounts")
    _front_proxy(pki).issue("client", FRONT_PROXY)


def _front_proxy(pki: Authority) -> Authority:
    """Return the authority of the certificate with which the API server passes requests on to other API servers."""
    return Authority(pki.folder / "front-proxy")


def etcd(binaries: Path, machine: Machine) -> Service:
    """Return etcd, without fsync, because the cluster need not survive a power cut of this machine."""
    peer = "http://127.0.0.1:2380"
    return Service(
        "etcd",
        (
            *(str(binaries / "etcd"), "--name=control", f"--data-dir={machine.folder / 'etcd'}"),
            *(f"--listen-client-urls={_ETCD}", f"--advertise-client-urls={_ETCD}"),
            *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"),
            *(f"--initial-cluster=control={peer}", "--unsafe-no-fsync", "--log-level=warn"),
        ),
    )


def apiserver(
    binaries: Path, machine: Machine, pki: Authority, audit_log: Path, features: Features = DEFAULTS
) -> Service:
    """Return the API server. It connects to endpoints of Services, because its machine has no kube-proxy."""
    policy, front_proxy = machine.folder / "audit-policy.yaml", _front_proxy(pki)
    _write(
        policy,
        yaml.safe_dump(
            {
                "apiVersion": "audit.k8s.io/v1",
                "kind": "Policy",
                "omitStages": ["RequestReceived"],
                "rules": [{"level": "Metadata"}],
            }
        ),
    )
    return Service(
        "kube-apiserver",
        (
            *(str(binaries / "kube-apiserver"), f"--advertise-address={network.CONTROL_ADDRESS}"),
            *(f"--secure-port={API_PORT}", f"--etcd-servers={_ETCD}"),
            *(f"--service-cluster-ip-range={network.SERVICE_RANGE}", "--enable-aggregator-routing=true"),
            *("--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged"),
            *(f"--client-ca-file={pki.certificate(AUTHORITY)}", f"--tls-cert-file={pki.certificate('apiserver')}"),
            f"--tls-private-key-file={pki.key('apiserver')}",
            f"--kubelet-certificate-authority={pki.certificate(AUTHORITY)}",
            f"--kubelet-client-certificate={pki.certificate('apiserver-to-kubelet')}",
            f"--kubelet-client-key={pki.key('apiserver-to-kubelet')}",
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={pki.folder / 'service-accounts.pub'}",
            f"--service-account-signing-key-file={pki.key('service-accounts')}",
            # For APIServices, whose servers read the authority and the names of headers in kube-system.
            f"--proxy-client-cert-file={front_proxy.certificate('client')}",
            f"--proxy-client-key-file={front_proxy.key('client')}",
            f"--requestheader-client-ca-file={front_proxy.certificate(AUTHORITY)}",
            *(f"--requestheader-allowed-names={FRONT_PROXY}", "--requestheader-username-headers=X-Remote-User"),
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            *(f"--audit-policy-file={policy}", f"--audit-log-path={audit_log}"),
            f"--audit-log-maxsize={_AUDIT_FILE_MIB}",
            # High limits, so that many clients of a test do not have to wait.
            *("--max-requests-inflight=2000", "--max-mutating-requests-inflight=1000"),
            *features.flags,
            *(f"--runtime-config={api}=true" for api in features.apis),
        ),
    )


def controllers(
    binaries: Path, machine: Machine, pki: Authority, features: Features = DEFAULTS
) -> tuple[Service, Service]:
    """Return controller-manager and scheduler, without election, as each has one replica, and without throttling."""
    for part in ("controller-manager", "scheduler"):
        pki.kubeconfig(part, INSIDE, machine.folder / f"{part}.kubeconfig")
    manager = machine.folder / "controller-manager.kubeconfig"
    scheduler = machine.folder / "scheduler.kubeconfig"
    common = ("--leader-elect=false", "--kube-api-qps=500", "--kube-api-burst=1000", *features.flags)
    return (
        Service(
            "kube-controller-manager",
            (
                *(str(binaries / "kube-controller-manager"), f"--kubeconfig={manager}", *common),
                *(f"--authentication-kubeconfig={manager}", f"--authorization-kubeconfig={manager}"),
                *(f"--root-ca-file={pki.certificate(AUTHORITY)}", "--use-service-account-credentials"),
                f"--service-account-private-key-file={pki.key('service-accounts')}",
                f"--cluster-signing-cert-file={pki.certificate(AUTHORITY)}",
                f"--cluster-signing-key-file={pki.key(AUTHORITY)}",
                *("--node-monitor-period=2s", "--node-monitor-grace-period=20s"),
            ),
        ),
        Service(
            "kube-scheduler",
            (
                *(str(binaries / "kube-scheduler"), f"--kubeconfig={scheduler}", *common),
                *(f"--authentication-kubeconfig={scheduler}", f"--authorization-kubeconfig={scheduler}"),
            ),
        ),
    )


def relay() -> Service:
    """Return the relay from this machine to the API server."""
    argv = (sys.executable, "-m", "controlplane.machines.relay", f"127.0.0.1:{API_PORT}")
    return Service("relay", argv)


def containerd(binaries: Path, machine: Machine, index: int, kind: NodeKind = nvidia.PLAIN) -> Service:
    """Return containerd of node *index*, with the Pod network and the runtimes of *kind*."""
    conflist = {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": True,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": network.pod_range(index)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }
    networks = machine.folder / "cni"
    networks.mkdir(exist_ok=True)
    _write(networks / "10-pods.conflist", json.dumps(conflist))
    base_spec = machine.folder / "base-spec.json"
    if not base_spec.exists():
        _write(base_spec, nvidia.with_hardware(_default_spec(binaries), machine))
    if kind.toolkit:
        toolkit = machine.folder / "nvidia-container-runtime"
        toolkit.mkdir(exist_ok=True)
        _write(toolkit / "config.toml", nvidia.configuration(binaries, kind))
    _write(
        machine.folder / "containerd.toml",
        _containerd_toml(networks, registries(machine)) + nvidia.runtimes(binaries, kind, base_spec),
    )
    return Service(
        "containerd",
        (str(binaries / "containerd"), f"--config={machine.folder / 'containerd.toml'}"),
        nvidia.environment(binaries, machine, kind),
    )


def _default_spec(binaries: Path) -> str:
    """Return the OCI spec that containerd starts from without another."""
    return subprocess.run([binaries / "ctr", "oci", "spec"], capture_output=True, text=True, check=True).stdout


def registries(machine: Machine) -> Path:
    """Return the folder with a folder for each registry that containerd reaches elsewhere than its name says."""
    return machine.folder / "registries"


def _containerd_toml(networks: Path, registries: Path) -> str:
    return f"""\
version = 3
root = "{CONTAINERD_ROOT}"
state = "/run/containerd"

[grpc]
address = "{CONTAINERD_SOCKET}"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{PAUSE_IMAGE}"

[plugins.'io.containerd.cri.v1.images'.registry]
config_path = "{registries}"

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "{networks}"

"""


def kubelet(binaries: Path, machine: Machine, pki: Authority, index: int) -> Service:
    """Return the node's kubelet."""
    name, address = machine.name, network.node_address(index)
    pki.issue(name, f"system:node:{name}", ["system:nodes"], [name, address])
    kubeconfig = pki.kubeconfig(name, INSIDE, machine.folder / "kubelet.kubeconfig")
    config = {
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki.certificate(AUTHORITY))},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(pki.certificate(name)),
        "tlsPrivateKeyFile": str(pki.key(name)),
        "failCgroupV1": False,
        "clusterDNS": [network.DNS_SERVICE],
        "clusterDomain": "cluster.local",
    }
    return Service(
        "kubelet",
        (
            *_kubelet_command(binaries, machine, config),
            *(f"--kubeconfig={kubeconfig}", f"--hostname-override={name}", f"--node-ip={address}"),
            "--node-labels=gpu=on",
        ),
    )


def lone_kubelet(binaries: Path, machine: Machine, manifests: Path) -> Service:
    """Return a kubelet without an API server, which runs the Pods of the files in the folder *manifests*."""
    manifests.mkdir(exist_ok=True)
    config = {
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "staticPodPath": str(manifests),
        "fileCheckFrequency": "1s",
        # A guest has no iptables, and no disk whose use could be counted.
        "makeIPTablesUtilChains": False,
        "localStorageCapacityIsolation": False,
    }
    command = _kubelet_command(binaries, machine, config)
    return Service("kubelet", (*command, f"--hostname-override={machine.name}"))


def _kubelet_command(binaries: Path, machine: Machine, config: Mapping[str, object]) -> tuple[str, ...]:
    """Return the command of a kubelet with *config* beside the common settings. It reports often, and evicts late."""
    common = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "failSwapOn": False,
        # Lowering it takes CAP_SYS_RESOURCE, which root of a virtual machine may lack.
        "oomScoreAdj": 0,
        "maxPods": 110,
        "nodeStatusUpdateFrequency": "2s",
        "nodeLeaseDurationSeconds": 10,
        "syncFrequency": "10s",
        "serializeImagePulls": False,
        "registryPullQPS": 0,
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "eventRecordQPS": 0,
        # Short back-offs, because tests kill the same containers again and again.
        "featureGates": {"KubeletCrashLoopBackOffMax": True},
        "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
        # Low limits, because disk and memory belong to this machine.
        "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    }
    path = machine.folder / "kubelet.yaml"
    _write(path, yaml.safe_dump({**common, **config}))
    return str(binaries / "kubelet"), f"--config={path}"


def proxy(binaries: Path, machine: Machine, pki: Authority) -> Service:
    """Return the node's kube-proxy. It follows Services quickly."""
    kubeconfig = pki.kubeconfig("proxy", INSIDE, machine.folder / "proxy.kubeconfig")
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "mode": "iptables",
        "clusterCIDR": network.POD_RANGE,
        "hostnameOverride": machine.name,
        # The connection table belongs to this machine, so a node must not resize it.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "iptables": {"minSyncPeriod": "100ms"},
    }
    _write(machine.folder / "proxy.yaml", yaml.safe_dump(config))
    return Service("kube-proxy", (str(binaries / "kube-proxy"), f"--config={machine.folder / 'proxy.yaml'}"))


def _write(path: Path, text: str) -> None:
    """Write a configuration file atomically, and only if it differs, because kube-proxy exits when its file changes."""
    if path.exists() and path.read_text() == text:
        return
    draft = path.with_name(path.name + ".new")
    draft.write_text(text)
    draft.rename(path)
