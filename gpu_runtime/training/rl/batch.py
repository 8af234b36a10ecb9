"""One batch of chunks as an update takes it, and its payload as arrays.

Shapes: N chunks, C executed actions per chunk, A action dims, S state dims; images uint8 [N, H, W, 3].
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.models.observations import Observations
from gpu_runtime.training.rl.errors import RolloutMismatch

KIND = "rl"  # in a payload's metadata: which kind of batch it holds
_IMAGE, _TRACE = "image.", "trace."
_OPTIONAL = ("state", "value", "progress", "returns")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RlBatch:
    """N chunks in one row each; none is legal: there was nothing to learn from. Raises RolloutMismatch."""

    images: tuple[np.ndarray, ...] = ()  # one per view
    instructions: tuple[str, ...] = ()
    state_NS: np.ndarray | None = None  # raw units
    handles: tuple[str, ...] = ()  # of the prefix features; "": not kept
    trace: Mapping[str, np.ndarray] = field(default_factory=dict)  # [N, ...]; log_prob [N, C, A] as rolled out
    value_N: np.ndarray | None = None  # the critic's, as rolled out
    progress_N: np.ndarray | None = None
    advantage_N: np.ndarray
    returns_N: np.ndarray | None = None
    mask_NC: np.ndarray  # executed steps of the groups that were kept
    version_N: np.ndarray  # int64: policy version that acted
    episode_N: np.ndarray  # int64
    statistics: Mapping[str, float] = field(default_factory=dict)  # of the advantages, for the update's metrics
    told: Mapping[str, float] = field(default_factory=dict)  # of its rollout, by full name: told once it is learned

    def __post_init__(self) -> None:
        lengths = {name: len(array) for name, array in _arrays(self).items()}
        lengths |= {"instructions": len(self.instructions), "handles": len(self.handles)}
        if bad := [name for name, length in lengths.items() if length != len(self)]:
            raise RolloutMismatch(f"{bad[0]}: {lengths[bad[0]]} rows, allowed: {len(self)} as there are advantages")

    def __len__(self) -> int:
        return len(self.advantage_N)

    def features(self, query_tokens: int) -> list[VLAFeature]:
        """Every chunk's observation as a backbone sees it."""
        return [self.feature(row, query_tokens) for row in range(len(self))]

    def feature(self, row: int, query_tokens: int) -> VLAFeature:
        """One chunk's observation."""
        return VLAFeature(
            images=tuple(view[row] for view in self.images),
            instruction=self.instructions[row],
            query_tokens=query_tokens,
        )

    def observations(self, rows: Sequence[int]) -> Observations:
        """What was seen in these rows, copied."""
        chosen = list(rows)
        return Observations(
            images=tuple(view[chosen] for view in self.images),
            instructions=tuple(self.instructions[row] for row in chosen),
            state_NS=None if self.state_NS is None else self.state_NS[chosen],
        )


def empty_batch(executed_steps: int = 0, statistics: Mapping[str, float] | None = None) -> RlBatch:
    """A batch there is nothing to learn from."""
    none = np.zeros(0, np.int64)
    return RlBatch(
        advantage_N=np.zeros(0, np.float32),
        mask_NC=np.zeros((0, executed_steps), bool),
        version_N=none,
        episode_N=none,
        statistics=dict(statistics or {}),
    )


def pack_rl_batch(batch: RlBatch) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """(arrays, metadata) of one partition. Equal texts are stored once."""
    texts = sorted(set(batch.instructions))
    places = {text: index for index, text in enumerate(texts)}
    arrays = _arrays(batch) | {"text": np.array([places[text] for text in batch.instructions], np.int64)}
    metadata = {
        "kind": KIND,
        "texts": json.dumps(texts),
        "handles": json.dumps(batch.handles),
        "statistics": json.dumps(dict(batch.statistics)),
        "told": json.dumps(dict(batch.told)),
    }
    return arrays, metadata


def unpack_rl_batch(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> RlBatch:
    """The batch that ``pack_rl_batch`` took apart. Raises KeyError naming what is missing, or RolloutMismatch."""
    if metadata.get("kind") != KIND:
        raise RolloutMismatch(f"payload: kind {metadata.get('kind', 'sft')!r}, allowed: {KIND!r}")
    texts = json.loads(metadata["texts"])
    return RlBatch(
        images=tuple(arrays[name] for name in sorted(arrays) if name.startswith(_IMAGE)),
        instructions=tuple(texts[index] for index in arrays["text"]),
        state_NS=arrays.get("state"),
        handles=tuple(json.loads(metadata["handles"])),
        trace={name.removeprefix(_TRACE): array for name, array in arrays.items() if name.startswith(_TRACE)},
        value_N=arrays.get("value"),
        progress_N=arrays.get("progress"),
        advantage_N=arrays["advantage"],
        returns_N=arrays.get("returns"),
        mask_NC=arrays["mask"],
        version_N=arrays["version"],
        episode_N=arrays["episode"],
        statistics=json.loads(metadata["statistics"]),
        told=json.loads(metadata["told"]),
    )


def stacked(parts: Sequence[np.ndarray | float | None], name: str) -> np.ndarray | None:
    """One array of all rows' parts; None where no row has one. Raises RolloutMismatch when only some have."""
    present = [part for part in parts if part is not None]
    if not present:
        return None
    if len(present) != len(parts) or len({np.shape(part) for part in present}) > 1:
        raise RolloutMismatch(f"{name}: some decisions differ in having it or in its shape, allowed: all alike")
    return np.stack(present)


def _arrays(batch: RlBatch) -> dict[str, np.ndarray]:
    optional = dict(zip(_OPTIONAL, (batch.state_NS, batch.value_N, batch.progress_N, batch.returns_N), strict=True))
    arrays = {f"{_IMAGE}{view:02d}": image for view, image in enumerate(batch.images)}
    arrays |= {f"{_TRACE}{name}": array for name, array in batch.trace.items()}
    arrays |= {name: array for name, array in optional.items() if array is not None}
    return arrays | {
        "advantage": batch.advantage_N,
        "mask": batch.mask_NC,
        "version": batch.version_N,
        "episode": batch.episode_N,
    }
