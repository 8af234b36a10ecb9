"""The page of a new job: what it sends is what was typed, what is refused stands at its field, nothing is lost."""

import json
import re
import shlex
import uuid
from html import unescape
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone
from pydantic import TypeAdapter

from frontend.forms.posted import spec_of, texts_of
from frontend.forms.schema import job_form
from gpu_runtime.protocol.job_specs import JobSpec
from gpu_runtime.protocol.lora import LoraSpec
from jobs.models import Job
from tenants.scope import platform_scope
from tests.support.factories import ProjectFactory
from tests.support.jobs import make_job, make_spec, make_version
from tests.support.page_forms import PageForm, form_in
from tests.support.policy_jobs import make_adapter, make_policy_job, make_policy_spec
from tests.support.story import Person, Story

pytestmark = pytest.mark.django_db

NEW = "/jobs/new/"
KINDS = ("sft", "rl", "evaluation", "rollout")
READS_TEXT = {"type": "mlp", "horizon": 4, "tap": "layer:-1"}
LORA = {"rank": 4, "alpha": 8.5, "target_modules": ["q_proj", "v_proj"]}
_SPECS: TypeAdapter[Any] = TypeAdapter(JobSpec)


def opened(person: Person, query: str = "") -> PageForm:
    answer = person.browser().get(f"{NEW}{query}")
    assert answer.status_code == 200
    return form_in(answer.content.decode(), "new-job")


def spec_for(person: Person, kind: str) -> dict[str, Any]:
    return make_spec(make_version(person)) if kind == "sft" else make_policy_spec(kind, make_adapter(person))


def all_jobs() -> list[Job]:
    with platform_scope():
        return list(Job.objects.select_related("cloned_from").order_by("created_at"))


def typed(person: Person, spec: dict[str, Any]) -> dict[str, str]:
    """The page of the kind, with the specification typed into its fields."""
    texts = texts_of(job_form(), spec)
    page = person.browser().post(f"{NEW}fields/", {"kind": spec["kind"], **texts}).content.decode()
    values = form_in(page, "new-job").values
    assert texts.items() <= values.items()
    del values["csrfmiddlewaretoken"]
    return values


def refused(html: str) -> dict[str, str]:
    """Field -> sentence that stands at it."""
    found = {}
    for part in html.split('class="err" id="f-')[1:]:
        name, _, rest = part.partition("-error")
        found[name] = unescape(rest.partition("<span>")[2].partition("</span>")[0])
    return found


