"""How many prompt tokens one forward should hold on this machine: measured once, then read from the state folder.

Few tokens pay dispatches, many leave the caches of a CPU or the memory of a GPU; where the best lies differs by base
and machine. In float32 on a CPU results don't depend on it.
"""

import json
import logging
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from gpu_runtime.batching.feature import VLAFeature
from gpu_runtime.models.backbones.qwen3_vl import Qwen3VLBackbone

_log = logging.getLogger(__name__)

CPU_CANDIDATES = (256, 512, 768, 1024, 2048)
CUDA_CANDIDATES = (1024, 2048, 4096, 8192, 16384, 32768)
ROUNDS = 3
TRIAL_S = 2.0
"""No further forward is begun after it, so that a large base on a slow machine starts all the same."""
SAME_SPEED = 1.02
"""Of candidates within 2 % of the fastest the smallest is taken: it needs the least memory."""
FILE = "token_budgets.json"
_VERSION = 1
_PIXELS = 192
_WORDS = 18  # letters of the instruction; with one view of 192 pixels a usual sample of 75 tokens

Work = Callable[[int], float]
"""Runs about so many tokens in one forward and returns the seconds per token."""


def settle_token_budget(backbone: Qwen3VLBackbone, state: Path) -> int:
    """Give the backbone the budget measured for it here, now or before; returns it in prompt tokens."""
    path, key = state / FILE, machine_key(backbone)
    candidates = CUDA_CANDIDATES if _on_cuda(backbone) else CPU_CANDIDATES
    known = _read(path)
    budget = known.get(key)
    if budget is None or budget not in candidates:
        budget = fastest(candidates, lambda tokens: _seconds_per_token(backbone, tokens))
        _write(path, known | {key: budget})
        _log.info("base %s: %d tokens per forward are fastest here", backbone.info.name, budget)
    backbone.limit_tokens(budget)
    return budget


def machine_key(backbone: Qwen3VLBackbone) -> str:
    """What the best budget depends on: device, base, precision, threads."""
    info = backbone.info
    name = torch.cuda.get_device_name(backbone.model.device) if _on_cuda(backbone) else _cpu_name()
    return f"{name}|{info.name}@{info.revision}|{info.dtype}|{torch.get_num_threads()} threads"


def fastest(
    candidates: Sequence[int],
    work: Work,
    *,
    rounds: int = ROUNDS,
    trial_s: float = TRIAL_S,
    now: Callable[[], float] = time.monotonic,
) -> int:
    """The smallest candidate within ``SAME_SPEED`` of the fastest; each is judged by its best of some rounds.

    Candidates come in ascending order; one that does not fit into memory ends the list. The first round is a warm-up
    unless time runs out. Raises torch.OutOfMemoryError when not even the first fits.
    """
    began, best, fitting = now(), dict[int, float](), list(candidates)
    for _ in range(rounds + 1):
        for tokens in tuple(fitting):
            if best and now() - began > trial_s:
                return _smallest_good(best)
            try:
                seconds = work(tokens)
            except torch.OutOfMemoryError:
                if tokens == candidates[0]:
                    raise
                torch.cuda.empty_cache()
                fitting = [fits for fits in fitting if fits < tokens]
                best = {fits: value for fits, value in best.items() if fits < tokens}
                break
            best[tokens] = min(seconds, best.get(tokens, seconds))
    return _smallest_good(best)


def _smallest_good(best: dict[int, float]) -> int:
    limit = SAME_SPEED * min(best.values())
    return min(tokens for tokens, seconds in best.items() if seconds <= limit)


def _seconds_per_token(backbone: Qwen3VLBackbone, tokens: int) -> float:
    """One forward of samples that fill it; CPU time of this thread's process, or the device's wall time."""
    samples = list(_samples(backbone, tokens))
    backbone.limit_tokens(tokens)
    clock = time.perf_counter if _on_cuda(backbone) else time.process_time
    _wait(backbone)
    began = clock()
    backbone.encode(samples, [{"layer:-1"}] * len(samples))
    _wait(backbone)
    return (clock() - began) / backbone.tokens_together(samples)


def _samples(backbone: Qwen3VLBackbone, tokens: int) -> Iterator[VLAFeature]:
    """Different pictures, so that none is known, in one forward of at most ``tokens``."""
    random = np.random.default_rng(0)
    room = tokens
    while True:
        picture = random.integers(0, 256, (_PIXELS, _PIXELS, 3), dtype=np.uint8)
        sample = VLAFeature(images=(picture,), instruction="x" * _WORDS)
        room -= backbone.tokens(sample)
        if room < 0:
            return
        yield sample


def _read(path: Path) -> dict[str, int]:
    """What was measured before; nothing where the file is missing or can't be read: it is only a saving of time."""
    try:
        found = json.loads(path.read_text())
        budgets = found["budgets"] if found["version"] == _VERSION else {}
        return {key: value for key, value in budgets.items() if isinstance(value, int)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _write(path: Path, budgets: dict[str, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps({"version": _VERSION, "budgets": budgets}, indent=2))
    os.replace(beside, path)


def _cpu_name() -> str:
    """The processor's model where the system tells it; its instruction set decides which kernels run."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass
    return f"{model} {torch.backends.cpu.get_cpu_capability()}"


def _on_cuda(backbone: Qwen3VLBackbone) -> bool:
    return backbone.model.device.type == "cuda"


def _wait(backbone: Qwen3VLBackbone) -> None:
    if _on_cuda(backbone):
        torch.cuda.synchronize(backbone.model.device)
