"""Usage, budgets, credit and prices as pages: what they say, who may do what, and that no address breaks them."""

import re
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from frontend import shell
from frontend.usage.choice import By, Sort, choice_of
from frontend.usage.prices import prices_told
from frontend.usage.projection import projected
from tenants.audit.models import AuditEvent
from tenants.billing.models import Budget, PriceShape
from tenants.scope import platform_scope
from tests.support.factories import ProjectFactory, moment
from tests.support.invoices import make_billing_rows, use
from tests.support.jobs import make_job
from tests.support.ledger import give_credit
from tests.support.story import Person, Story, make_person
from tests.support.usage import graduated, ingest, set_price

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume asynchronous"),  # the test client does
]
D = Decimal
MAY = "?month=2026-05"
BUDGETS = "/billing/budgets/"


def read(person: Person, path: str, status: int = 200) -> str:
    answer = person.browser().get(path)
    assert answer.status_code == status, answer.content[:2000]
    return answer.content.decode()


def rows_of(text: str) -> list[str]:
    """The rows of the usage table as plain words."""
    table = text[text.index('id="table"') :]
    body = table[table.index("<tbody>") : table.index("</tbody>")]
    return [" ".join(re.sub(r"<[^>]+>", " ", row).split()) for row in body.split("<tr")[1:]]


def send(person: Person, path: str, **fields: Any) -> Any:
    return person.browser().post(path, fields)


def test_a_month_says_quantities_in_their_units_prices_and_what_was_free(alice: Person) -> None:
    use(alice.tenant, 100_000)
    use(alice.tenant, 500, billable=False, reason="redone_after_restart")
    text = read(alice, f"/usage/{MAY}")
    (row,) = rows_of(text)
    for words in ("Training samples", "100,500", "500 free: done again after a restart", "€5.00"):
        assert words in row
    assert "€0.05 / 1,000\u00a0samples" in text
    assert "May 2026" in text


def test_each_row_leads_to_the_jobs_behind_it(alice: Person) -> None:
    lab: Any = ProjectFactory(tenant=alice.tenant, name="Kitchen <i>")
    job, other = make_job(alice, name="open the <b>door</b>"), make_job(alice, name="elsewhere")
    use(alice.tenant, 100_000, job_id=job.pk, project_id=lab.pk, key_id=alice.key_row.pk)
    use(alice.tenant, 20_000, job_id=other.pk, project_id=other.project_id, at="2026-05-11T12:00:00")
    for by, title in (
        ("project", "Kitchen &lt;i&gt;"),
        ("key", alice.key_row.prefix),
        ("day", "10 May"),
        ("meter", "Training samples"),
    ):
        text = read(alice, f"/usage/{MAY}&by={by}")
        assert title in text
        link = re.search(r'href="(\?[^"]*by=job[^"]*)#table"', text[text.index("<tbody>") :])
        assert link is not None
        behind = read(alice, "/usage/" + link.group(1).replace("&amp;", "&"))
        assert f"/jobs/{job.pk}/" in behind
        assert "open the &lt;b&gt;door" in behind
        assert (f"/jobs/{other.pk}/" in behind) == (by == "meter")


def test_the_table_is_sorted_by_money_or_name_and_the_total_is_of_all(alice: Person) -> None:
    for name, samples in (("b", 20_000), ("a", 60_000), ("c", 40_000)):
        project: Any = ProjectFactory(tenant=alice.tenant, name=f"Project {name}")
        use(alice.tenant, samples, project_id=project.pk)

    def order(sort: str) -> str:
        return "".join(re.findall(r"Project (\w)", " ".join(rows_of(read(alice, f"/usage/{MAY}&by=project{sort}")))))

    assert [order(sort) for sort in ("", "&sort=amount", "&sort=name")] == ["acb", "bca", "abc"]
    assert "€6.00" in read(alice, f"/usage/{MAY}&by=project")


def test_jobs_are_paged_and_asked_for_by_a_constant_number_of_queries(alice: Person, monkeypatch: Any) -> None:
    monkeypatch.setattr(shell, "_spend_once", shell._spend_once.__wrapped__)  # else asked every 15 s only
    browser = alice.browser()

    def queries(path: str) -> int:
        browser.get(path)
        with CaptureQueriesContext(connection) as asked:
            assert browser.get(path).status_code == 200
        return len(asked)

    use(alice.tenant, 1_000, job_id=make_job(alice).pk)
    few = {by: queries(f"/usage/{MAY}&by={by}&split=job") for by in By}
    for number in range(60):
        use(alice.tenant, 1_000 + number, job_id=make_job(alice, name=f"job {number}").pk)
    many = {by: queries(f"/usage/{MAY}&by={by}&split=job") for by in By}
    assert all(many[by] <= few[by] + 1 for by in By), (few, many)  # the largest of all is asked for on later pages
    first = rows_of(read(alice, f"/usage/{MAY}&by=job"))
    second = rows_of(read(alice, f"/usage/{MAY}&by=job&page=2"))
    assert (len(first), len(second)) == (50, 11)
    assert not set(first) & set(second)
    assert "job 59" in first[0]
    assert rows_of(read(alice, f"/usage/{MAY}&by=job&page=999")) == second


