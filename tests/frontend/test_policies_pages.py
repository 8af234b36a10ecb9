"""Policies: the list with its filters, one policy, several side by side, deleting and keeping."""

import copy
import re
import uuid

import pytest

from frontend.evaluations import read_report
from frontend.measured import Result
from frontend.policy_comparison import comparison_of
from jobs.models import Artifact
from jobs.services.retention import artifact_delete
from tenants.scope import platform_scope
from tests.support import console
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.policy_pages import evaluated, html, reinforced, start, trained
from tests.support.story import Story

pytestmark = pytest.mark.django_db

MARKUP = "<img src=x onerror=alert(1)>"


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> InMemoryRuntime:
    own = InMemoryRuntime()
    monkeypatch.setattr("jobs.runtime_client.connect", lambda: own)
    return own


def listed(page: str) -> list[str]:
    return re.findall(r"data-row-link>([^<]+)</a>", page)


def reread(policy: Artifact) -> Artifact:
    with platform_scope():
        return Artifact.objects.get(pk=policy.pk)


def test_the_list_tells_where_a_policy_comes_from_and_how_often_it_succeeds(story: Story, runtime):
    weak = trained(story.alice, runtime)
    reinforced(story.alice, runtime, weak)
    evaluated(story.alice, runtime, weak)
    page = html(story.alice, "/policies/")
    assert listed(page) == ["push further", "weak start"]
    rate = console.evaluation_report().overall.success_once
    for words in ("RL, PPO", "tiny-qwen3-vl", "mlp head", "2 jobs from it", "not evaluated", "until deleted"):
        assert words in page
    assert f"{rate.rate * 100:.1f}\u00a0%" in page
    assert f"{rate.low * 100:.1f}–{rate.high * 100:.1f}" in page
    assert f"{rate.successes} of {rate.episodes}" in page


def test_the_form_of_a_new_job_offers_a_policy_with_the_success_that_the_list_shows(story: Story, runtime):
    weak = trained(story.alice, runtime)
    started = f"{weak.policy_version} · mlp on tiny-qwen3-vl"
    assert f"{started} · not evaluated" in html(story.alice, "/jobs/new/?kind=rl")
    evaluated(story.alice, runtime, weak)
    rate = console.evaluation_report().overall.success_once
    told = f"{started} · {rate.rate * 100:.0f} % of {rate.episodes} episodes"
    assert told in html(story.alice, "/jobs/new/?kind=rl")


def test_policies_are_found_filtered_and_sorted_by_the_address(story: Story, runtime):
    weak = trained(story.alice, runtime)
    better = reinforced(story.alice, runtime, weak)
    trained(story.alice, runtime, name="another")
    evaluated(story.alice, runtime, weak)

    def names(query: str) -> list[str]:
        return listed(html(story.alice, f"/policies/?{query}"))

    assert names("q=WEAK") == names("q=j-1") == names(f"q={weak.pk}") == ["weak start"]
    assert names(f"q={better.job_id}") == names("trained=rl") == ["push further"]
    assert names("sort=name") == ["another", "push further", "weak start"]
    assert names("sort=oldest") == ["weak start", "push further", "another"]
    assert names("sort=success")[0] == "weak start"
    assert names("head=mlp&base=tiny-qwen3-vl&trained=sft") == ["another", "weak start"]
    assert "No policy matches" in html(story.alice, "/policies/?q=nothing")


@pytest.mark.parametrize(
    "query",
    ["q=%00", "sort=x", "head=%00", "base=x", "trained=x", "page=x", "deleted=x", "unknown=1", "q=99999999999"],
)
def test_no_query_breaks_the_list(story: Story, runtime, query):
    trained(story.alice, runtime)
    html(story.alice, f"/policies/?{query}")


def test_deleted_policies_are_listed_when_they_are_asked_for(story: Story, runtime):
    weak = trained(story.alice, runtime)
    artifact_delete(actor=story.alice.actor, artifact_id=weak.pk)
    assert listed(html(story.alice, "/policies/")) == []
    page = html(story.alice, "/policies/?deleted=1")
    assert listed(page) == ["weak start"]
    assert "deleted" in page


def test_the_list_asks_as_often_for_many_policies_as_for_few(story: Story, runtime, django_assert_max_num_queries):
    browser = story.alice.browser()

    def queries() -> int:
        with django_assert_max_num_queries(40) as seen:
            assert browser.get("/policies/").status_code == 200
        return len(seen)

    evaluated(story.alice, runtime, trained(story.alice, runtime))
    browser.get("/policies/")
    few = queries()
    for number in range(4):
        evaluated(story.alice, runtime, trained(story.alice, runtime, name=f"start {number}"))
    assert queries() <= few + 2  # the frame reads some things anew after a while


def test_htmx_gets_the_rows_alone(story: Story, runtime):
    trained(story.alice, runtime)
    page = html(story.alice, "/policies/", **{"HX-Request": "true"})
    assert listed(page) == ["weak start"]
    assert "<html" not in page


