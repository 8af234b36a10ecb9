"""Datasets: upload recordings, wait for their validation."""

import contextlib
import json
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from joynexus_client.answers import Version
from joynexus_client.errors import Invalid, Timeout
from joynexus_client.sending import CHUNK_BYTES, Progress, Sending, send_in_chunks
from joynexus_client.transport import Transport

_POLL_S = 0.5


class Datasets:
    """`client.datasets`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def upload(
        self,
        path: Path | str,
        name: str,
        declared: dict[str, Any] | None = None,
        *,
        derived_from: str | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        on_progress: Progress | None = None,
    ) -> Version:
        """Send a LeRobot dataset, a folder or a zip of one, as the next version of ``name``.

        ``declared`` says what the files do not: action representation, gripper convention, camera rotations;
        ``derived_from`` is the version it was made from. What is larger than ``chunk_bytes`` is sent in chunks and
        goes on after a lost connection; after an Unreachable, or in another process, the same call goes on where it
        stopped. ``on_progress`` gets the bytes that arrived and those there are.
        Returns at once; `wait_ready` waits for the validation. Raises FileNotFoundError, Invalid, Conflict.
        """
        with _archive(Path(path)) as archive:
            what = Sending(archive=archive, name=name, declared=declared, derived_from=derived_from)
            if what.size_bytes > chunk_bytes:
                return send_in_chunks(self._transport, what, chunk_bytes=chunk_bytes, on_progress=on_progress)
            version = self._send_whole(what)
            if on_progress is not None:
                on_progress(what.size_bytes, what.size_bytes)
            return version

    def _send_whole(self, what: Sending) -> Version:
        headers = {
            "Content-Type": "application/zip",
            "Content-Length": str(what.size_bytes),
            "X-Content-SHA256": what.sha256,
        }
        version: Version = self._transport.send_file(
            "/api/v1/datasets",
            lambda: what.archive.open("rb"),
            headers=headers,
            name=what.name,
            declared=None if what.declared is None else json.dumps(what.declared),
            derived_from=what.derived_from,
        )
        return version

    def list(self) -> list[dict[str, Any]]:
        """Every dataset with its versions, newest first."""
        return [*self._transport.pages("/api/v1/datasets", limit=200)]

    def version(self, version_id: str) -> Version:
        version: Version = self._transport.get(f"/api/v1/dataset-versions/{version_id}")
        return version

    def wait_ready(self, version_id: str, *, timeout_s: float = 600.0) -> Version:
        """Wait until a version is validated. Raises Invalid with the defects found, or Timeout."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            version = self.version(version_id)
            if version["state"] == "ready":
                return version
            if version["state"] == "invalid":
                raise Invalid(422, _refusal(version))
            if time.monotonic() >= deadline_s:
                raise Timeout(f"dataset version {version_id} is still {version['state']} after {timeout_s:g} s")
            time.sleep(_POLL_S)


def _refusal(version: Version) -> dict[str, Any]:
    """The validation report in the form of the API's own refusals."""
    defects = (version["report"] or {}).get("defects", [])
    errors = [
        {"pointer": defect.get("file") or "", "code": defect["code"], "detail": defect["message"] + _place(defect)}
        for defect in defects
        if defect["severity"] == "error"
    ]
    return {"type": "dataset-invalid", "detail": version["reason"], "errors": errors}


def _place(defect: dict[str, Any]) -> str:
    """Where in its file a defect is, as far as the report knows."""
    known = [f"{name} {defect[name]}" for name in ("episode", "frame", "feature") if defect.get(name) is not None]
    return f" ({', '.join(known)})" if known else ""


@contextlib.contextmanager
def _archive(path: Path) -> Iterator[Path]:
    """The zip to send: the file itself, or a folder packed without compression (videos have theirs)."""
    if path.is_file():
        yield path
        return
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: neither a folder nor a zip file")
    with tempfile.TemporaryDirectory(prefix="joynexus-upload-") as folder:
        target = Path(folder) / "dataset.zip"
        with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
            for file in sorted(path.rglob("*")):
                if file.is_file():
                    archive.write(file, file.relative_to(path).as_posix())
        yield target