def code_in(html: str, language: str) -> str:
    return unescape(html.partition(f'data-code="{language}"')[2].partition(">")[2].partition("</pre>")[0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_of_each_kind_is_submitted_as_it_was_typed(story: Story, kind: str):
    spec = spec_for(story.bob, kind)
    answer = story.bob.browser().post(NEW, typed(story.bob, spec))
    (job,) = [job for job in all_jobs() if job.name == spec["name"] and job.kind == kind][-1:]
    assert answer["Location"] == f"/jobs/{job.pk}/"
    assert _SPECS.validate_python(job.spec) == _SPECS.validate_python(spec)
    assert job.created_by == story.bob.user


@pytest.mark.parametrize("kind", KINDS)
def test_a_clone_that_is_not_touched_is_the_same_job_again(story: Story, kind: str):
    parent = make_job(story.alice) if kind == "sft" else make_policy_job(story.alice, kind)
    form = opened(story.alice, f"?from={parent.pk}")
    story.alice.browser().post(NEW, form.values)
    clone = all_jobs()[-1]
    assert clone.cloned_from == parent
    assert clone.spec | {"cloned_from": None} == parent.spec | {"project": None}


def test_a_clone_keeps_its_parents_project_and_present_tags(story: Story):
    ProjectFactory(tenant=story.alice.tenant, slug="grasping", name="Grasping")
    parent = make_job(story.alice, project="grasping", tags=["first"])
    values = opened(story.alice, f"?from={parent.pk}").values
    assert (values["project"], values["tags"]) == ("grasping", "first")


def test_what_a_clone_changes_is_marked_with_what_it_was(story: Story):
    parent = make_job(story.alice)
    values = opened(story.alice, f"?from={parent.pk}").values | {"training.steps": "300", "head.horizon": "4"}
    html = story.alice.browser().post(f"{NEW}fields/", values).content.decode()
    assert html.count('class="was"') == 1
    assert "was 200" in html


def test_a_job_of_another_lab_cannot_be_cloned_and_looks_like_a_missing_one(story: Story):
    browser, foreign = story.charlie.browser(), make_job(story.alice)
    answers = [browser.get(f"{NEW}?from={one}") for one in (foreign.pk, uuid.uuid4())]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert browser.get(f"{NEW}?from=nonsense").status_code == 404


def test_a_policy_and_a_dataset_of_a_link_are_chosen_already(story: Story):
    adapter, version = make_adapter(story.alice), make_version(story.alice)
    policy = opened(story.alice, f"?policy={adapter.pk}").values
    assert (policy["kind"], policy["policy.artifact"]) == ("evaluation", str(adapter.pk))
    assert opened(story.alice, f"?kind=rl&policy={adapter.pk}").values["kind"] == "rl"
    assert opened(story.alice, f"?dataset={version.pk}").values["dataset.id"] == str(version.pk)


@pytest.mark.parametrize("query", ["kind=nonsense", "policy=x", "dataset=%00", f"policy={uuid.UUID(int=7)}", "page=2"])
def test_a_link_that_names_nothing_opens_the_form_and_says_so(story: Story, query: str):
    html = story.alice.browser().get(f"{NEW}?{query}").content.decode()
    assert form_in(html, "new-job").values["kind"] == "sft"
    assert ("There is no kind" in html or "does not exist here" in html) == (query != "page=2")


def test_rows_of_another_lab_are_not_offered(story: Story):
    adapter, version = make_adapter(story.alice), make_version(story.alice)
    mine, other = opened(story.alice), opened(story.charlie)
    assert str(version.pk) in mine.options["dataset.id"]
    assert str(version.pk) not in other.options["dataset.id"] if "dataset.id" in other.options else True
    html = story.charlie.browser().get(f"{NEW}?kind=rl&policy={adapter.pk}").content.decode()
    assert str(adapter.pk) not in html
    assert "does not exist here" in html


@pytest.mark.parametrize(
    ("kind", "changes", "field", "told"),
    [
        ("sft", {"name": ""}, "name", "needed"),
        ("sft", {"training.steps": "many"}, "training.steps", "valid integer"),
        ("sft", {"training.steps": "0"}, "training.steps", "greater than or equal to 1"),
        ("sft", {"head.horizon": "64"}, "head.horizon", "longest episode"),
        ("sft", {"head.tap": "nose"}, "head.tap", "pattern"),
        ("sft", {"dataset.cameras": "nowhere"}, "dataset.cameras", "Unknown cameras"),
        ("sft", {"dataset.id": str(uuid.uuid4())}, "dataset.id", "no dataset version"),
        ("sft", {"base_model": "unheard-of"}, "base_model", "not resident"),
        ("sft", {"lora": "on"}, "lora", "read before the text layers"),
        ("sft", {"lora": "on", "lora.rank": "0"}, "lora.rank", "greater than or equal to 1"),
        ("sft", {"lora": "on", "lora.alpha": "much"}, "lora.alpha", "valid number"),
        ("sft", {"lora": "on", "lora.target_modules": "[]"}, "lora.target_modules", "at least 1 item"),
        ("sft", {"lora": "on", "lora.target_modules": "q_proj, nose"}, "lora.target_modules", "'q_proj'"),
        ("sft", {"project": "nowhere"}, "project", "no project"),
        ("sft", {"tags": "twice, twice"}, "tags", "each tag once"),
        ("sft", {"budget.max_cost": "-1"}, "budget.max_cost", "pattern"),
        ("sft", {"cloned_from": str(uuid.uuid4())}, "", "There is no job"),
        ("rl", {"exploration.type": "flow_sde"}, "exploration.type", "does not fit"),
        ("rl", {"executed_steps": "9"}, "executed_steps", "chunks have 4"),
        ("rl", {"unexplored": "dx, elbow"}, "unexplored", "no dimension"),
        ("rl", {"collection.processes": "9", "collection.seats": "2"}, "collection.processes", "at most seats"),
        ("rl", {"algorithm.type": "reinforce"}, "training.epochs", "one pass"),
        ("rl", {"policy.artifact": "x"}, "policy.artifact", "no artifact"),
        ("evaluation", {"environments.1.id": "PushCube-v1"}, "environments", "each once"),
        ("evaluation", {"environments.1.max_steps": "0"}, "environments.1.max_steps", "greater than"),
        ("rollout", {"max_attempts": "1"}, "max_attempts", "at least episodes"),
        ("rollout", {"environment.cameras": "elsewhere = base"}, "environment.cameras", "sees no"),
    ],
)  # fmt: skip
def test_a_refusal_stands_at_its_field_and_nothing_typed_is_lost(
    story: Story, kind: str, changes: dict[str, str], field: str, told: str
):
    values = typed(story.alice, spec_for(story.alice, kind)) | changes
    before = len(all_jobs())
    answer = story.alice.browser().post(NEW, values)
    html = answer.content.decode()
    assert len(all_jobs()) == before
    assert "Nothing was submitted" in html
    assert told in (refused(html)[field] if field and field != "environments" else unescape(html))
    again = form_in(html, "new-job").values
    assert {name: text for name, text in values.items() if text}.items() <= again.items()


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("tags", '["\\ud800"]'),
        ("name", "\0"),
        ("name", "a" * 5000),
        ("training.steps", "9" * 5000),
        ("training.steps", "NaN"),
        ("optimizer.lr", "1e999"),
        ("optimizer.betas", "[NaN, Infinity]"),
        ("tags", "[" * 5000),
        ("tags", "[" * 60 + "]" * 60),
        ("dataset.cameras", '{"a": 1}'),
        ("environments.0.cameras", '["x"]'),
        ("head.type", "nonsense"),
        ("kind", "nonsense"),
    ],
)
def test_no_text_breaks_the_page(story: Story, field: str, text: str):
    kind = "evaluation" if field.startswith("environments") else "sft"
    values = typed(story.alice, spec_for(story.alice, kind)) | {field: text}
    before = len(all_jobs())
    for path, status in ((f"{NEW}estimate/", 200), (f"{NEW}fields/", 200), (NEW, 422)):
        assert story.alice.browser().post(path, values).status_code == status
    assert len(all_jobs()) == before


