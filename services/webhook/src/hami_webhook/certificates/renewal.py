"""
Decide what the Secret of the webhook's certificate should hold, and which of it may be served.

`ca.crt` is the bundle that clients trust, `ca.key` the key of the authority that signs, `tls.crt` and `tls.key` the
certificate that is served. Missing and unusable entries are replaced. A new authority is first published beside the old
one, so at no time is a certificate served that no published authority signed.
Neighbours: `pki` makes and verifies, `certificate_loop` reads and writes.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from hami_webhook.certificates import pki
from hami_webhook.certificates.pki import Bundle, CertificateError, Names, Pair

OVERLAP = timedelta(hours=1)
"""How long a new authority is published before it signs, and an old one after its last certificate is replaced."""
AUTHORITIES_MAX = 8
"""Replicas that undo each other's writes, for example because of wrong clocks, must not fill the Secret."""


@dataclass(frozen=True, slots=True)
class Material:
    """The usable contents of a Secret."""

    bundle: Bundle = ()
    authority: Pair | None = None
    """The certificate of `bundle` that signs, and its key."""
    serving: Pair | None = None


@dataclass(frozen=True, slots=True)
class Renewal:
    """What the Secret should hold instead, and why."""

    material: Material
    reason: str


def read_material(data: Mapping[str, Any]) -> tuple[Material, tuple[str, ...]]:
    """
    Return what the `data` of a Secret holds, and a sentence for each entry that cannot be used.

    An entry that is absent or empty is no problem.
    """
    reader = _Reader(data)
    authorities, chain = reader.bundle("ca.crt"), reader.bundle("tls.crt")[:1]
    material = Material(authorities, reader.pair("ca.key", authorities), reader.pair("tls.key", chain))
    return material, tuple(reader.problems)


def secret_data(material: Material) -> dict[str, str]:
    """Return the entries of a Secret's `data` that hold *material*."""
    assert material.authority is not None
    assert material.serving is not None
    texts = {
        "ca.crt": pki.bundle_pem(material.bundle),
        "ca.key": material.authority.key_pem,
        "tls.crt": material.serving.certificate_pem,
        "tls.key": material.serving.key_pem,
    }
    return {name: base64.b64encode(text).decode() for name, text in texts.items()}


def renew(found: Material, held: Material, published: Bundle, names: Names, now: datetime) -> Renewal | None:
    """
    Return what the Secret should hold instead of *found*; None if it should stay.

    *held* is what this replica serves from, *published* what every client trusts, *names* the names of the server. A
    valid certificate stays until clients trust its successor. If the Secret lost it, it is taken from *held*.
    """
    reason = _authority_problem(found.authority, now)
    if reason is None:
        assert found.authority is not None
        authority = found.authority
        reason = _certificate_problem(found, authority, published, names, now)
        if reason is None:
            return _without_idle(found, authority, now)
        certificate = pki.new_certificate(authority, _names(found, names, now), now)
        bundle = _bundle(authority, (found, held), published, now)
        if pki.problem((authority.certificate,), certificate.certificate, names, now) is None:
            return Renewal(Material(bundle, authority, certificate), reason)
        reason = "certificates of the authority are not valid"
    authority = pki.new_authority(now)
    valid = next((material for material in (found, held) if _signers(material, now)), None)
    serving = valid.serving if valid else pki.new_certificate(authority, names, now)
    return Renewal(Material(_bundle(authority, (found, held), published, now), authority, serving), reason)


def is_servable(material: Material, published: Bundle, now: datetime) -> bool:
    """Return whether clients that trust *published* accept the certificate that *material* serves."""
    return bool(_signers(Material(published, None, material.serving), now))


@dataclass(slots=True)
class _Reader:
    """Reads the entries of a Secret's `data`, and collects the problems."""

    data: Mapping[str, Any]
    problems: list[str] = field(default_factory=list)

    def bundle(self, name: str) -> Bundle:
        """Return the certificates in the entry *name*."""
        text = self._text(name)
        try:
            return pki.read_bundle(text) if text else ()
        except CertificateError as error:
            self.problems.append(f"{name}: {error}")
            return ()

    def pair(self, name: str, candidates: Bundle) -> Pair | None:
        """Return the key in the entry *name*, with its certificate among *candidates*."""
        text = self._text(name)
        try:
            found = pki.pair_of(candidates, pki.read_key(text)) if text else None
        except CertificateError as error:
            self.problems.append(f"{name}: {error}")
            return None
        if text and candidates and found is None:
            self.problems.append(f"{name}: is the key of no certificate beside it")
        return found

    def _text(self, name: str) -> bytes:
        try:
            return base64.b64decode(self.data.get(name) or "", validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            self.problems.append(f"{name}: is not base64: {error}")
            return b""


def _authority_problem(authority: Pair | None, now: datetime) -> str | None:
    """Return why a new authority is needed; None if none is."""
    if authority is None:
        return "there is no authority with its key"
    if now < authority.certificate.not_valid_before_utc:
        return f"the authority is not valid before {authority.certificate.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}"
    if pki.is_two_thirds_over(authority.certificate, now):
        return f"the authority ends {authority.certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
    return None


def _certificate_problem(
    found: Material, authority: Pair, published: Bundle, names: Names, now: datetime
) -> str | None:
    """Return why *authority* should sign a new certificate; None if it should not."""
    signers = _signers(found, now)
    if not signers:
        return "there is no certificate that the authorities signed"
    problem = pki.problem(found.bundle, _served(found), names, now)
    if problem is not None:
        return f"the certificate is {problem}"
    if authority.certificate not in signers:
        settled = authority.certificate.not_valid_before_utc + pki.BACKDATING + OVERLAP
        return "the authority is new" if now >= settled and authority.certificate in published else None
    if pki.is_two_thirds_over(_served(found), now):
        return f"the certificate ends {_served(found).not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
    return None


def _without_idle(found: Material, authority: Pair, now: datetime) -> Renewal | None:
    """Return *found* without the authorities that no served certificate needs, once every replica could notice."""
    needed = _bundle(authority, (found,), (), now)
    settled = _served(found).not_valid_before_utc + pki.BACKDATING + OVERLAP
    if now < settled or set(needed) == set(found.bundle):
        return None
    return Renewal(Material(needed, authority, found.serving), "no served certificate needs the other authorities")


def _names(found: Material, names: Names, now: datetime) -> Names:
    """
    Return *names*, and the valid names of the present certificate unless it is due for renewal.

    Otherwise replicas with different names would replace each other's certificate for ever.
    """
    signers = _signers(found, now)
    if not signers or pki.is_two_thirds_over(_served(found), now):
        return names
    present = pki.names_of(_served(found))
    valid = (name for name in present if pki.problem(signers, _served(found), (name,), now) is None)
    return tuple(dict.fromkeys((*names, *valid)))


def _bundle(authority: Pair, materials: Iterable[Material], published: Bundle, now: datetime) -> Bundle:
    """Return *authority*, the signers of what *materials* serve, and the authorities of *published* that are valid."""
    signers = [signer for material in materials for signer in _signers(material, now)]
    valid = (other for other in published if other.not_valid_before_utc <= now < other.not_valid_after_utc)
    return tuple(dict.fromkeys((authority.certificate, *signers, *valid)))[:AUTHORITIES_MAX]


def _signers(material: Material, now: datetime) -> Bundle:
    """Return the authorities of *material* that signed the certificate it serves; none if it serves none."""
    return () if material.serving is None else pki.signers(material.bundle, _served(material), now)


def _served(material: Material) -> pki.Certificate:
    assert material.serving is not None
    return material.serving.certificate
