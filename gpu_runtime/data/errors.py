"""Why a dataset, a selection of it or its statistics are refused."""

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
        self.code, self.message = code, message
        self.file, self.episode, self.frame, self.feature = file, episode, frame, feature
        place = [
            f"{name} {value}"
            for name, value in (("file", file), ("episode", episode), ("frame", frame), ("feature", feature))
            if value is not None
        ]
        super().__init__(f"{message} ({', '.join(place)})" if place else message)

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
