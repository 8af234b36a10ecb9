"""What a frozen feature is called: never a hash of pixels, which would cost more than reading the feature."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameKey:
    """One frame of a dataset version, as one policy's prefix sees it.

    ``prefix`` is the hash of the prefix signature: base, revision, precision, prompt, image processing, cameras with
    their sizes, query tokens and taps. Two keys that are equal have equal features.
    """

    dataset: str  # the version's id and the fingerprint of its files
    episode: int
    frame: int
    prefix: str
    instruction: str


def dataset_name(version_id: str, fingerprint: str) -> str:
    """The name of a dataset version in keys: a version whose files were replaced is another one."""
    return f"{version_id}@{fingerprint}"