@pytest.mark.parametrize(
    "query",
    [
        "month=last", "month=2026-13", "month=9999-01", "month=%00", "by=nonsense", "split=x", "sort=up", "page=0",
        "page=" + "9" * 40, "project=1", "key=x", "meter=gold", "day=2026-02-30", "day=2020-01-01", "by=job&sort=name",
    ],
)  # fmt: skip
def test_an_address_that_says_nothing_is_told_and_breaks_nothing(alice: Person, query: str) -> None:
    assert "was left out" in read(alice, f"/usage/?{query}")


def test_parameters_that_are_not_the_pages_change_nothing(alice: Person) -> None:
    assert "was left out" not in read(alice, "/usage/?utm_source=mail")


@given(
    month=st.dates(date(2020, 1, 1), date(2026, 5, 1)),
    by=st.sampled_from(By),
    sort=st.sampled_from([Sort.LARGEST, Sort.SMALLEST]),
    page=st.integers(1, 999),
    project=st.none() | st.uuids(),
)
def test_a_link_of_the_page_says_exactly_what_was_chosen(month, by, sort, page, project) -> None:
    asked = {"month": f"{month:%Y-%m}", "by": by.value, "sort": sort.value, "page": str(page)}
    asked |= {"project": str(project)} if project else {}
    choice = choice_of(asked, date(2026, 5, 1))
    sent = dict(part.split("=") for part in choice.link(page=page).removeprefix("?").split("&"))
    assert choice_of(sent, date(2026, 5, 1)) == choice
    assert choice.refused == ()


def test_another_month_is_shown_of_the_same_part_in_the_same_order(alice: Person) -> None:
    project = str(uuid.uuid4())
    text = read(alice, f"/usage/?by=job&sort=amount&meter=train.samples&project={project}&page=2")
    form = text.partition('<form method="get">')[2].partition("</form>")[0]
    sent = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form))
    assert sent == {"by": "job", "sort": "amount", "meter": "train.samples", "project": project}


def test_another_labs_usage_names_and_ids_are_nowhere(story: Story) -> None:
    secret: Any = ProjectFactory(tenant=story.alice.tenant, name="Secret project")
    job = make_job(story.alice, name="secret plan")
    use(story.alice.tenant, 777_000, job_id=job.pk, project_id=secret.pk, key_id=story.alice.key_row.pk)
    budget = make_billing_rows(story.alice)[1]
    pages = ["/billing/budgets/", "/billing/credit/", "/billing/credit/csv/", "/billing/prices/", "/billing/invoices/"]
    pages += [f"/usage/{MAY}&by={by}&split={split}" for by in By for split in ("meter", "job", "project")]
    pages += [f"/usage/{MAY}&by=job&project={secret.pk}", f"/usage/{MAY}&by=job&key={story.alice.key_row.pk}"]
    for path in pages:
        answer = story.charlie.browser().get(path)
        text = b"".join(answer)
        for told in ("secret plan", "Secret project", "777,000", str(job.pk), str(budget.pk), "€38.85", "Alice"):
            assert told.encode() not in text, (path, told)
    foreign = send(story.charlie, f"{BUDGETS}{budget.pk}/", amount="5", version="1")
    missing = send(story.charlie, f"{BUDGETS}{uuid.uuid4()}/", amount="5", version="1")
    assert foreign.status_code == missing.status_code == 404
    assert foreign.content == missing.content


def test_a_part_is_the_page_without_its_frame(alice: Person) -> None:
    whole = alice.browser().get("/usage/")
    part = alice.browser().get("/usage/", headers={"HX-Request": "true"})
    assert b"<html" in whole.content
    assert b"<html" not in part.content
    assert b'id="fig-day"' in part.content
    assert "HX-Request" in part["Vary"]


