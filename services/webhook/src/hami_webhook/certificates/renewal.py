"""
Decide what the Secret of the webhook's certificate should hold, and what of it may be served.

`ca.crt` is the bundle that clients are told to trust, `ca.key` the key of the authority that signs, `tls.crt` and
`tls.key` what is served. Whatever is missing or cannot be used is made anew. A change of the authority passes through a
bundle of both, so that at no time anything is served that nobody vouches for.
Knows no clock, no API and no log. Neighbours: `pki` makes and checks, `certificate_loop` reads and writes.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from hami_webhook.certificates import pki
from hami_webhook.certificates.pki import Bundle, CertificateError, Names, Pair

OVERLAP = timedelta(hours=1)
"""How long a new authority is published before it signs, and an old one after nothing it signed is served any more."""
AUTHORITIES_MAX = 8
"""Replicas that undo each other's work, say by wrong clocks, must not fill the Secret."""


@dataclass(frozen=True, slots=True)
class Material:
    """What a Secret holds, as far as it can be read."""

    bundle: Bundle = ()
    authority: Pair | None = None
    """The certificate of `bundle` that signs, and its key."""
    serving: Pair | None = None


@dataclass(frozen=True, slots=True)
class Renewal:
    """What the Secret should hold instead."""

    material: Material
    reason: str


def read_material(data: Mapping[str, Any]) -> tuple[Material, tuple[str, ...]]:
    """
    Return what the `data` of a Secret holds, and a sentence for each entry that is there and cannot be used.

    An entry that is absent or empty is no fault.
    """
    faults: list[str] = []

    def read(name: str) -> bytes:
        try:
            return base64.b64decode(data.get(name) or "", validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            faults.append(f"{name}: is not base64: {error}")
            return b""

    def bundle(name: str) -> Bundle:
        try:
            return pki.read_bundle(text) if (text := read(name)) else ()
        except CertificateError as error:
            faults.append(f"{name}: {error}")
            return ()

    def pair(name: str, candidates: Bundle) -> Pair | None:
        try:
            found = pki.pair_of(candidates, pki.read_key(text)) if (text := read(name)) else None
        except CertificateError as error:
            faults.append(f"{name}: {error}")
            return None
        if text and candidates and found is None:
            faults.append(f"{name}: is the key of no certificate beside it")
        return found

    authorities, chain = bundle("ca.crt"), bundle("tls.crt")[:1]
    return Material(authorities, pair("ca.key", authorities), pair("tls.key", chain)), tuple(faults)


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
    Return what the Secret should hold in the place of *found*, None when it should stay.

    *held* is what this replica serves from, *published* what every client trusts, *names* what the server is called.
    A certificate that is good stays until what replaces it is trusted; from *held* if the Secret lost it.
    """
    reason = _authority_is_wanting(found.authority, now)
    if reason is None:
        assert found.authority is not None
        authority = found.authority
        reason = _certificate_is_wanting(found, authority, published, names, now)
        if reason is None:
            return _without_idle(found, authority, now)
        certificate = pki.new_certificate(authority, _names(found, names, now), now)
        bundle = _bundle(authority, (found, held), published, now)
        if pki.objection((authority.certificate,), certificate.certificate, names, now) is None:
            return Renewal(Material(bundle, authority, certificate), reason)
        reason = "what the authority signs is not valid"
    authority = pki.new_authority(now)
    good = next((material for material in (found, held) if _vouchers(material, now)), None)
    serving = good.serving if good else pki.new_certificate(authority, names, now)
    return Renewal(Material(_bundle(authority, (found, held), published, now), authority, serving), reason)


def is_servable(material: Material, published: Bundle, now: datetime) -> bool:
    """Return whether clients who trust *published* accept what *material* serves."""
    return bool(_vouchers(Material(published, None, material.serving), now))


def _authority_is_wanting(authority: Pair | None, now: datetime) -> str | None:
    """Return why there should be another authority."""
    if authority is None:
        return "there is no authority with its key"
    if now < authority.certificate.not_valid_before_utc:
        return f"the authority begins {authority.certificate.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ} only"
    if pki.is_two_thirds_over(authority.certificate, now):
        return f"the authority ends {authority.certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
    return None


def _certificate_is_wanting(
    found: Material, authority: Pair, published: Bundle, names: Names, now: datetime
) -> str | None:
    """Return why *authority* should sign another certificate."""
    signers = _vouchers(found, now)
    if not signers:
        return "there is no certificate that the authorities vouch for"
    refused = pki.objection(found.bundle, _shown(found), names, now)
    if refused is not None:
        return f"the certificate is {refused}"
    if authority.certificate not in signers:
        settled = authority.certificate.not_valid_before_utc + pki.BACKDATING + OVERLAP
        return "the authority is new" if now >= settled and authority.certificate in published else None
    if pki.is_two_thirds_over(_shown(found), now):
        return f"the certificate ends {_shown(found).not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
    return None


def _without_idle(found: Material, authority: Pair, now: datetime) -> Renewal | None:
    """Return *found* without the authorities that nothing served needs, once every replica had time to notice."""
    needed = _bundle(authority, (found,), (), now)
    settled = _shown(found).not_valid_before_utc + pki.BACKDATING + OVERLAP
    if now < settled or set(needed) == set(found.bundle):
        return None
    return Renewal(Material(needed, authority, found.serving), "nothing served needs the other authorities")


def _names(found: Material, names: Names, now: datetime) -> Names:
    """
    Return *names* and the good ones that the certificate has, unless its time is over.

    Replicas that were given different names would replace each other's certificate for ever otherwise.
    """
    signers = _vouchers(found, now)
    if not signers or pki.is_two_thirds_over(_shown(found), now):
        return names
    present = pki.names_of(_shown(found))
    good = (name for name in present if pki.objection(signers, _shown(found), (name,), now) is None)
    return tuple(dict.fromkeys((*names, *good)))


def _bundle(authority: Pair, materials: Iterable[Material], published: Bundle, now: datetime) -> Bundle:
    """Return *authority*, those that vouch for what *materials* serve, and those *published* that are in time."""
    vouchers = [voucher for material in materials for voucher in _vouchers(material, now)]
    in_time = (other for other in published if other.not_valid_before_utc <= now < other.not_valid_after_utc)
    return tuple(dict.fromkeys((authority.certificate, *vouchers, *in_time)))[:AUTHORITIES_MAX]


def _vouchers(material: Material, now: datetime) -> Bundle:
    """Return those authorities of *material* that vouch for what it serves; none where it serves nothing."""
    return () if material.serving is None else pki.vouchers(material.bundle, _shown(material), now)


def _shown(material: Material) -> pki.Certificate:
    assert material.serving is not None
    return material.serving.certificate