def test_a_refusal_is_listed_near_the_button_and_leads_to_its_field(story: Story):
    html = story.alice.browser().post(NEW, {"kind": "sft"}).content.decode()
    assert 'href="#f-training.steps"' in html
    assert 'id="f-training.steps"' in html
    assert "Still needed" in html


def lora_spec(person: Person, **changes: Any) -> dict[str, Any]:
    return make_spec(make_version(person), head=READS_TEXT, lora=LORA) | changes


def test_lora_is_off_until_it_is_switched_on_and_then_submitted_as_typed(story: Story):
    browser = story.alice.browser()
    plain = typed(story.alice, lora_spec(story.alice, lora=None))
    assert not [name for name in plain if name.startswith("lora")]
    page = browser.post(f"{NEW}fields/", plain | {"lora": "on"}).content.decode()
    shown = form_in(page, "new-job").values
    assert shown["lora.target_modules"].startswith("q_proj, k_proj, ")  # every box is ticked
    changed = shown | {"lora.rank": "4", "lora.alpha": "8.5", "lora.target_modules": ["[]", "q_proj", "v_proj"]}
    assert browser.post(NEW, changed).status_code == 302
    assert all_jobs()[-1].spec["lora"] == LORA
    assert browser.post(NEW, plain).status_code == 302
    assert all_jobs()[-1].spec["lora"] is None


def test_switched_on_without_its_fields_it_means_their_defaults(story: Story):
    """As a browser without scripts sends it: the fields were never on its page."""
    plain = typed(story.alice, lora_spec(story.alice, lora=None))
    assert story.alice.browser().post(NEW, plain | {"lora": "on"}).status_code == 302
    assert all_jobs()[-1].spec["lora"] == LoraSpec().model_dump(mode="json")


def test_a_clone_fills_in_lora_and_marks_what_changes_of_it(story: Story):
    browser, parent = story.alice.browser(), make_job(story.alice, head=READS_TEXT, lora=LORA)
    page = browser.get(f"{NEW}?from={parent.pk}").content.decode()
    values = form_in(page, "new-job").values
    told = {name: text for name, text in values.items() if name.startswith("lora")}
    assert told == {"lora": "on", "lora.rank": "4", "lora.alpha": "8.5", "lora.target_modules": "q_proj, v_proj"}
    assert 'class="was"' not in page
    browser.post(NEW, values)
    assert all_jobs()[-1].spec["lora"] == LORA
    changed = browser.post(f"{NEW}fields/", values | {"lora.target_modules": "q_proj"}).content.decode()
    assert re.findall(r'class="was">([^<]*)', changed) == ["was q_proj, v_proj"]
    off = browser.post(f"{NEW}fields/", {name: text for name, text in values.items() if name != "lora"})
    assert re.findall(r'class="was">([^<]*)', off.content.decode()) == ["was on"]


