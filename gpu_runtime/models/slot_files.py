"""A slot as the files of its checkpoint, so that copying it and writing it down can be done apart."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from gpu_runtime.models.folders import atomic_folder, listing, write_json
from gpu_runtime.models.weights import write_tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFiles:
    """``tensors`` by file name, which follow the slot until they are copied; ``document`` describes them."""

    tensors: Mapping[str, Mapping[str, Tensor]]
    document: Mapping[str, Any]

    def copied(self) -> "SlotFiles":
        """The same on the CPU, for itself: the slot may train on."""
        return replace(
            self,
            tensors={
                file: {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
                for file, tensors in self.tensors.items()
            },
        )

    def write(self, folder: Path) -> None:
        """``folder`` is there completely or not at all. Blocks on the disk."""
        with atomic_folder(folder) as temporary:
            for file, tensors in self.tensors.items():
                write_tensors(temporary / file, tensors)
            write_json(temporary / "slot.json", dict(self.document) | {"files": listing(temporary)})
