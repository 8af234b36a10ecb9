"""Which revision of the static files this is: their content decides, so two processes agree without talking."""

import hashlib
from functools import cache
from importlib.metadata import version

from control_plane.conf.environment import REPOSITORY

_PACKAGES_WITH_FILES = ("django", "plotly", "drf-spectacular-sidecar")
_FOLDERS = ("frontend/static", "platform/control_plane/static")


@cache
def static_revision() -> str:
    """Twelve hexadecimal digits over our own files and the versions of the packages that bring theirs."""
    digest = hashlib.sha256()
    for name in _PACKAGES_WITH_FILES:
        digest.update(f"{name}={version(name)};".encode())
    for folder in (REPOSITORY / name for name in _FOLDERS):
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()[:12]
