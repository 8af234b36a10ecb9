"""Gradients of stacked heads stand where each tenant's own AdamW looks for them, all of them and nothing else."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from gpu_runtime.models.flat import Flat
from gpu_runtime.models.heads.tenants import spread
from gpu_runtime.models.stacked.stack import HeadStack

TENANTS, ROWS, WIDTH = 3, 32, 64


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    x_RW: Tensor

    @staticmethod
    def join(parts: Sequence["Batch"]) -> "Batch":
        return Batch(x_RW=torch.cat([part.x_RW for part in parts]))


class Module(nn.Module):
    """One layer used twice, one once, one never, and a parameter of no layer."""

    def __init__(self) -> None:
        super().__init__()
        self.twice, self.once, self.never = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.token, self.idle = (nn.Parameter(torch.randn(1, WIDTH)) for _ in range(2))

    def predict(self, batch: Batch) -> Tensor:
        x_RW = batch.x_RW + spread(self.token, len(batch.x_RW))[:, 0]
        return self.once(torch.tanh(self.twice(torch.tanh(self.twice(x_RW)))))

    def error(self, predicted: Tensor, batch: Batch) -> SimpleNamespace:
        return SimpleNamespace(total=predicted.square().mean())


def flats_of(module: nn.Module) -> list[Flat]:
    named = dict(module.named_parameters())
    return [Flat({n: p for n, p in named.items() if wanted(p)}) for wanted in KINDS]


KINDS: tuple[Callable[[Tensor], bool], ...] = (lambda p: p.ndim >= 2, lambda p: p.ndim < 2)


@pytest.fixture
def modules() -> list[Module]:
    torch.manual_seed(0)
    return [Module() for _ in range(TENANTS)]


@pytest.fixture
def batches() -> list[Batch]:
    return [Batch(x_RW=torch.randn(ROWS, WIDTH)) for _ in range(TENANTS)]


def gradients(flats: Sequence[Flat]) -> dict[str, Tensor]:
    return {name: view for flat in flats for name, view in flat.named(flat.whole.grad)}  # type: ignore[arg-type]


def test_every_tenants_gradients_are_those_of_its_module_alone_step_after_step(
    modules: list[Module], batches: list[Batch]
) -> None:
    alone = [copy.deepcopy(module) for module in modules]
    flats = [flats_of(module) for module in modules]
    stack = HeadStack(modules, flats)
    for _ in range(2):  # what the first backward left must not be in the second
        stack.backward(stack.losses(batches))
        for module, batch, own in zip(alone, batches, flats, strict=True):
            module.zero_grad()
            module.error(module.predict(batch), batch).total.backward()
            found = gradients(own)
            for name, parameter in module.named_parameters():
                expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                torch.testing.assert_close(found[name], expected, rtol=1e-5, atol=1e-8, msg=name)
            assert bool(found["twice.weight"].any())
            assert not bool(found["never.weight"].any())


def test_a_second_use_that_overwrote_the_first_would_be_noticed(
    modules: list[Module], batches: list[Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    flats = [flats_of(module) for module in modules]
    stack = HeadStack(modules, flats)
    stack.backward(stack.losses(batches))
    right = gradients(flats[0])["twice.weight"].clone()
    sink = stack.joined.twice.sink
    monkeypatch.setattr(type(sink), "write", lambda self, *args: (self._write(*args), setattr(self, "written", True)))
    stack.backward(stack.losses(batches))
    assert not torch.allclose(gradients(flats[0])["twice.weight"], right)


def test_a_layer_left_out_of_a_later_step_keeps_no_gradient_of_the_earlier_one(
    modules: list[Module], batches: list[Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    flats = [flats_of(module) for module in modules]
    stack = HeadStack(modules, flats)
    stack.backward(stack.losses(batches))
    assert bool(gradients(flats[1])["once.weight"].any())
    monkeypatch.setattr(stack.joined, "predict", lambda batch: stack.joined.never(batch.x_RW))
    stack.backward(stack.losses(batches))
    found = gradients(flats[1])
    assert bool(found["never.weight"].any())
    assert not any(bool(found[name].any()) for name in ("once.weight", "twice.weight", "token"))
    assert not any(bool(gradients(own)["once.bias"].any()) for own in flats)
