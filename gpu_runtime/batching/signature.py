"""What must be equal for a policy's prefix features to be the same, and for two requests to share a forward."""

from dataclasses import asdict, dataclass

from gpu_runtime.protocol.base import fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageView:
    """One view as the policy sees it: dataset key, pixels after resizing, rotation applied to make it upright."""

    key: str
    height: int
    width: int
    rotation_deg: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixSignature:
    """The whole prefix contract of one policy. Its hash goes into manifests; loading fails closed on another one."""

    base: str
    revision: str
    dtype: str
    attention: str
    prompt_template: str
    image_processing: str
    views: tuple[ImageView, ...]  # in prompt order
    query_tokens: int
    taps: tuple[str, ...]  # sorted
    adapter: str = ""  # identity of the low-rank updates that the features are made with; none: the base as it is

    def to_json(self) -> dict[str, object]:
        fields = asdict(self) | {"views": [asdict(view) for view in self.views], "taps": list(self.taps)}
        if not self.adapter:
            del fields["adapter"]  # a prefix without one hashes as it did before there were any
        return fields

    @classmethod
    def from_json(cls, value: dict[str, object]) -> "PrefixSignature":
        """Inverse of ``to_json``. Raises TypeError naming an unknown or missing field."""
        views = tuple(ImageView(**view) for view in value["views"])  # type: ignore[attr-defined]
        return cls(**value | {"views": views, "taps": tuple(value["taps"])})  # type: ignore[arg-type,call-overload]

    @property
    def hash(self) -> str:
        """SHA-256; equal signatures have equal hashes."""
        return fingerprint(self.to_json())

    def difference(self, other: "PrefixSignature") -> list[str]:
        """Names of the fields that differ, for the error that refuses an adapter."""
        return [name for name in self.__slots__ if getattr(self, name) != getattr(other, name)]


def group_key(*, base: str, revision: str, dtype: str) -> str:
    """The compatibility class of the scheduler: whoever shares it may share a packed forward.

    Cameras, prompt lengths, query tokens and taps are left out: packing lets them differ inside one forward.
    """
    return f"{base}@{revision[:16]}:{dtype}"
