"""Old events are forgotten, but never before the control plane has them; what keeps bills unique stays long enough."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gpu_runtime.protocol.messages import (
    ErrorBody,
    EventBatch,
    LogWritten,
    MetricsRecorded,
    UsageLine,
    UsageMetered,
    WorkloadState,
)
from gpu_runtime.protocol.wire import decode
from gpu_runtime.services.retention import DAY_US
from gpu_runtime.store.errors import EventsTrimmed
from gpu_runtime.store.journal import Journal
from gpu_runtime.store.records import Entry, WorkloadChange, WorkloadRow, Write
from gpu_runtime.training.clock import unix_us
from tests.support.demonstrations import bind, make_dataset
from tests.support.runtime import TOKEN, ended, make_config, running, submit_message

OLD, NEW = 100, 200


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "journal.sqlite3")
    yield journal
    journal.close()


def entry(body, occurred_at_us: int = OLD, work: str | None = None) -> Entry:
    return Entry(body=body, occurred_at_us=occurred_at_us, job_id="job", attempt=1, tenant_id="a", work=work)


def log(occurred_at_us: int) -> Entry:
    return entry(LogWritten(level="info", message="x" * 500), occurred_at_us)


def usage(event_id: str) -> Entry:
    lines = (UsageLine(meter="train.compute_us", quantity=7),)
    return entry(UsageMetered(event_id=event_id, span_id=event_id, step=1, lines=lines, group_size=1), work="train/1")


def seqs(journal: Journal, after: int) -> list[int]:
    return [event.seq for event in journal.read(after=after, limit=10_000)]


@pytest.mark.parametrize(
    ("through", "before_us", "most", "gone"),
    [(4, 150, 99, 3), (2, 150, 99, 2), (4, 50, 99, 0), (0, 150, 99, 0), (5, 999, 2, 2), (9, 999, 99, 4)],
)
def test_an_event_goes_when_it_is_old_and_applied_and_not_the_newest(
    journal: Journal, through: int, before_us: int, most: int, gone: int
) -> None:
    journal.append(Write(entries=tuple(log(time) for time in (OLD, OLD, OLD, NEW, OLD))))
    assert journal.trim(through=through, before_us=before_us, most=most) == gone
    assert seqs(journal, after=gone) == list(range(gone + 1, 6))
    if gone:
        with pytest.raises(EventsTrimmed, match=f"after is {gone - 1}; events up to {gone} "):
            journal.read(after=gone - 1, limit=1)


def test_the_sequence_goes_on_after_everything_was_trimmed_and_after_a_restart(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    journal.append(Write(entries=tuple(log(OLD) for _ in range(3))))
    journal.trim(through=3, before_us=NEW, most=99)
    journal.close()
    again = Journal(tmp_path / "j")
    assert again.last_seq == 3
    assert again.append(Write(entries=(log(NEW),))) == 4
    with pytest.raises(EventsTrimmed):
        again.read(after=0, limit=1)
    again.close()


def test_a_journal_that_is_trimmed_does_not_grow(journal: Journal) -> None:
    sizes = []
    for _ in range(40):
        last = journal.append(Write(entries=tuple(log(OLD) for _ in range(100))))
        journal.trim(through=last, before_us=NEW, most=1000)
        sizes.append(journal._writer.execute("PRAGMA page_count").fetchone()[0])
    assert sizes[-1] <= 2 * sizes[1], sizes


def test_a_running_attempt_keeps_what_makes_its_bills_unique_and_an_ended_one_leaves_nothing(journal: Journal) -> None:
    row = WorkloadRow(
        job_id="job", attempt=1, tenant_id="a", submit=b"s", digest="d", state=WorkloadState.RUNNING, total_steps=9
    )
    journal.append(Write(accepted=row, entries=(usage("u1"), entry(MetricsRecorded(step=1, values={"loss": 1.0})))))
    journal.append(Write(entries=(log(OLD),)))
    journal.trim(through=2, before_us=NEW, most=99)
    journal.append(Write(entries=(usage("u2"), entry(MetricsRecorded(step=1, values={"loss": 2.0})))))
    (redone,) = [event.body for event in journal.read(after=3, limit=99)]
    assert (redone.event_id, redone.billable) == ("u2", False)
    end = WorkloadChange(job_id="job", attempt=1, state=WorkloadState.SUCCEEDED)
    other = Entry(body=LogWritten(level="info", message=""), occurred_at_us=OLD)
    journal.append(Write(entries=(log(OLD), other), changes=(end,)))
    journal.trim(through=99, before_us=NEW, most=99)
    for table in ("metric_points", "policy_versions", "billed_work", "usage_ids"):
        assert journal._reader.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
    assert journal.workload("job", 1).digest == "d", "the same submit must still be known"


async def test_only_what_a_reader_came_back_for_is_forgotten_and_a_reader_far_behind_is_told(
    tmp_path: Path,
) -> None:
    datasets = tmp_path / "datasets"
    datasets.mkdir()
    binding = bind(datasets, make_dataset(datasets / "one"))
    submit = submit_message(binding, steps=2)
    async with running(make_config(tmp_path / "state", datasets, journal_days=1)) as runtime:
        old = unix_us() - 2 * DAY_US
        await runtime.durability.write(Write(entries=tuple(log(old) for _ in range(5))))
        await runtime.master.submit(submit)
        await ended(runtime, submit)
        last = runtime.journal.last_seq
        transport = httpx.ASGITransport(runtime.gateway().app())
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://runtime", headers=headers) as http:
            batch = decode(EventBatch, (await http.get("/v1/events", params={"after": 0})).content)
            assert len(batch.events) == last
            await http.get("/v1/events", params={"after": last + 1})  # a cursor of another journal says nothing
            assert await runtime.retention.trim() == 0
            await http.get("/v1/events", params={"after": 3})
            assert await runtime.retention.trim() == 3
            await http.get("/v1/events", params={"after": last})
            assert await runtime.retention.trim() == 2
            refused = await http.get("/v1/events", params={"after": 4})
            body = decode(ErrorBody, refused.content)
            assert (refused.status_code, body.code, body.field) == (410, "events_trimmed", "after")
            rest = decode(EventBatch, (await http.get("/v1/events", params={"after": 5})).content)
            assert [event.seq for event in rest.events] == list(range(6, last + 1))
