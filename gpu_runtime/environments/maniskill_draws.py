"""A seed's random numbers, the same on every device: drawn on the CPU, then moved to where they are wanted."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_DRAWING = frozenset({torch.rand, torch.randn, torch.randint, torch.randperm})


class DrawOnCpu(TorchFunctionMode):
    """Within it torch draws as on a CPU, whatever device is asked for or usual.

    CUDA's generator gives other numbers for the same seed: tries would start elsewhere than on a CPU.
    """

    def __torch_function__(
        self, function: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        if function not in _DRAWING:
            return function(*args, **options)
        device = options.pop("device", None) or torch.get_default_device()
        return function(*args, **options, device="cpu").to(device)
