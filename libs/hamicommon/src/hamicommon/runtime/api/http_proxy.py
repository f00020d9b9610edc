"""
Which proxy leads to a URL, by the rules of Go's programs.

kubectl and every part of Kubernetes follow them, so one `NO_PROXY` is right for all. Python's own rules know no
networks, and send loopback to the proxy.
Source: https://pkg.go.dev/golang.org/x/net/http/httpproxy
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import unquote, urlsplit

_PORTS = {"http": 80, "https": 443}
_NETWORK = re.compile(r"[^/]*/[0-9]{1,9}")
_IP = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class _Server:
    """What a URL names, in lower case; *ip* is None for a name."""

    host: str
    port: str
    ip: _IP | None


def proxy_of(url: str, environment: Mapping[str, str]) -> str | None:
    """
    Return the URL of the proxy that *environment* names for *url*, None if it is reached directly.

    `HTTPS_PROXY` or `HTTP_PROXY` has the proxy, by the scheme of *url*, and `NO_PROXY` what needs none: addresses,
    networks, and domains with everything below them, each with a port if wanted. Names in capitals come first.
    `localhost` and loopback addresses need none in any case.

    >>> proxy_of("https://10.96.0.1", {"HTTPS_PROXY": "proxy:3128", "NO_PROXY": "192.168.0.0/16,.svc"})
    'http://proxy:3128'
    >>> proxy_of("https://10.96.0.1", {"HTTPS_PROXY": "proxy:3128", "NO_PROXY": "10.0.0.0/8"})
    """
    parts = urlsplit(url)
    proxy = _value(environment, f"{parts.scheme}_proxy") if parts.scheme in _PORTS else ""
    host = _ascii(_host(parts.netloc))
    if not proxy or host == "localhost":
        return None
    server = _Server(host.lower(), str(parts.port or _PORTS[parts.scheme]), _address(host.partition("%")[0]))
    if (server.ip is not None and server.ip.is_loopback) or _is_excluded(server, _value(environment, "no_proxy")):
        return None
    given = urlsplit(proxy) if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", proxy) else urlsplit(f"http://{proxy}")
    return given.geturl()


def _value(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name.upper()) or environment.get(name, "")


def _is_excluded(server: _Server, excluded: str) -> bool:
    """Return whether an entry of *excluded*, a value of NO_PROXY, names *server*."""
    entries = [entry.strip().lower() for entry in excluded.split(",")]
    return "*" in entries or any(_names(entry, server) for entry in entries if entry)


def _names(entry: str, server: _Server) -> bool:
    """Return whether one *entry* of NO_PROXY names *server*."""
    if _NETWORK.fullmatch(entry):
        try:
            return _contains(entry, server.ip)
        except ValueError:
            pass
    host, port = _split(entry)
    if not host or port not in {"", server.port}:
        return False
    ip = _address(host) if "%" not in host else None
    if ip is not None or server.ip is not None:
        return ip == server.ip
    host = _ascii(host.removeprefix("*") if host.startswith("*.") else host)
    return server.host.endswith(host if host.startswith(".") else f".{host}") or server.host == host


def _contains(entry: str, ip: _IP | None) -> bool:
    """
    Return whether the network *entry* has *ip*.

    Raises:
        ValueError: *entry* is no network.
    """
    network = ip_network(entry, strict=False)
    first, bits = network.network_address, network.prefixlen
    if isinstance(first, IPv6Address) and first.ipv4_mapped is not None:
        network = ip_network(f"{first.ipv4_mapped}/{bits - 96}")
    return ip is not None and ip.version == network.version and ip in network


def _split(entry: str) -> tuple[str, str]:
    """Return the host and the port of *entry* as Go's net.SplitHostPort; without a port, all of it is the host."""
    found = re.fullmatch(r"(?:\[([^\[\]]*)\]|([^:\[\]]*)):([^:\[\]]*)", entry)
    return (found[1] or found[2] or "", found[3]) if found else (entry, "")


def _host(netloc: str) -> str:
    """Return the host of a URL as it is written, without brackets."""
    place = netloc.rpartition("@")[2]
    host = place[1:].partition("]")[0] if place.startswith("[") else place.partition(":")[0]
    return unquote(host)


def _address(text: str) -> _IP | None:
    """Return the address *text* without the form that maps IPv4 into IPv6, None if it is a name."""
    try:
        ip = ip_address(text)
    except ValueError:
        return None
    return (ip.ipv4_mapped or ip) if isinstance(ip, IPv6Address) else ip


def _ascii(host: str) -> str:
    """Return *host* with other letters in DNS's form."""
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        return host
