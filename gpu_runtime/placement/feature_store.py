"""The store of demonstrations' features as an operator configured it, and what is told of all that is kept."""

from collections.abc import Iterable

from gpu_runtime.features.store import FeatureStore
from gpu_runtime.models.backbones.base import Backbone
from gpu_runtime.protocol.messages import FeatureStoreStatus, VisionReuseStatus
from gpu_runtime.services.config import RuntimeConfig
from gpu_runtime.training.frames import StagingRoom

STAGED_SHARE = 2
"""Half of the memory is for rows that wait for their step, so that both together stay within the setting."""


def build_features(config: RuntimeConfig, device: str) -> tuple[FeatureStore | None, StagingRoom]:
    """The store, None when nothing may be kept, and the room for rows that are taken ahead."""
    staged_bytes = config.feature_store_ram_bytes // STAGED_SHARE
    room = StagingRoom(staged_bytes)
    if not config.feature_store_ram_bytes and not config.feature_store_file_bytes:
        return None, room
    store = FeatureStore(
        config.state / "features",
        ram_bytes=config.feature_store_ram_bytes - staged_bytes,
        file_bytes=config.feature_store_file_bytes,
        dtype=config.feature_store_dtype,
        device=device,
        min_free_bytes=config.min_free_bytes,
    )
    return store, room


def features_status(store: FeatureStore) -> FeatureStoreStatus:
    """What the runtime tells of the store."""
    now = store.status()
    return FeatureStoreStatus(
        hits=now.hits,
        misses=now.misses,
        ram_bytes=now.ram_bytes,
        file_bytes=now.file_bytes,
        entries=now.entries,
        versions=tuple(sorted(store.versions())),
        problem=now.problem,
    )


def vision_status(bases: Iterable[Backbone]) -> VisionReuseStatus | None:
    """What the runtime tells of pictures seen again, of all bases together; None when none keeps any."""
    counts = [found for base in bases if (found := base.vision_counts) is not None]
    if not counts:
        return None
    return VisionReuseStatus(
        hits=sum(own.hits for own in counts),
        misses=sum(own.misses for own in counts),
        bytes=sum(own.live_bytes for own in counts),
    )
