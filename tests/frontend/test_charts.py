"""What a page of charts starts from: cards by group, what x may be, the card of a series that nobody foresaw."""

import json
import re
from typing import Any

import pytest
from pydantic import ValidationError

from frontend.charts import KIND_BOARDS, board_of
from frontend.charts.model import Chart
from gpu_runtime.protocol.messages import WorkloadState
from gpu_runtime.protocol.policy_specs import CollectionSpec
from jobs.api.queries import MetricsQuery
from tests.support.jobs import relay_all, reread, start_job
from tests.support.memory_runtime import InMemoryRuntime
from tests.support.story import Person

pytestmark = pytest.mark.django_db


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> InMemoryRuntime:
    own = InMemoryRuntime()
    monkeypatch.setattr("jobs.runtime_client.connect", lambda: own)
    return own


def charts_page(person: Person, job_id: Any) -> str:
    answer = person.browser().get(f"/jobs/{job_id}/?tab=charts")
    assert answer.status_code == 200
    return answer.content.decode()


def told(page: str) -> dict[str, Any]:
    found = re.search(r'<script id="charts" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def every_chart(kind: str) -> dict[str, Chart]:
    return {chart.id: chart for group in board_of(kind).groups for chart in group.charts}


def test_a_page_has_a_card_for_each_chart_and_one_to_copy_for_other_series(
    alice: Person, runtime: InMemoryRuntime
) -> None:
    job, key = start_job(alice, runtime)
    runtime.tell_state(*key, WorkloadState.RUNNING)
    relay_all(runtime)
    page = charts_page(alice, job.pk)
    data = told(page)
    assert re.findall(r'data-chart="([^"]+)"', page) == [chart["id"] for chart in data["charts"]]
    assert 'data-chart=""' in page.split("<template data-card-template>")[1]
    assert data["began"] == reread(job).started_at.timestamp()
    assert data["axes"] == [
        {"value": "", "words": "Step"},
        {"value": "@relative", "words": "Relative time"},
        {"value": "@wall", "words": "Wall time"},
    ]


def test_another_tenant_sees_no_charts(alice: Person, charlie: Person, runtime: InMemoryRuntime) -> None:
    job, _ = start_job(alice, runtime)
    assert charlie.browser().get(f"/jobs/{job.pk}/?tab=charts").status_code == 404


def test_environment_steps_are_an_axis_where_a_series_counts_them() -> None:
    named = {kind: [words for _, words in board.axes] for kind, board in KIND_BOARDS.items()}
    assert [kind for kind, words in named.items() if "Environment steps" in words] == ["rl"]
    assert named["rl"][0] == "Policy version"


def test_older_decisions_are_counted_up_to_the_bound_that_a_specification_may_have() -> None:
    older = every_chart("rl")["ages"].curves[-1]
    bound = int(older.more[-1].rsplit("/", 1)[1])
    least: dict[str, Any] = {"environment": {"id": "x"}, "seats": 1}
    with pytest.raises(ValidationError, match="max_staleness"):
        CollectionSpec.model_validate(least | {"max_staleness": bound + 1})
    try:
        CollectionSpec.model_validate(least | {"max_staleness": bound})
    except ValidationError as error:
        assert "max_staleness" not in str(error)  # noqa: PT017 - what else it needs is not this test's


@pytest.mark.parametrize("kind", KIND_BOARDS)
def test_every_chart_can_be_asked_for_with_all_of_its_curves(kind: str) -> None:
    for chart in (chart for group in KIND_BOARDS[kind].groups for chart in group.charts):
        names = [name for curve in chart.curves for name in (curve.series, *curve.more)]
        assert set(MetricsQuery.model_validate({"series": ",".join(names)}).names) == set(names)


def test_what_services_tell_looks_the_same_for_every_kind() -> None:
    latencies = [every_chart(kind)["predict"] for kind in ("rl", "evaluation", "rollout")]
    assert len(set(latencies)) == 1
    assert {every_chart(kind)["group"].curves[0].series for kind in ("rl", "evaluation", "rollout")} == {
        "service/predict_group_size"
    }


def test_the_share_of_stored_features_is_a_chart_of_fine_tuning_alone() -> None:
    shown = {kind for kind in KIND_BOARDS for chart in every_chart(kind).values() if chart.id == "hits"}
    assert shown == {"sft"}
    (curve,) = every_chart("sft")["hits"].curves
    assert (curve.series, every_chart("sft")["hits"].scale) == ("service/feature_hits", 1.0)


@pytest.mark.parametrize("kind", KIND_BOARDS)
def test_a_search_finds_a_chart_by_its_title_and_by_its_series(kind: str) -> None:
    for chart in every_chart(kind).values():
        assert chart.title.lower() in chart.words
        assert all(curve.series in chart.words for curve in chart.curves)
