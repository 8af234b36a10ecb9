"""Where webhooks may go: schemes, ports and addresses. Everything that is not plainly public is refused."""

import ipaddress
import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

Address = IPv4Address | IPv6Address
_PORT_OF_SCHEME = {"https": 443, "http": 80}
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
_RELAYS = ipaddress.ip_network("192.88.99.0/24")  # 6to4 relays: nobody's own address
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class Forbidden(Exception):
    """The platform does not send there. The text is a sentence for the endpoint's owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An endpoint's address in parts. ``host`` is a name in ASCII or a literal address without brackets."""

    scheme: str
    host: str
    port: int
    path: str  # with the query string

    @property
    def host_header(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return shown if self.port == _PORT_OF_SCHEME[self.scheme] else f"{shown}:{self.port}"


def target_of(url: str) -> Target:
    """Take an address apart. Raises Forbidden for schemes, ports, credentials and literal addresses not allowed."""
    parts = _split(url)
    if parts.scheme not in _PORT_OF_SCHEME or (parts.scheme == "http" and not settings.JOYNEXUS_WEBHOOK_ALLOW):
        raise Forbidden(f"the scheme {parts.scheme!r} is not allowed; allowed: https")
    if parts.username is not None or parts.password is not None:
        raise Forbidden("user name and password are not allowed in the address")
    if parts.fragment:
        raise Forbidden("a fragment is not allowed in the address")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not path.isascii() or not path.isprintable() or " " in path:
        raise Forbidden("the path must be percent-encoded ASCII")
    port = parts.port or _PORT_OF_SCHEME[parts.scheme]
    target = Target(scheme=parts.scheme, host=_host(parts.hostname), port=port, path=path)
    if (literal := _literal(target.host)) is not None:
        require_allowed(target, literal)
    elif port not in settings.JOYNEXUS_WEBHOOK_PORTS and not settings.JOYNEXUS_WEBHOOK_ALLOW:
        raise Forbidden(_port_sentence(port))
    return target


def resolve(target: Target) -> list[Address]:
    """Addresses of the target's host, asked for once. Raises OSError, UnicodeError for names that have none."""
    literal = _literal(target.host)
    if literal is not None:
        return [literal]
    found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ipaddress.ip_address(str(item[4][0]).partition("%")[0]) for item in found))


def require_allowed(target: Target, address: Address) -> None:
    """Raises Forbidden unless the target may be reached at this address, on its port and with its scheme."""
    if is_opened(address):
        return
    if target.scheme != "https":
        raise Forbidden("only https is allowed")
    if target.port not in settings.JOYNEXUS_WEBHOOK_PORTS:
        raise Forbidden(_port_sentence(target.port))
    if not is_public(address):
        raise Forbidden("its address is not a public one")


def is_opened(address: Address) -> bool:
    """Whether an operator has opened the network of this very address (never of one that it stands for)."""
    return any(address in network for network in settings.JOYNEXUS_WEBHOOK_ALLOW)


def is_public(address: Address) -> bool:
    """A unicast address of the public internet, and not one that stands for an IPv4 address of another kind."""
    if isinstance(address, IPv6Address):
        carried = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        if address in _NAT64:
            carried.append(IPv4Address(int(address) & 0xFFFFFFFF))
        inner = [item for item in carried if item is not None]
        if inner:
            return False  # tunnels and mappings: nobody publishes a service under such an address
        if address not in _GLOBAL_UNICAST:
            return False
    elif address in _RELAYS:
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def _split(url: str) -> SplitResult:
    if not url.isprintable() or " " in url:  # the standard parser drops line breaks silently
        raise Forbidden("spaces and control characters are not allowed in the address")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise Forbidden(f"it is no address: {error}") from None
    return parts


def _host(name: str | None) -> str:
    """In lower case and ASCII. Raises Forbidden for names that DNS cannot hold."""
    if not name:
        raise Forbidden("the host is missing")
    try:
        host = name.encode("ascii" if ":" in name else "idna").decode().lower().rstrip(".")
    except UnicodeError:
        raise Forbidden(f"the host {name[:100]!r} is no name") from None
    if not host or "%" in host or not all(part.isalnum() or part in "-._:" for part in host):
        raise Forbidden(f"the host {name[:100]!r} is no name")
    return host


def _literal(host: str) -> Address | None:
    """The address that a host spells, in any of the spellings that resolvers take (127.1, 0x7f000001)."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def _port_sentence(port: int) -> str:
    allowed = ", ".join(map(str, sorted(settings.JOYNEXUS_WEBHOOK_PORTS)))
    return f"the port {port} is not allowed; allowed: {allowed}"
