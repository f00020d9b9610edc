"""
The cluster's certificate authority, and the certificates of its parts.

Owns the folder of certificates and keys, and the kubeconfig files. Existing files are kept, so a restarted cluster is
the same one. Must never decide about rights: the API server does, by names and groups.
"""

import base64
import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=30)
AUTHORITY = "ca"


class Authority:
    """The certificates of one cluster, below *folder*."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self.certificate(AUTHORITY).exists():
            key = ec.generate_private_key(ec.SECP256R1())
            self._write(AUTHORITY, _draft(_name(AUTHORITY), key, is_authority=True), key, key)

    def certificate(self, name: str) -> Path:
        """Return the path of the certificate of *name* (PEM)."""
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        """Return the path of the private key of *name* (PEM)."""
        return self.folder / f"{name}.key"

    def issue(self, file: str, subject: str, groups: Sequence[str] = (), hosts: Sequence[str] = ()) -> None:
        """
        Issue *file* if it is missing: *subject* in *groups* as a client, *hosts* (names, addresses) as a server.
        """
        if self.certificate(file).exists():
            return
        key = ec.generate_private_key(ec.SECP256R1())
        draft = _draft(_name(subject, groups), key, is_authority=False)
        if hosts:
            draft = draft.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        self._write(file, draft, key, self._authority_key())

    def issue_key(self, file: str) -> None:
        """Make a private key *file* and its public key, `.pub`, if they are missing."""
        if self.key(file).exists():
            return
        key = ec.generate_private_key(ec.SECP256R1())
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (self.folder / f"{file}.pub").write_bytes(public)
        self._write_key(file, key)

    def kubeconfig(self, file: str, server: str, path: Path) -> Path:
        """Write a kubeconfig at *path* with the certificate and key *file* in it, and return *path*."""
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "cluster",
            "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": file}}],
            "clusters": [
                {
                    "name": "cluster",
                    "cluster": {
                        "server": server,
                        "certificate-authority-data": _encoded(self.certificate(AUTHORITY)),
                    },
                }
            ],
            "users": [
                {
                    "name": file,
                    "user": {
                        "client-certificate-data": _encoded(self.certificate(file)),
                        "client-key-data": _encoded(self.key(file)),
                    },
                }
            ],
        }
        draft = path.with_name(path.name + ".new")
        draft.touch(mode=0o600)
        draft.write_text(yaml.safe_dump(content))
        draft.rename(path)
        return path

    def _authority_key(self) -> ec.EllipticCurvePrivateKey:
        key = serialization.load_pem_private_key(self.key(AUTHORITY).read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return key

    def _write(
        self,
        file: str,
        draft: x509.CertificateBuilder,
        key: ec.EllipticCurvePrivateKey,
        signer: ec.EllipticCurvePrivateKey,
    ) -> None:
        self._write_key(file, key)
        signed = draft.sign(signer, hashes.SHA256())
        # The certificate is written last and atomically, so if it exists, everything does.
        fresh = self.folder / f"{file}.crt.new"
        fresh.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        fresh.rename(self.certificate(file))

    def _write_key(self, file: str, key: ec.EllipticCurvePrivateKey) -> None:
        content = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self.key(file).touch(mode=0o600)
        self.key(file).write_bytes(content)


def issue_serving(folder: Path) -> bytes:
    """Issue `tls.crt` and `tls.key` for 127.0.0.1 in *folder*, and return the certificate of their authority (PEM)."""
    pki = Authority(folder)
    pki.issue("tls", "server", hosts=["127.0.0.1"])
    return pki.certificate(AUTHORITY).read_bytes()


def _name(common_name: str, groups: Sequence[str] = ()) -> x509.Name:
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _draft(subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    draft = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(_name(AUTHORITY))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if is_authority:
        return draft
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    return draft.add_extension(x509.ExtendedKeyUsage(usages), critical=False)


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
