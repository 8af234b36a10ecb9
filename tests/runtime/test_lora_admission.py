"""A job that asks for an adapter is accepted, or refused by the field that is wrong, at both doors."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gpu_runtime.models.registry import load_backbone
from gpu_runtime.protocol.catalog import BaseModelEntry
from gpu_runtime.protocol.specs import SftJobSpec
from gpu_runtime.services.dataset_admission import admit_sft
from gpu_runtime.services.errors import InvalidSubmit
from tests.runtime.test_state_only import bind, submit
from tests.support.demonstrations import make_dataset

OFT = {"type": "oft", "horizon": 4, "blocks": 1}
VISION = {"type": "mlp", "horizon": 4, "tap": "vision"}


def admit(folder: Path, head: dict[str, Any], lora: dict[str, Any]) -> None:
    message = submit(bind(folder, make_dataset(folder / "push")), head)
    fields = message.spec.model_dump(mode="json") | {"lora": lora}
    fields["dataset"] |= {"cameras": None}
    spec = SftJobSpec.model_validate(fields)
    tiny = load_backbone(BaseModelEntry(name="tiny-qwen3-vl", source="tiny-qwen3-vl"))
    message = message.model_copy(update={"spec": spec})
    admit_sft(message, datasets=folder, bases={tiny.info.name: tiny}, batch_bytes_max=10**8)


def test_an_adapter_that_the_head_reads_is_accepted(tmp_path: Path) -> None:
    admit(tmp_path, OFT, {"rank": 4, "alpha": 8, "target_modules": ["q_proj", "v_proj"]})


@pytest.mark.parametrize(
    ("head", "lora", "field", "says"),
    [
        (OFT, {"rank": 256}, "spec.lora.rank", "rank 256: .*allowed: up to that"),
        (VISION, {"rank": 4}, "spec.lora", "head.tap 'vision'.*allowed with it: layer:n"),
    ],
)
def test_one_that_can_do_nothing_is_refused_by_its_field(
    head: dict[str, Any], lora: dict[str, Any], field: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidSubmit, match=says) as refused:
        admit(tmp_path, head, lora)
    assert refused.value.body.field == field


@pytest.mark.parametrize(
    "lora", [{"rank": 0}, {"alpha": 0}, {"target_modules": []}, {"target_modules": ["lm_head"]}, {"dropout": 0.1}]
)
def test_the_specification_itself_refuses_what_is_out_of_bounds(lora: dict[str, Any]) -> None:
    fields = {
        "kind": "sft",
        "name": "adapted",
        "base_model": "tiny-qwen3-vl",
        "head": OFT,
        "dataset": {"id": "dataset-1"},
        "training": {"steps": 1},
    }
    assert SftJobSpec.model_validate(fields).lora is None
    assert SftJobSpec.model_validate(fields | {"lora": {}}).lora is not None
    with pytest.raises(ValidationError) as refused:
        SftJobSpec.model_validate(fields | {"lora": lora})
    assert refused.value.errors()[0]["loc"][:2] == ("lora", next(iter(lora)))