def test_a_budget_is_set_changed_and_ended_through_the_page(alice: Person) -> None:
    answer = send(alice, BUDGETS, amount="10.50", hard="yes")
    assert (answer.status_code, answer["Location"]) == (302, BUDGETS)
    budget = own_budget(alice)
    assert (budget.amount, budget.hard) == (D("10.5"), True)
    assert send(alice, f"{BUDGETS}{budget.pk}/", amount="20", hard="no", version="1").status_code == 302
    budget = own_budget(alice)
    assert (budget.amount, budget.hard, budget.version) == (D(20), False, 2)
    assert send(alice, f"{BUDGETS}{budget.pk}/end/", version="2").status_code == 302
    assert "No budget yet" in read(alice, BUDGETS)
    with platform_scope():
        verbs = set(AuditEvent.objects.filter(tenant=alice.tenant).values_list("verb", flat=True))
    assert verbs >= {"budget.created", "budget.changed", "budget.ended"}


def own_budget(person: Person) -> Budget:
    with platform_scope():
        return Budget.objects.get(tenant=person.tenant, ended_at=None)


@pytest.mark.parametrize("amount", ["", "0", "-5", "1e3", "0.001", "99999999", "much"])
def test_a_refused_amount_is_told_beside_its_field_and_kept_there(alice: Person, amount: str) -> None:
    answer = send(alice, BUDGETS, amount=amount, hard="yes")
    assert answer.status_code == 422
    text = answer.content.decode()
    assert "data-bad" in text
    assert 'class="err"' in text
    assert f'value="{amount}"' in text
    with platform_scope():
        assert not Budget.objects.exists()


def test_a_stale_form_changes_nothing_and_shows_the_present_budget(alice: Person) -> None:
    send(alice, BUDGETS, amount="10")
    budget = own_budget(alice)
    send(alice, f"{BUDGETS}{budget.pk}/", amount="20", version="1")
    for path, fields in ((f"{BUDGETS}{budget.pk}/", {"amount": "30"}), (f"{BUDGETS}{budget.pk}/end/", {})):
        for version in ("1", "", "x"):
            answer = send(alice, path, version=version, **fields)
            assert answer.status_code == 412
            assert "was changed since" in answer.content.decode()
    assert own_budget(alice).amount == 20


def test_a_second_budget_of_the_same_is_refused(alice: Person) -> None:
    send(alice, BUDGETS, amount="10")
    answer = send(alice, BUDGETS, amount="20")
    assert answer.status_code == 409
    assert "has a budget" in answer.content.decode()


def test_only_those_who_manage_money_see_forms_and_may_send_them(story: Story) -> None:
    make_billing_rows(story.alice)
    budget = own_budget(story.alice)
    beth = make_person("beth", story.alice.tenant, "billing")
    for person, may in ((story.alice, True), (beth, True), (story.bob, False), (story.viewer, False)):
        assert ('<form class="budget-form' in read(person, BUDGETS)) == may
        for path in (BUDGETS, f"{BUDGETS}{budget.pk}/", f"{BUDGETS}{budget.pk}/end/"):
            assert (send(person, path, amount="-1").status_code == 403) != may


def test_alerts_and_limits_are_told(alice: Person) -> None:
    now = datetime.now(UTC)
    use(alice.tenant, 180_000, at=now.replace(tzinfo=None).isoformat())
    send(alice, BUDGETS, amount="10")
    text = read(alice, BUDGETS)
    for words in (
        "50&nbsp;% of",
        "80&nbsp;% of",
        "€9.00 spent",
        "Jobs at work",
        "16\u00a0jobs",
        "the platform",
        "at least €9<",
        "0\u00a0s<",
    ):
        assert words in text
    assert "100&nbsp;% of" not in text


def test_the_ledger_is_paged_without_gap_or_repetition_and_comes_as_csv(alice: Person) -> None:
    for _ in range(120):
        give_credit(alice.tenant, "1")
    seen: list[str] = []
    path = "/billing/credit/?kind=grant"
    while path:
        text = read(alice, path)
        seen += re.findall(r'<time datetime="([^"]+)"', text[text.index("Ledger") :])
        older = re.search(r'href="(\?kind=grant&amp;before=[^"]+)">Older', text)
        path = "/billing/credit/" + older.group(1).replace("&amp;", "&") if older else ""
    assert len(seen) == 120
    csv = b"".join(alice.browser().get("/billing/credit/csv/")).decode()
    assert csv.count("grant") == 240
    assert "payment" not in csv
    assert "€120.00" in read(alice, "/billing/credit/?before=nonsense&kind=nonsense")


