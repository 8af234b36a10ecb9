"""What a real runtime tells of the features and pictures it keeps."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from gpu_runtime.placement.local import load_bases
from gpu_runtime.protocol.messages import VisionReuseStatus
from tests.support.backbones import random_feature
from tests.support.demonstrations import bind, make_dataset
from tests.support.runtime import ended, make_config, running, submit_message


async def test_a_runtime_tells_of_the_features_it_keeps_and_one_that_keeps_none_tells_nothing(tmp_path: Path) -> None:
    datasets = tmp_path / "datasets"
    datasets.mkdir()
    submit = submit_message(bind(datasets, make_dataset(datasets / "one")), steps=4)
    config = make_config(tmp_path / "state", datasets)
    async with running(config) as runtime:
        fresh = runtime.status().feature_store
        assert fresh is not None
        assert (fresh.hits, fresh.misses, fresh.entries, fresh.ram_bytes, fresh.problem) == (0, 0, 0, 0, None)
        await runtime.master.submit(submit)
        await ended(runtime, submit)
        told = runtime.status().feature_store
        assert told is not None
        assert told.misses >= told.entries > 0, "every kept frame was missed once"
        assert told.hits > 0, "it was trained on frames that its statistics were fitted on"
        assert told.ram_bytes > 0
        assert told.file_bytes > 0
    without = replace(config, state=tmp_path / "without", feature_store_ram_bytes=0, feature_store_file_bytes=0)
    async with running(without) as runtime:
        assert runtime.status().feature_store is None


async def test_a_runtime_tells_of_pictures_it_knew_and_one_that_keeps_none_tells_nothing(tmp_path: Path) -> None:
    config = make_config(tmp_path / "state", tmp_path, vision_cache_bytes=2**20)
    bases = load_bases(config)
    async with running(config, bases) as runtime:
        assert runtime.status().vision_reuse == VisionReuseStatus(hits=0, misses=0, bytes=0)
        base = next(iter(bases.values()))
        feature = random_feature(np.random.default_rng(0))
        for tenant in ("a", "a", "b"):
            base.encode([replace(feature, scope=tenant)], [{"vision"}])
        told = runtime.status().vision_reuse
        assert told is not None
        assert (told.hits, told.misses) == (1, 2), "what another tenant showed is not known"
        assert told.bytes > 0
    config = replace(config, state=tmp_path / "without", vision_cache_bytes=0)
    async with running(config, load_bases(config)) as runtime:
        assert runtime.status().vision_reuse is None
