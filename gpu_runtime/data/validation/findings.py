"""The defects found so far, and the net that turns any exception into one."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from gpu_runtime.data.errors import DatasetError
from gpu_runtime.protocol.schema import Defect

Place = dict[str, str | int | None]
"""Where a finding is: any of file, episode, frame, feature."""

PER_CODE_MAX = 20  # a dataset with one broken column has as many findings as episodes: the first ones tell
MESSAGE_MAX = 500


class Findings:
    """Collects defects; beyond ``PER_CODE_MAX`` of one code they are only counted."""

    def __init__(self) -> None:
        self._defects: list[Defect] = []
        self._counts: Counter[str] = Counter()
        self._broken: set[tuple[int | None, str | None]] = set()

    def error(self, code: str, message: str, **place: str | int | None) -> None:
        """A finding that refuses the dataset. ``place``: file, episode, frame, feature."""
        self._add(Defect.model_validate({"severity": "error", "code": code, "message": message, **place}))

    def warning(self, code: str, message: str, **place: str | int | None) -> None:
        """A finding that is shown and kept."""
        self._add(Defect.model_validate({"severity": "warning", "code": code, "message": message, **place}))

    @contextmanager
    def guard(self, file: str, **place: str | int | None) -> Iterator[None]:
        """Turn whatever is raised inside into an error that names at least ``file``."""
        try:
            yield
        except DatasetError as error:
            found = error.to_defect()
            known = {name: value for name, value in found.model_dump().items() if value is not None}
            self._add(Defect.model_validate({"file": file, **place, **known}))
        except MemoryError:
            self.error("memory_limit", f"reading {file} needs more memory than allowed", file=file, **place)
        except Exception as error:
            self.error("unreadable", f"{file} cannot be read: {type(error).__name__}: {error}", file=file, **place)

    def is_broken(self, episode: int, *features: str) -> bool:
        """Whether an error named one of these features of the episode: its consequences need no finding each."""
        return any((episode, feature) in self._broken for feature in features)

    def _add(self, defect: Defect) -> None:
        self._counts[defect.code] += 1
        if defect.severity == "error":
            self._broken.add((defect.episode, defect.feature))
        if self._counts[defect.code] <= PER_CODE_MAX:
            texts = {name: _storable(getattr(defect, name)) for name in ("message", "file", "feature")}
            self._defects.append(defect.model_copy(update=texts))

    @property
    def has_errors(self) -> bool:
        return any(defect.severity == "error" for defect in self._defects)

    def has(self, code: str) -> bool:
        return self._counts[code] > 0

    def defects(self) -> tuple[Defect, ...]:
        """Errors first, each kind in the order found; a last line counts what was left out."""
        left_out = [
            Defect(severity="warning", code="more_defects", message=f"{count - PER_CODE_MAX} more of {code}")
            for code, count in self._counts.items()
            if count > PER_CODE_MAX
        ]
        return tuple(sorted(self._defects, key=lambda defect: defect.severity != "error")) + tuple(left_out)


def _storable(text: str | None) -> str | None:
    """File names and messages may hold anything; a report must survive JSON and a database."""
    if text is None:
        return None
    return text[:MESSAGE_MAX].replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