def test_prices_are_said_in_words_with_an_example_that_is_reckoned(alice: Person) -> None:
    begin = moment("2026-02-01T00:00:00")
    set_price("train.samples", "0.06", per=1_000, valid_from=begin, **graduated((1_000_000, "0.06"), (None, "0.02")))
    set_price("env.steps", "2", per=5_000, valid_from=begin, shape=PriceShape.PACKAGE)
    told = {row.meter: row for row in prices_told(alice.tenant, moment("2026-05-01T00:00:00")).in_force}
    first = "Of a month, the first 1,000,000: €0.06 per 1,000\u00a0samples"
    assert told["train.samples"].words == f"{first}; everything after that: €0.02 per 1,000\u00a0samples"
    assert told["train.samples"].example == "1,500,000 in a month: €70.00"
    assert told["env.steps"].words == "€2.00 for each begun package of 5,000\u00a0steps, counted by the month"
    assert told["env.steps"].example == "12,500 in a month: €6.00"
    text = read(alice, "/billing/prices/")
    assert "Earlier prices" in text
    set_price("env.steps", "3", per=5_000, valid_from=datetime.now(UTC) + timedelta(days=40))
    assert "announced" in read(alice, "/billing/prices/")


def test_a_projection_is_between_the_means_of_whole_days() -> None:
    now = datetime(2026, 5, 11, 12, tzinfo=UTC)
    money = {date(2026, 5, day): D(10) for day in range(1, 8)} | {date(2026, 5, day): D(20) for day in (8, 9, 10)}
    told = projected(money | {date(2026, 5, 11): D(7)}, now)
    assert told is not None
    assert (told.days_left, told.days_known) == (D("20.5"), 10)
    assert (told.day_low, told.day_high) == (D(13), D(20))
    assert (told.low, told.high) == (D(137) + D("20.5") * 13, D(137) + D("20.5") * 20)


def test_days_on_which_nothing_ran_count_in_a_projection_once_the_lab_had_begun() -> None:
    now = datetime(2026, 5, 11, 12, tzinfo=UTC)
    lately = {date(2026, 5, 9): D(28)}
    told = projected(lately, now, since=date(2026, 1, 1))
    assert told is not None
    assert (told.day_low, told.day_high, told.days_known) == (D(1), D(28) / 3, 28)
    quiet = projected({date(2026, 5, 11): D(7)}, now, since=date(2026, 1, 1))
    assert quiet is not None
    assert (quiet.low, quiet.high) == (D(7), D(7))


@given(
    st.dictionaries(st.dates(date(2026, 4, 1), date(2026, 5, 20)), st.decimals(0, 1000, places=2)),
    st.integers(0, 20 * 24 * 60 - 1),
)
def test_a_projection_is_never_less_than_what_is_spent(money, minutes) -> None:
    now = datetime(2026, 5, 1, tzinfo=UTC) + timedelta(minutes=minutes)
    known = {day: amount for day, amount in money.items() if day <= now.date()}
    told = projected(known, now)
    spent = sum((amount for day, amount in known.items() if day.month == 5), D(0))
    whole_days = [day for day in known if day < now.date() and (now.date() - day).days <= 28]
    if told is None:
        assert not [day for day in known if day < now.date()]
    else:
        assert spent <= told.low <= told.high
        assert told.high <= spent + told.days_left * max((known[day] for day in whole_days), default=D(0))


def test_the_month_is_projected_and_compared_with_its_budget(alice: Person) -> None:
    send(alice, BUDGETS, amount="100")
    with time_machine.travel(datetime(2026, 5, 20, 12, tzinfo=UTC), tick=False):
        for day in range(1, 21):
            use(alice.tenant, 100_000, at=f"2026-05-{day:02d}T06:00:00")
        text = read(alice, "/usage/")
    assert "€100.00" in text
    assert '<dd class="warn">€157.50</dd>' in text
    assert "3.23 a day keeps the budget" in text
    assert "11.5 days left" in text


def test_the_file_of_a_narrowed_table_holds_what_the_table_shows(alice: Person) -> None:
    use(alice.tenant, 100_000, job_id=make_job(alice).pk)
    ingest(alice.tenant, samples=20_000, compute_us=5_000, job_id=make_job(alice).pk)
    text = read(alice, f"/usage/{MAY}&by=job&meter=train.samples")
    link = re.search(r'href="(/api/v1/usage/csv[^"]+)"', text)
    assert link is not None
    rows = b"".join(alice.browser().get(link.group(1).replace("&amp;", "&"))).decode().splitlines()
    assert len(rows) == 3
    assert all("train.samples" in row for row in rows[1:])
    assert alice.api.get("/api/v1/usage?meter=gold").status_code == 422
