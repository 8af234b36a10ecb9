"""What the environment says about the outside world: proxies in front of us, webhooks to others, who may scrape."""

import os
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path

from cryptography.fernet import Fernet

from control_plane.conf.environment import is_production, secret, state_dir

_WEBHOOK_PORTS = "443,8443"


def names(name: str, default: str = "") -> list[str]:
    """The comma-separated values of a variable."""
    return [part.strip() for part in os.environ.get(name, default).split(",") if part.strip()]


def networks(name: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Networks in CIDR notation. Raises RuntimeError naming the first that is none."""
    found = []
    for text in names(name):
        try:
            found.append(ip_network(text))
        except ValueError as error:
            raise RuntimeError(f"{name}: {text!r}: {error}; allowed: networks like 10.0.0.0/8") from error
    return tuple(found)


def webhook_ports() -> frozenset[int]:
    """Ports that webhooks may be sent to (``JOYNEXUS_WEBHOOK_PORTS``)."""
    ports = names("JOYNEXUS_WEBHOOK_PORTS", _WEBHOOK_PORTS)
    if not all(port.isascii() and port.isdigit() and 0 < int(port) < 65536 for port in ports):
        raise RuntimeError(f"JOYNEXUS_WEBHOOK_PORTS: {','.join(ports)!r}; allowed: numbers of 1 to 65535")
    return frozenset(int(port) for port in ports)


def webhook_keys() -> list[str]:
    """Fernet keys of the webhooks' secrets, the newest first (``JOYNEXUS_WEBHOOK_KEYS``).

    Without the variable: those of the secret file ``webhook-keys``, one a line, made at the first start.
    """
    keys = names("JOYNEXUS_WEBHOOK_KEYS")
    keys = keys or secret("webhook-keys", lambda: Fernet.generate_key().decode()).split()
    for number, key in enumerate(keys, 1):
        try:
            Fernet(key)
        except ValueError as error:
            raise RuntimeError(f"webhook key {number} is no Fernet key: {error}") from error
    return keys


def webhook_ca_file() -> str | None:
    """Further certificate authorities that webhooks' receivers may use (``JOYNEXUS_WEBHOOK_CA_FILE``)."""
    path = os.environ.get("JOYNEXUS_WEBHOOK_CA_FILE")
    if path and not Path(path).is_file():
        raise RuntimeError(f"JOYNEXUS_WEBHOOK_CA_FILE: {path!r} is no file")
    return path or None


def metrics_token() -> str:
    """What a scraper of /metrics shows (``JOYNEXUS_METRICS_TOKEN``), else the secret file ``metrics-token``."""
    return os.environ.get("JOYNEXUS_METRICS_TOKEN") or secret("metrics-token")


def metrics_dir() -> Path:
    """The folder that web processes count requests in; prometheus_client reads its variable when it is imported."""
    path = state_dir() / "metrics"
    path.mkdir(exist_ok=True)
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(path)
    return path


def proxy_ssl_header() -> tuple[str, str] | None:
    """The header by which a proxy says that its caller came over TLS (``JOYNEXUS_PROXY_SSL_HEADER``).

    For example ``X-Forwarded-Proto``. Name it only if the proxy sets or removes it in every request.
    """
    header = os.environ.get("JOYNEXUS_PROXY_SSL_HEADER", "")
    return ("HTTP_" + header.upper().replace("-", "_"), "https") if header else None


def hsts_preload() -> bool:
    """Whether browsers may be shipped with "TLS only" for this host (``JOYNEXUS_HSTS_PRELOAD=1``): hard to undo."""
    return is_production() and os.environ.get("JOYNEXUS_HSTS_PRELOAD") == "1"
