"""The low-rank part of a text module, added to the one product that all packed rows share.

Shapes: N packed rows, T adapters with R rows each, I inputs, O outputs, r rank.
"""

from collections.abc import Callable, Sequence
from threading import Lock
from weakref import WeakSet

import torch
from torch import nn
from torch.nn import functional

from gpu_runtime.models.backbones.frozen import STABLE_GEMM_ROWS
from gpu_runtime.models.lora.plan import AdaptedRows, active_rows

STABLE_RANK = 4
"""Rank from which a batched product gives each tenant the bits of its own; rank 1 is another kernel on the CPU."""

Update = tuple[AdaptedRows, nn.Parameter, nn.Parameter]
_ATTACHED: WeakSet[nn.Module] = WeakSet()
_LOCK = Lock()


def attach(modules: dict[str, nn.Linear]) -> None:
    """Let these modules add the running thread's adapters, once each; without any they answer as before.

    ``modules``: by path; the layer is the number after ``layers``.
    """
    with _LOCK:
        for path, module in modules.items():
            if module not in _ATTACHED:
                module.register_forward_hook(_adding(path, int(path.split(".")[path.split(".").index("layers") + 1])))
                _ATTACHED.add(module)


def _adding(path: str, layer: int) -> Callable[[nn.Module, tuple[torch.Tensor, ...], torch.Tensor], torch.Tensor]:
    def add(_module: nn.Module, args: tuple[torch.Tensor, ...], output_1NO: torch.Tensor) -> torch.Tensor:
        updates = [(part, *pair) for part in active_rows() if layer < part.depth and (pair := part.adapter.pair(path))]
        if not updates:
            return output_1NO
        return add_updates(args[0].flatten(0, 1), output_1NO.flatten(0, 1), updates)[None]

    return add


def add_updates(input_NI: torch.Tensor, output_NO: torch.Tensor, updates: Sequence[Update]) -> torch.Tensor:
    """The output with each adapter's update on its own rows; all other rows as they were."""
    pieces: list[torch.Tensor] = []
    end = 0
    for run in _stackable(updates):
        start = run[0][0].start
        if start > end:
            pieces.append(_slice(output_NO, end, start))
        end = run[-1][0].start + run[-1][0].rows
        pieces.append(_slice(output_NO, start, end) + _low_rank(_slice(input_NI, start, end), run))
    if end < len(output_NO):
        pieces.append(output_NO[end:])
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def _slice(rows: torch.Tensor, start: int, end: int) -> torch.Tensor:
    """These rows; all of them are no slice, whose gradient would be written into zeros of the whole size."""
    return rows if end - start == len(rows) else rows[start:end]


def _stackable(updates: Sequence[Update]) -> list[list[Update]]:
    """Neighbours of equal rows and rank together, where that leaves every tenant its own bits; others alone."""
    runs: list[list[Update]] = []
    for update in updates:
        last = runs[-1][-1] if runs else None
        if last is not None and last[0].start + last[0].rows == update[0].start and _alike(last, update):
            runs[-1].append(update)
        else:
            runs.append([update])
    return runs


def _alike(one: Update, other: Update) -> bool:
    """A CPU with several threads shares a batch out to them, so only one thread stacks there."""
    rank = len(one[1])
    if one[0].rows != other[0].rows or rank != len(other[1]):
        return False
    on_cpu = one[1].device.type == "cpu"
    return not on_cpu or (rank >= STABLE_RANK and one[0].rows >= STABLE_GEMM_ROWS and torch.get_num_threads() == 1)


def _low_rank(input_NI: torch.Tensor, run: Sequence[Update]) -> torch.Tensor:
    """[T * R, O]: scaling * (x A^T) B^T of each adapter over its own rows, as batched products."""
    rows = run[0][0].rows
    input_TRI = input_NI.unflatten(0, (len(run), rows))
    missing = STABLE_GEMM_ROWS * torch.get_num_threads() - rows
    if missing > 0 and input_NI.device.type == "cpu":
        input_TRI = functional.pad(input_TRI, (0, 0, 0, missing))
    down_TrI = torch.stack([down for _, down, _ in run]).to(input_NI.dtype)
    up_TOr = torch.stack([up for _, _, up in run]).to(input_NI.dtype)
    inner_TRr = torch.bmm(input_TRI, down_TrI.transpose(1, 2))
    scaling_T = [part.adapter.spec.scaling for part, _, _ in run]
    if len(set(scaling_T)) == 1:
        inner_TRr = inner_TRr * scaling_T[0]
    else:
        inner_TRr = inner_TRr * inner_TRr.new_tensor(scaling_T)[:, None, None]
    update_TRO = torch.bmm(inner_TRr, up_TOr.transpose(1, 2))
    return (update_TRO[:, :rows] if missing > 0 else update_TRO).flatten(0, 1)
