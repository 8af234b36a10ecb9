"""The tokens of one forward are measured once per machine and base, and read from the state folder after that."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gpu_runtime.models import token_budget
from gpu_runtime.models.backbones.qwen3_vl import Qwen3VLBackbone
from gpu_runtime.models.registry import load_backbone
from gpu_runtime.models.token_budget import CPU_CANDIDATES, FILE, fastest, machine_key, settle_token_budget
from gpu_runtime.placement.local import load_bases
from gpu_runtime.protocol.catalog import BaseModelEntry
from tests.support.runtime import make_config

TINY = BaseModelEntry(name="tiny-qwen3-vl", source="tiny-qwen3-vl")


@pytest.fixture
def tiny() -> Qwen3VLBackbone:
    return load_backbone(TINY)


def told(seconds: dict[int, list[float]]) -> Callable[[int], float]:
    """Each candidate's times in turn."""
    return lambda tokens: seconds[tokens].pop(0)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({256: [3, 2, 2, 2], 512: [3, 1, 1, 1], 768: [3, 1.5, 1.5, 1.5]}, 512),
        ({256: [1.01, 3, 3, 3], 512: [1, 3, 3, 3], 768: [2, 3, 3, 3]}, 256),  # as fast within 2 %: the smaller
        ({256: [2, 2, 2, 2], 512: [9, 9, 9, 1], 768: [3, 3, 3, 3]}, 512),  # a busy moment is not held against it
    ],
)
def test_the_smallest_of_the_fastest_is_taken(times: dict[int, list[float]], expected: int) -> None:
    assert fastest((256, 512, 768), told(times), trial_s=1e9) == expected


def test_what_does_not_fit_into_memory_is_no_candidate() -> None:
    ran = []

    def work(tokens: int) -> float:
        ran.append(tokens)
        if tokens >= 2048:
            raise torch.OutOfMemoryError
        return 1 / tokens

    assert fastest((512, 1024, 2048, 4096), work, rounds=2, trial_s=1e9) == 1024
    assert ran == [512, 1024, 2048, 512, 1024, 512, 1024]
    with pytest.raises(torch.OutOfMemoryError):
        fastest((2048, 4096), work)


def test_a_slow_machine_is_judged_by_what_it_managed_in_time() -> None:
    clock = iter(range(100))
    ran = []

    def work(tokens: int) -> float:
        ran.append(tokens)
        return 1 / tokens

    assert fastest((256, 512, 768), work, trial_s=1.5, now=lambda: float(next(clock))) == 512
    assert ran == [256, 512]


def test_a_measured_budget_is_kept_and_read_the_next_time(
    tiny: Qwen3VLBackbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_budget, "CPU_CANDIDATES", (256, 512))
    budget = settle_token_budget(tiny, tmp_path)
    assert tiny._max_tokens == budget in (256, 512)
    kept = json.loads((tmp_path / FILE).read_text())
    assert kept == {"version": 1, "budgets": {machine_key(tiny): budget}}
    other = 768 - budget
    (tmp_path / FILE).write_text(json.dumps({"version": 1, "budgets": {machine_key(tiny): other}}))
    assert settle_token_budget(tiny, tmp_path) == other, "read, not measured"


@pytest.mark.parametrize("text", ["", "[]", '{"version": 2}', '{"version": 1, "budgets": {"K": 7}}'])
def test_a_file_that_says_nothing_usable_is_measured_again(
    tiny: Qwen3VLBackbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / FILE).write_text(text.replace("K", machine_key(tiny).replace("\\", "")))
    monkeypatch.setattr(token_budget, "fastest", lambda candidates, work: candidates[1])
    assert settle_token_budget(tiny, tmp_path) == CPU_CANDIDATES[1]
    assert json.loads((tmp_path / FILE).read_text())["budgets"][machine_key(tiny)] == CPU_CANDIDATES[1]


def test_the_key_tells_machine_base_precision_and_threads_apart(tiny: Qwen3VLBackbone) -> None:
    before = torch.get_num_threads()
    keys = set()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        keys.add(machine_key(tiny))
    torch.set_num_threads(before)
    assert len(keys) == 2
    assert all(tiny.info.revision in key and "float32" in key for key in keys)


@pytest.mark.parametrize(("setting", "expected"), [(300, 300), (0, CPU_CANDIDATES[2])])
def test_a_runtime_measures_only_where_nothing_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: int, expected: int
) -> None:
    monkeypatch.setattr(token_budget, "fastest", lambda candidates, work: candidates[2])
    config = make_config(tmp_path / "state", tmp_path, max_tokens_per_forward=setting, vision_cache_bytes=5)
    base = load_bases(config)["tiny-qwen3-vl"]
    assert base._max_tokens == expected
    assert base.vision_reuse._max_bytes == 5
    assert (tmp_path / "state" / FILE).exists() == (setting == 0)
