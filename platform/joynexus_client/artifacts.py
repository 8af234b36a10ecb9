"""Published files: policies, reports, films, recordings."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from joynexus_client.answers import Artifact, ArtifactKind
from joynexus_client.errors import Corrupted
from joynexus_client.transport import Transport


class Artifacts:
    """`client.artifacts`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, kind: ArtifactKind | None = None) -> Iterator[Artifact]:
        """Of all jobs, newest first; ``kind="adapter"`` lists the policies that further jobs may start from."""
        return self._transport.pages("/api/v1/artifacts", kind=kind, limit=200)

    def get(self, artifact_id: str) -> Artifact:
        artifact: Artifact = self._transport.get(f"/api/v1/artifacts/{artifact_id}")
        return artifact

    def keep(self, artifact_id: str, *, days: int | None) -> Artifact:
        """Say how long a file is kept: so many days from now, then it is deleted; None: until somebody deletes it.

        Raises ApiError 410 for one that is deleted.
        """
        artifact: Artifact = self._transport.patch(f"/api/v1/artifacts/{artifact_id}", {"keep_days": days})
        return artifact

    def delete(self, artifact_id: str) -> None:
        """Delete a file; again is harmless. Raises Conflict while a job that has not ended starts from it."""
        self._transport.delete(f"/api/v1/artifacts/{artifact_id}")

    def download(self, artifact_id: str, to: Path | str) -> Path:
        """Save the file as ``to``: whole and with the promised SHA-256, or not at all. Raises Corrupted."""
        target = Path(to)
        draft = target.with_name(f"{target.name}.{os.getpid()}.part")
        digest = hashlib.sha256()
        try:
            with self._transport.stream(f"/api/v1/artifacts/{artifact_id}/download") as response:
                promised = response.headers["X-Checksum-SHA256"]
                with draft.open("wb") as out:
                    for chunk in response.iter_bytes():
                        digest.update(chunk)
                        out.write(chunk)
            if digest.hexdigest() != promised:
                raise Corrupted(f"artifact {artifact_id}: SHA-256 {digest.hexdigest()}, promised {promised}")
            return draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
