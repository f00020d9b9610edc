"""
Keys with certificates that they sign themselves, for tests of TLS.
"""

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def an_identity(name: str) -> tuple[bytes, bytes]:
    """Return a new PEM key and its self-signed certificate for the host *name*, an address or a DNS name."""
    key = ec.generate_private_key(ec.SECP256R1())
    # OpenSSL finds an authority by its name, so no two may have the same.
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, str(x509.random_serial_number()))])
    alternative: x509.GeneralName = x509.DNSName(name)
    if name[0].isdigit():
        alternative = x509.IPAddress(ipaddress.ip_address(name))
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem, certificate.public_bytes(serialization.Encoding.PEM)
