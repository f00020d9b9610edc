"""
Read, make and verify certificates. The only module with `cryptography`.

The time arrives as an argument. No message contains a key.
Source: https://www.rfc-editor.org/rfc/rfc5280
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hamicommon.errors import HamiError

AUTHORITY_LIFETIME = timedelta(days=3650)
CERTIFICATE_LIFETIME = timedelta(days=90)
BACKDATING = timedelta(hours=1)
"""How far a client's clock may be behind."""

Certificate = x509.Certificate
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
Bundle = tuple[x509.Certificate, ...]
"""Authorities that clients trust."""
Names = tuple[str, ...]
"""DNS names and IP addresses, as text."""


class CertificateError(HamiError):
    """The text is not a certificate or not a key."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: Key

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as PEM."""
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The key as PEM, PKCS #8."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def read_bundle(pem: bytes) -> Bundle:
    """
    Return the certificates in *pem*, in its order.

    Raises:
        CertificateError: *pem* holds no certificate, or one that cannot be read.
    """
    try:
        return tuple(x509.load_pem_x509_certificates(pem))
    except ValueError as error:
        raise CertificateError(f"is not PEM certificates: {error}") from error


def read_key(pem: bytes) -> Key:
    """
    Return the key in *pem*.

    Raises:
        CertificateError: *pem* is not an unencrypted EC or RSA key.
    """
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise CertificateError("is not an unencrypted PEM private key") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise CertificateError(f"must be an EC or RSA key, not {type(key).__name__}")
    return key


def pair_of(certificates: Iterable[x509.Certificate], key: Key) -> Pair | None:
    """Return the first of *certificates* that belongs to *key*, with the key; None if none does."""
    public = _public(key.public_key())
    matching = (found for found in certificates if _public(found.public_key()) == public)
    return next((Pair(certificate, key) for certificate in matching), None)


def new_authority(now: datetime) -> Pair:
    """Return a new authority, which may sign server certificates only."""
    key = ec.generate_private_key(ec.SECP256R1())
    # Two authorities in one bundle need different names.
    name = _name(f"hami-webhook authority {now:%Y-%m-%dT%H:%M:%S.%fZ}")
    builder = _builder(name, name, key.public_key(), now, now + AUTHORITY_LIFETIME)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    builder = builder.add_extension(identifier, critical=False)
    return Pair(builder.sign(key, hashes.SHA256()), key)


def new_certificate(authority: Pair, names: Iterable[str], now: datetime) -> Pair:
    """Return a server certificate for *names* that *authority* signed; it ends no later than the authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    end = min(now + CERTIFICATE_LIFETIME, authority.certificate.not_valid_after_utc)
    issuer, issuer_key = authority.certificate.subject, authority.key.public_key()
    builder = _builder(_name("hami-webhook"), issuer, key.public_key(), now, end)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key)
    builder = builder.add_extension(identifier, critical=False)
    alternative = x509.SubjectAlternativeName([_general_name(name) for name in names])
    builder = builder.add_extension(alternative, critical=False)
    return Pair(builder.sign(authority.key, hashes.SHA256()), key)


def names_of(certificate: x509.Certificate) -> Names:
    """Return the names that *certificate* is valid for."""
    try:
        alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    addresses = (str(address) for address in alternative.get_values_for_type(x509.IPAddress))
    return (*alternative.get_values_for_type(x509.DNSName), *addresses)


def problem(bundle: Bundle, certificate: x509.Certificate, names: Names, now: datetime) -> str | None:
    """
    Return why a client that trusts *bundle* rejects *certificate* for one of *names*; None if it accepts it.

    A certificate without a name is rejected.
    """
    if not bundle:
        return "signed by no trusted authority"
    if not names:
        return "without a name"
    builder = verification.PolicyBuilder().store(verification.Store(list(bundle))).time(now)
    for name in names:
        try:
            builder.build_server_verifier(_general_name(name)).verify(certificate, [])
        except (verification.VerificationError, ValueError) as error:
            return f"not valid for {name}: {error}"
    return None


def signers(bundle: Bundle, certificate: x509.Certificate, now: datetime) -> Bundle:
    """Return each authority of *bundle* that suffices for a client to accept *certificate* for all its names."""
    names = names_of(certificate)
    return tuple(authority for authority in bundle if problem((authority,), certificate, names, now) is None)


def is_two_thirds_over(certificate: x509.Certificate, now: datetime) -> bool:
    """Return whether at most a third of the validity of *certificate* is left."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= end - (end - begin) / 3


def bundle_pem(bundle: Bundle) -> bytes:
    """Return *bundle* as PEM, in its order."""
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in bundle)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATING)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> x509.DNSName | x509.IPAddress:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _public(key: object) -> bytes:
    assert hasattr(key, "public_bytes")
    found: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return found