def test_one_policy_is_told_in_words(story: Story, runtime):
    weak = trained(story.alice, runtime)
    better = reinforced(story.alice, runtime, weak)
    evaluated(story.alice, runtime, better)
    page = html(story.alice, f"/policies/{better.pk}/")
    for words in ("push further, version 60", "RL, PPO", better.sha256, "a0, a1", "s0, s1, s2", "seed-0"):
        assert words in page
    for url in (f"/policies/{weak.pk}/", f"/jobs/{better.job_id}/", f"/api/v1/artifacts/{better.pk}/download"):
        assert f'href="{url}"' in page
    assert "Success by task" in page
    assert 'data-figure="success-once"' in page
    assert f"client.artifacts.download(&quot;{better.pk}&quot;" in page or f'download("{better.pk}"' in page


def test_a_policy_with_lora_tells_of_it_and_how_peft_loads_it(story: Story, runtime):
    lora = {"rank": 8, "alpha": 16.0, "target_modules": ["q_proj", "v_proj"]}
    weak = trained(story.alice, runtime)
    path, section = f"/policies/{weak.pk}/", lora | {"param_count": 12_288, "folder": "lora"}
    plain = html(story.alice, path)
    assert "LoRA" not in plain
    assert "peft" not in plain
    for told in ({"lora": section}, {"spec": {"lora": lora}}):  # as version 1.3 has it, and 1.2
        with platform_scope():
            Artifact.objects.filter(pk=weak.pk).update(manifest=weak.manifest | told)
        page = html(story.alice, path)
        for words in (
            "q_proj, v_proj",
            "lora/, in PEFT&#x27;s format",
            "<dt>Rank</dt><dd>8</dd>",
            "<dt>Alpha</dt><dd>16</dd>",
        ):
            assert words in page
        assert 'model = peft.PeftModel.from_pretrained(model, "adapter/lora")' in page
        assert ("12,288" in page) == ("lora" in told)
        assert story.alice.api.get(f"/api/v1/artifacts/{weak.pk}").json()["manifest"] == weak.manifest | told


def test_a_policy_with_an_odd_manifest_has_a_page(story: Story, runtime):
    weak = trained(story.alice, runtime)
    odd = {"action": {"names": 7, "control_hz": "x"}, "norm": [], "prefix": {"views": [1]}, "head": None, "state": "s"}
    odd |= {"lora": 3, "spec": {"lora": [1]}}
    for manifest in ({}, odd):
        with platform_scope():
            Artifact.objects.filter(pk=weak.pk).update(manifest=manifest)
        assert "weak start" in html(story.alice, f"/policies/{weak.pk}/")


def test_a_name_that_is_markup_stays_text(story: Story, runtime):
    weak = trained(story.alice, runtime, name=MARKUP)
    evaluated(story.alice, runtime, weak, name=MARKUP)
    for path in ("/policies/", f"/policies/{weak.pk}/", f"/jobs/{weak.job_id}/?tab=evaluation"):
        assert "<img" not in html(story.alice, path)


@pytest.mark.parametrize("kind", ["foreign", "missing", "report"])
def test_what_is_no_policy_of_the_tenant_is_a_missing_page(story: Story, runtime, kind):
    weak = trained(story.alice, runtime)
    job = evaluated(story.alice, runtime, weak)
    with platform_scope():
        report = Artifact.objects.get(job=job, kind="evaluation")
    person = story.charlie if kind == "foreign" else story.alice
    key = {"foreign": weak.pk, "missing": uuid.uuid4(), "report": report.pk}[kind]
    assert person.browser().get(f"/policies/{key}/").status_code == 404
    assert person.browser().post(f"/policies/{key}/delete/").status_code == 404
    assert listed(html(story.charlie, "/policies/")) == []


def test_a_policy_is_deleted_and_its_page_says_so(story: Story, runtime):
    weak = trained(story.alice, runtime)
    answer = story.alice.browser().post(f"/policies/{weak.pk}/delete/", {"next": f"/jobs/{weak.job_id}/"})
    assert (answer.status_code, answer["Location"]) == (302, f"/jobs/{weak.job_id}/")
    assert reread(weak).deleted_at is not None
    page = html(story.alice, f"/policies/{weak.pk}/")
    assert "Its file was deleted" in page
    assert "Download" not in page.split('id="main"')[1].split("Manifest")[0]


@pytest.mark.parametrize("target", ["//evil.example/", "https://evil.example/", "javascript:alert(1)", "/\\evil"])
def test_deleting_never_leads_to_another_site(story: Story, runtime, target):
    weak = trained(story.alice, runtime)
    answer = story.alice.browser().post(f"/policies/{weak.pk}/delete/", {"next": target})
    assert answer["Location"] == f"/policies/{weak.pk}/"