def test_what_was_typed_into_lora_comes_back_with_it(story: Story):
    browser, values = story.alice.browser(), typed(story.alice, lora_spec(story.alice))
    without = {name: text for name, text in values.items() if name != "lora"}
    off = form_in(browser.post(f"{NEW}fields/", without).content.decode(), "new-job").values
    assert (off["lora.rank"], off["lora.target_modules"]) == ("4", "q_proj, v_proj")  # parked, and not sent:
    assert "lora" not in json.loads(code_in(browser.post(f"{NEW}estimate/", off).content.decode(), "json"))
    on = browser.post(f"{NEW}estimate/", off | {"lora": "on"}).content.decode()
    assert json.loads(code_in(on, "json"))["lora"] == LORA


def test_a_retry_of_a_job_with_lora_has_it_too(story: Story):
    parent = make_job(story.alice, head=READS_TEXT, lora=LORA)
    with platform_scope():
        Job.objects.filter(pk=parent.pk).update(state="failed", finished_at=timezone.now())
    assert story.alice.browser().post(f"/jobs/{parent.pk}/retry/").status_code == 302
    assert all_jobs()[-1].spec["lora"] == LORA
    assert all_jobs()[-1] != parent


def test_a_hidden_part_of_what_was_typed_comes_back_with_its_head(story: Story):
    browser = story.alice.browser()
    values = typed(story.alice, make_spec(make_version(story.alice))) | {"head.pca_dims": "32", "head.horizon": "6"}
    gr00t = form_in(browser.post(f"{NEW}fields/", values | {"head.type": "gr00t"}).content.decode(), "new-job")
    assert gr00t.values["head.horizon"] == "6"
    mlp = form_in(browser.post(f"{NEW}fields/", gr00t.values | {"head.type": "mlp"}).content.decode(), "new-job")
    assert mlp.values["head.pca_dims"] == "32"
    assert gr00t.values["head.pca_dims"] == "32"  # parked, and not part of the specification:
    sent = browser.post(f"{NEW}estimate/", gr00t.values | {"head.type": "gr00t"}).content.decode()
    assert "pca_dims" not in code_in(sent, "json")


def test_another_kind_keeps_the_fields_that_both_have(story: Story):
    values = typed(story.alice, make_spec(make_version(story.alice), name="kept")) | {"budget.max_cost": "3.5"}
    html = story.alice.browser().post(f"{NEW}fields/", values | {"kind": "rl"}).content.decode()
    rl = form_in(html, "new-job").values
    assert (rl["name"], rl["budget.max_cost"]) == ("kept", "3.5")
    html = story.alice.browser().post(f"{NEW}fields/", rl | {"kind": "sft"}).content.decode()
    assert form_in(html, "new-job").values.items() >= {"training.steps": "200", "head.type": "mlp"}.items()


def test_tasks_are_added_and_removed(story: Story):
    browser = story.alice.browser()
    values = typed(story.alice, spec_for(story.alice, "evaluation"))
    more = form_in(browser.post(f"{NEW}fields/", values | {"add": "environments"}).content.decode(), "new-job").values
    assert more["environments.2.id"] == ""
    fewer = browser.post(f"{NEW}fields/", more | {"remove": "environments.0", "environments.2.id": "PokeCube-v1"})
    body = json.loads(code_in(fewer.content.decode(), "json"))
    assert body["environments"] == [{"id": "PickCube-v1"}, {"id": "PokeCube-v1"}]


def test_a_preset_sets_its_fields_and_leaves_the_others(story: Story):
    values = typed(story.alice, make_spec(make_version(story.alice), name="kept"))
    html = story.alice.browser().post(f"{NEW}fields/", values | {"preset": "camera-mlp"}).content.decode()
    after = form_in(html, "new-job").values
    assert (after["training.steps"], after["name"]) == ("600", "kept")


