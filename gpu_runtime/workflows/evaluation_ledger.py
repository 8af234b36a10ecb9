"""Episodes that have ended, one line each on disk: what a resumed evaluation does not play again."""

import os
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from gpu_runtime.protocol.base import Message
from gpu_runtime.protocol.messages import ArtifactPublished
from gpu_runtime.store.files import sync_folder
from gpu_runtime.workflows.evaluation_witness import Played


class LedgerLine(Message):
    """``protocol_hash`` says under which protocol it was played; ``video`` is its film as it was published."""

    environment: str
    protocol_hash: str
    played: Played
    video: ArtifactPublished | None = None


class EpisodeLedger:
    """``path`` grows by a line per episode. Every method blocks on the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self) -> bool:
        """True when it was begun before: by a process that did not come to the end. Raises OSError."""
        if self._path.exists():
            return True
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.touch()
        sync_folder(self._path.parent)
        return False

    def read(self) -> list[LedgerLine]:
        """Every whole line, in the order in which the episodes ended. A torn last one is cut off: it is played again.

        ``begin`` comes first. Raises OSError.
        """
        data = self._path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            with self._path.open("rb+") as file:
                file.truncate(len(whole))
                os.fsync(file.fileno())
        return list(_lines(whole.splitlines()))

    def append(self, line: LedgerLine) -> None:
        """Return when it is on disk; ``begin`` comes first. Raises OSError."""
        with self._path.open("ab") as file:
            begin = file.tell()
            try:
                file.write(line.model_dump_json().encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                file.truncate(begin)  # so that trying again does not add to half a line
                raise


def _lines(texts: Iterable[bytes]) -> Iterable[LedgerLine]:
    """A line of another version of this program says nothing."""
    for text in texts:
        try:
            yield LedgerLine.model_validate_json(text)
        except ValidationError:
            continue
