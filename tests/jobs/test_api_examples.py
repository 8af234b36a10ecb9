"""The API's description of submitting is true: examples are accepted, every code of a refusal is listed."""

import re
from pathlib import Path
from typing import Any

import pytest
from drf_spectacular.generators import SchemaGenerator

import jobs.services
import joynexus_client
import tenants.selectors
from gpu_runtime.protocol.camera_names import CameraFault
from gpu_runtime.protocol.job_specs import JobSpec
from jobs.api.examples import FIELD_CODES, LORA_SPECIFICATION, SPECIFICATIONS
from jobs.api.queries import JOB_KINDS
from tenants.bodies import parse_body
from tests.support.jobs import make_version
from tests.support.policy_jobs import make_adapter
from tests.support.story import Person

_FIELD_CODE = re.compile(
    r"""(?:FieldError\((?:[^()]|\([^()]*\))*?code=|_policy_refused\(|_no_project\()"([a-z_]+)\""""
)  # arguments may hold one level of calls


def test_there_is_an_example_of_every_kind_and_each_is_shown_with_the_request() -> None:
    assert tuple(SPECIFICATIONS) == JOB_KINDS
    submit = SchemaGenerator().get_schema(request=None, public=True)["paths"]["/api/v1/jobs"]["post"]
    shown = submit["requestBody"]["content"]["application/json"]["examples"]
    assert list(dict.fromkeys(example["value"]["kind"] for example in shown.values())) == list(JOB_KINDS)
    assert LORA_SPECIFICATION in [example["value"] for example in shown.values()]
    assert all(f"`{code}`" in submit["description"] for code in FIELD_CODES)


@pytest.mark.django_db
@pytest.mark.parametrize("kind", JOB_KINDS)
def test_an_example_with_ids_of_ones_own_is_accepted(alice: Person, kind: str) -> None:
    spec = dict(SPECIFICATIONS[kind])
    assert parse_body(JobSpec, spec).kind == kind
    own: dict[str, Any] = {"policy": {"artifact": str(make_adapter(alice).pk)}}
    if kind == "sft":
        own = {"dataset": {"id": str(make_version(alice).pk)}}
    answer = alice.api.post("/api/v1/jobs", spec | own)
    assert answer.status_code == 202, answer.json()


@pytest.mark.django_db
def test_the_example_with_lora_is_accepted_too(alice: Person) -> None:
    answer = alice.api.post("/api/v1/jobs", LORA_SPECIFICATION | {"dataset": {"id": str(make_version(alice).pk)}})
    assert answer.status_code == 202, answer.json()
    assert answer.json()["spec"]["lora"] == LORA_SPECIFICATION["lora"]


def test_every_code_that_admission_refuses_a_field_with_is_described() -> None:
    admission = Path(jobs.services.__path__[0]) / "admission"
    read = [path.read_text() for path in (*admission.glob("*.py"), Path(tenants.selectors.__file__))]
    used = {code for text in read for code in _FIELD_CODE.findall(text)}
    assert used | {fault.value for fault in CameraFault} == set(FIELD_CODES)


def test_the_specifications_in_the_clients_docstring_have_the_right_form() -> None:
    """Names of the example's own results are filled in; everything else must be accepted as it stands."""
    told = re.findall(r"jobs\.submit\((\{.*?\n        \})\)", joynexus_client.__doc__ or "", re.DOTALL)
    result = {"id": "an id"}
    names = {"version": result, "adapter": result, "better": result, "client": _Anything()}
    kinds = [parse_body(JobSpec, eval(text, names)).kind for text in told]
    assert sorted(kinds) == sorted(JOB_KINDS)


class _Anything:
    """Stands for the client: whatever is asked for is there, and its id is a text."""

    def __getattr__(self, name: str) -> "_Anything":
        return self

    def __call__(self, *args: object, **more: object) -> "_Anything":
        return self

    def __getitem__(self, key: object) -> Any:
        return "an id" if key == "id" else self