def test_deleting_is_refused_while_a_job_that_runs_starts_from_it(story: Story, runtime):
    weak = trained(story.alice, runtime)
    job, _ = start(story.alice, runtime, console.evaluation_spec(str(weak.pk)))
    answer = story.alice.browser().post(f"/policies/{weak.pk}/delete/")
    assert answer.status_code == 409
    page = answer.content.decode()
    assert re.search(r'class="note failed"[^>]*role="alert"', page)
    assert f"Job {job.pk} starts from this file" in page
    assert reread(weak).deleted_at is None


def test_how_long_a_policy_is_kept_is_set_and_taken_back(story: Story, runtime):
    weak = trained(story.alice, runtime)
    browser, path = story.alice.browser(), f"/policies/{weak.pk}/keep/"
    assert browser.post(path, {"keep_days": "30"}).status_code == 302
    assert reread(weak).keep_until is not None
    assert browser.post(path, {"keep_days": ""}).status_code == 302
    assert reread(weak).keep_until is None
    for wrong in ("0", "-1", "soon", "99999999999999999999"):
        answer = browser.post(path, {"keep_days": wrong})
        assert answer.status_code == 422
        assert "keep_days" in answer.content.decode()
        assert f'value="{wrong}" aria-invalid="true"' in answer.content.decode()  # what was typed is still there
    assert reread(weak).keep_until is None


def test_policies_side_by_side_mark_what_differs(story: Story, runtime):
    weak = trained(story.alice, runtime)
    better = reinforced(story.alice, runtime, weak)
    for policy in (weak, better):
        evaluated(story.alice, runtime, policy)
    page = html(story.alice, f"/policies/compare/?policy={weak.pk}&policy={better.pk}&policy={weak.pk}")
    assert "Compare 2 policies" in page
    assert "of what the address names" not in page  # named twice is not named in vain
    differing = re.findall(r'<tr class="diff"><th scope="row">([^<]+)<', page)
    assert {"Made by", "Trained"} <= set(differing)
    assert "Base model" not in differing
    assert "The 95 % intervals of the two best overlap" in page
    assert "Not the same protocol" not in page


def test_results_of_different_protocols_are_said_not_to_compare(story: Story, runtime):
    weak = trained(story.alice, runtime)
    other = trained(story.alice, runtime, name="another")
    evaluated(story.alice, runtime, weak)
    evaluated(story.alice, runtime, other, tasks=console.TASKS)
    page = html(story.alice, f"/policies/compare/?policy={weak.pk}&policy={other.pk}")
    assert "Not the same protocol" in page


def test_another_limit_of_one_task_among_several_is_another_protocol(story: Story, runtime):
    policies = [trained(story.alice, runtime), trained(story.alice, runtime, name="another")]
    manifest = console.evaluation_report(console.TASKS).model_dump(mode="json")
    turned = copy.deepcopy(manifest)
    turned["tasks"].reverse()
    further = copy.deepcopy(manifest)
    further["tasks"][1]["protocol"]["max_steps"] = 99
    for other, same in ((turned, True), (further, False)):
        reports = [read_report(manifest), read_report(other)]
        results = {
            policy.pk: Result(job=policy.job, report=report) for policy, report in zip(policies, reports, strict=True)
        }
        found = comparison_of(policies, results)
        assert found.same_protocol is same
        limits = {row.label: row.values for row in found.groups[-1].rows}["Step limit"]
        assert limits == ("50", "50" if same else "PushCube-v1: 50; libero_spatial/0: 99; libero_spatial/1: 50")


def test_the_page_of_a_policy_asks_anew_for_what_evaluations_find_of_it(story: Story, runtime):
    weak = trained(story.alice, runtime)
    evaluated(story.alice, runtime, weak)
    page = html(story.alice, f"/policies/{weak.pk}/")
    part = re.search(r'<div[^>]*id="policy-found"[^>]*>', page)
    assert part
    assert f'hx-get="/policies/{weak.pk}/"' in part[0]
    assert 'hx-trigger="joynexus:jobs from:body"' in part[0]
    live = page[part.end() : page.index('id="manifest"')]
    for name in ("Lineage", 'id="result"', 'id="measured"', 'data-figure="success-once"'):
        assert name in live


def test_when_all_policies_are_deleted_the_list_says_where_they_are(story: Story, runtime):
    assert "No policies yet" in html(story.alice, "/policies/")
    weak = trained(story.alice, runtime)
    artifact_delete(actor=story.alice.actor, artifact_id=weak.pk)
    page = html(story.alice, "/policies/")
    assert "No policies any more" in page
    assert "Deleted too" in page


def test_comparing_says_what_the_address_names_in_vain(story: Story, runtime):
    weak, foreign = trained(story.alice, runtime), trained(story.charlie, runtime, name="secret")
    page = html(story.alice, f"/policies/compare/?policy={weak.pk}&policy={foreign.pk}&policy=nonsense")
    assert "secret" not in page
    assert "Choose two policies or more" in page
    assert "2 of what the address names are no policies of yours" in page
    many = "&".join(f"policy={uuid.uuid4()}" for _ in range(12))
    assert "At most 10" in html(story.alice, f"/policies/compare/?{many}")
