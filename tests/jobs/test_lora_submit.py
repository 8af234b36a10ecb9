"""A job that asks for an adapter of the base is queued, or refused by the field that is wrong."""

from typing import Any

import pytest

from tests.jobs.test_submit import refusals
from tests.support.jobs import make_spec, make_version
from tests.support.story import Person

pytestmark = pytest.mark.django_db
READS_TEXT = {"type": "mlp", "horizon": 4, "tap": "layer:-1"}
LORA = {"rank": 4, "alpha": 8, "target_modules": ["q_proj", "v_proj"]}


def test_a_job_with_an_adapter_is_accepted(alice: Person) -> None:
    spec = make_spec(make_version(alice)) | {"head": READS_TEXT, "lora": LORA}
    assert alice.api.post("/api/v1/jobs", spec).status_code == 202


@pytest.mark.parametrize(
    ("head", "lora", "pointer"),
    [
        (READS_TEXT, LORA | {"rank": 0}, "/lora/rank"),
        (READS_TEXT, LORA | {"dropout": 0.1}, "/lora/dropout"),
        (READS_TEXT | {"tap": "vision"}, LORA, "/lora"),
    ],
)
def test_a_bad_one_is_refused_by_its_field(
    head: dict[str, Any], lora: dict[str, Any], pointer: str, alice: Person
) -> None:
    spec = make_spec(make_version(alice)) | {"head": head, "lora": lora}
    assert pointer in refusals(alice, spec)
