"""What exactly was validated: one hash over every file of a dataset."""

import hashlib
from pathlib import Path

_BLOCK_BYTES = 2**20


def dataset_fingerprint(root: Path, files: list[str]) -> str:
    """SHA-256 over path, size and content of every file, in path order; independent of times and owners."""
    digest = hashlib.sha256()
    for relative in sorted(files):
        path = root / relative
        digest.update(f"{relative}\0{path.stat().st_size}\0".encode("utf-8", "surrogateescape"))
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    return digest.hexdigest()
