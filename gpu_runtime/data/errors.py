"""Why a dataset, a selection of it or its statistics are refused."""

from typing import Self

from gpu_runtime.protocol.schema import Defect


class DatasetError(ValueError):
    """A dataset cannot be read: carries a stable code and the place (file, episode, frame, feature)."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        file: str | None = None,
        episode: int | None = None,
        frame: int | None = None,
        feature: str | None = None,
    ) -> None:
        super().__init__(code, message)
        self.code, self.message = code, message
        self.file, self.episode, self.frame, self.feature = file, episode, frame, feature

    def __str__(self) -> str:
        place = [
            f"{name} {value}"
            for name in ("file", "episode", "frame", "feature")
            if (value := getattr(self, name)) is not None
        ]
        return f"{self.message} ({', '.join(place)})" if place else self.message

    def at(self, episode: int, frame: int, feature: str) -> Self:
        """The same error, placed at a frame by a caller who knows which one was being read."""
        self.episode, self.frame, self.feature = episode, frame, feature
        return self

    def to_defect(self, severity: str = "error") -> Defect:
        """The finding that validation reports for this error."""
        return Defect(
            severity=severity,
            code=self.code,
            message=self.message,
            file=self.file,
            episode=self.episode,
            frame=self.frame,
            feature=self.feature,
        )


class SelectionMismatch(DatasetError):
    """A job asks for a camera, state, action size or horizon that the dataset does not have."""


class ForeignStatistics(DatasetError):
    """Normalisation statistics that were not computed from this data, or not from data like it."""