def test_the_code_holds_exactly_what_is_submitted(story: Story):
    spec = make_spec(make_version(story.alice), name="Vera's <b>job</b>")
    values = typed(story.alice, spec)
    html = story.alice.browser().post(f"{NEW}estimate/", values).content.decode()
    curl = shlex.split(code_in(html, "curl").replace("\\\n", " "))
    body = json.loads(curl[curl.index("--json") + 1])
    sent: dict[str, Any] = {}
    source = (
        code_in(html, "python").replace("print(client", "pass #").replace("from joynexus_client import Client", "")
    )
    exec(
        source.replace("import os\n", ""),
        {"Client": _recorder(sent), "os": SimpleNamespace(environ={"JOYNEXUS_KEY": "k"})},
    )
    story.alice.browser().post(NEW, values)
    assert body == sent["spec"] == json.loads(code_in(html, "json"))
    assert _SPECS.validate_python(body).model_dump(mode="json") == all_jobs()[-1].spec


def test_the_estimate_is_that_of_the_api(story: Story):
    spec = make_spec(make_version(story.alice), budget={"max_cost": "2.50"}, priority=7)
    told = story.alice.api.post("/api/v1/jobs/estimate", spec).json()
    html = unescape(story.alice.browser().post(f"{NEW}estimate/", typed(story.alice, spec)).content.decode())
    assert "€2.50" in html  # the hold
    samples = next(line for line in told["lines"] if line["meter"] == "train.samples")
    assert f"{samples['high']:,}" in html
    assert samples["basis"] in html
    assert "unknown" in html  # device time: no job of the kind has finished
    assert "Would start at once" in html


def test_a_form_that_is_sent_twice_submits_one_job_and_a_changed_one_another(story: Story):
    values = typed(story.alice, make_spec(make_version(story.alice)))
    before = len(all_jobs())
    answers = [story.alice.browser().post(NEW, values) for _ in range(2)]
    assert answers[0]["Location"] == answers[1]["Location"]
    assert len(all_jobs()) == before + 1
    assert story.alice.browser().post(NEW, values | {"training.steps": "201"}).status_code == 302
    assert len(all_jobs()) == before + 2


def test_a_limit_that_is_reached_is_told_before_and_at_the_click(story: Story):
    project = ProjectFactory(tenant=story.alice.tenant, slug="grasping")
    path = f"/api/v1/projects/{project.pk}/quotas/queued_jobs"
    assert story.alice.api.put(path, {"limit": 0}, headers={"If-Match": "*"}).status_code < 300
    values = typed(story.alice, make_spec(make_version(story.alice), project="grasping"))
    assert "the limit queued_jobs is 0" in story.alice.browser().post(f"{NEW}estimate/", values).content.decode()
    answer = story.alice.browser().post(NEW, values)
    html = answer.content.decode()
    assert answer.status_code == story.alice.api.post("/api/v1/jobs", spec_of(job_form(), values)).status_code
    assert "the limit queued_jobs is 0" in html
    assert form_in(html, "new-job").values["training.steps"] == "200"


@pytest.mark.parametrize(
    ("method", "path", "status"), [("get", NEW, 200), ("post", NEW, 422), ("post", f"{NEW}fields/", 200)]
)
def test_who_may_not_submit_jobs_has_no_form(story: Story, method: str, path: str, status: int):
    assert getattr(story.viewer.browser(), method)(path).status_code == 403
    assert getattr(story.bob.browser(), method)(path).status_code == status


def test_names_of_users_are_text(story: Story):
    parent = make_job(story.alice, name="<img src=x onerror=alert(1)>")
    html = story.alice.browser().get(f"{NEW}?from={parent.pk}").content.decode()
    assert "<img src=x" not in html


def test_the_page_asks_the_database_the_same_number_of_times_however_much_there_is(
    story: Story, django_assert_max_num_queries
):
    for _ in range(8):
        make_adapter(story.alice)
        make_policy_job(story.alice, "evaluation")
    browser = story.alice.browser()
    with django_assert_max_num_queries(45):
        assert browser.get(f"{NEW}?kind=rl").status_code == 200


def _recorder(sent: dict[str, Any]) -> Any:
    """A client that keeps what it is told to submit."""

    class Jobs:
        def submit(self, spec: dict[str, Any]) -> dict[str, str]:
            sent["spec"] = spec
            return {"id": "1"}

    class Recorder:
        jobs = Jobs()

        def __enter__(self) -> "Recorder":
            return self

        def __exit__(self, *error: object) -> None:
            pass

    return lambda url, key: Recorder()
