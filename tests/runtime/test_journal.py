"""The journal: exactly-once metrics and bills, whole transactions, limits that are felt."""

import math
import sqlite3
from pathlib import Path

import pytest

from gpu_runtime.protocol.messages import (
    LogWritten,
    MetricsRecorded,
    PolicyVersionPublished,
    StateChanged,
    UsageLine,
    UsageMetered,
    WorkloadState,
)
from gpu_runtime.store.errors import DiskFull, JournalUnwritable
from gpu_runtime.store.journal import REDONE, Journal
from gpu_runtime.store.records import Entry, WorkloadChange, WorkloadRow, Write


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    journal = Journal(tmp_path / "journal.sqlite3")
    yield journal
    journal.close()


def entry(body, work: str | None = None) -> Entry:
    return Entry(body=body, occurred_at_us=1, job_id="job", attempt=1, tenant_id="a", work=work)


def usage(event_id: str, work: str) -> Entry:
    lines = (UsageLine(meter="train.compute_us", quantity=7),)
    return entry(UsageMetered(event_id=event_id, span_id=event_id, step=1, lines=lines, group_size=2), work)


def test_each_opening_of_a_journal_is_counted_and_its_name_stays(tmp_path: Path):
    seen = []
    for _ in range(3):
        opened = Journal(tmp_path / "journal.sqlite3")
        seen.append((opened.journal_id, opened.starts))
        opened.close()
    assert seen == [(seen[0][0], count) for count in (1, 2, 3)]


def row(**changes) -> WorkloadRow:
    values = {"job_id": "job", "attempt": 1, "tenant_id": "a", "submit": b"x", "digest": "d", "total_steps": 10}
    return WorkloadRow(**(values | {"state": WorkloadState.ACCEPTED} | changes))


def test_events_come_back_in_order_after_a_cursor(journal: Journal) -> None:
    journal.append(Write(entries=tuple(entry(LogWritten(level="info", message=str(n))) for n in range(5))))
    events = journal.read(after=2, limit=2)
    assert [(event.seq, event.body.message) for event in events] == [(3, "2"), (4, "3")]
    assert journal.last_seq == 5


def test_the_journal_keeps_its_identity_and_its_events_over_a_restart(tmp_path: Path) -> None:
    first = Journal(tmp_path / "j")
    first.append(Write(entries=(entry(StateChanged(state=WorkloadState.RUNNING)),), queue={"s": [1, {"a": 2}]}))
    first.close()
    second = Journal(tmp_path / "j")
    assert (second.journal_id, second.last_seq) == (first.journal_id, 1)
    assert second.queue_dump() == {"s": [1, {"a": 2}]}
    assert Journal(tmp_path / "other").journal_id != first.journal_id


def test_nan_and_infinity_survive_in_metrics(journal: Journal) -> None:
    journal.append(Write(entries=(entry(MetricsRecorded(step=1, values={"a": math.nan, "b": math.inf})),)))
    values = journal.read(after=0, limit=1)[0].body.values
    assert math.isnan(values["a"])
    assert math.isinf(values["b"])


def test_a_redone_step_writes_only_the_metrics_that_are_new(journal: Journal) -> None:
    journal.append(Write(entries=(entry(MetricsRecorded(step=3, values={"loss": 1.0})),)))
    journal.append(Write(entries=(entry(MetricsRecorded(step=3, values={"loss": 9.0, "eval": 2.0})),)))
    journal.append(Write(entries=(entry(MetricsRecorded(step=3, values={"loss": 9.0, "eval": 9.0})),)))
    assert [event.body.values for event in journal.read(after=0, limit=9)] == [{"loss": 1.0}, {"eval": 2.0}]


def test_the_same_work_is_billed_once_and_the_same_event_is_written_once(journal: Journal) -> None:
    for event_id, work in [("s1", "train/1"), ("s1", "train/1"), ("s2", "train/1"), ("s3", "train/2")]:
        journal.append(Write(entries=(usage(event_id, work),)))
    seen = [(e.body.event_id, e.body.billable, e.body.reason) for e in journal.read(after=0, limit=9)]
    assert seen == [("s1", True, None), ("s2", False, REDONE), ("s3", True, None)]


def test_a_write_that_fails_half_way_leaves_nothing(journal: Journal) -> None:
    journal.append(Write(accepted=row()))
    with pytest.raises(Exception, match="UNIQUE"):  # the second row of the same attempt
        journal.append(Write(entries=(usage("s1", "train/1"),), changes=(), accepted=row(digest="other")))
    assert journal.read(after=0, limit=9) == []
    journal.append(Write(entries=(usage("s1", "train/1"),)))
    assert journal.read(after=0, limit=9)[0].body.billable


def test_a_step_never_falls_and_a_state_is_kept_unless_named(journal: Journal) -> None:
    journal.append(Write(accepted=row()))
    change = WorkloadChange(job_id="job", attempt=1, state=WorkloadState.RUNNING, step=5)
    journal.append(Write(changes=(change, WorkloadChange(job_id="job", attempt=1, step=3))))
    assert (journal.workload("job", 1).state, journal.workload("job", 1).step) == (WorkloadState.RUNNING, 5)
    assert [w.job_id for w in journal.unfinished_workloads()] == ["job"]
    journal.append(Write(changes=(WorkloadChange(job_id="job", attempt=1, state=WorkloadState.FAILED, reason="r"),)))
    assert journal.unfinished_workloads() == []
    assert journal.workload("job", 2) is None


def test_a_full_journal_says_so_loses_nothing_and_goes_on_when_the_limit_is_lifted(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", max_bytes=200_000)
    big = Write(entries=(entry(LogWritten(level="info", message="x" * 4000)),))
    with pytest.raises(DiskFull):
        [journal.append(big) for _ in range(200)]
    written = journal.last_seq
    assert 0 < written < 200
    assert len(journal.read(after=0, limit=500)) == written
    journal.set_max_bytes(None)
    assert journal.append(Write(entries=(entry(LogWritten(level="info", message="y")),))) == written + 1


def test_a_probe_fails_as_long_as_the_journal_is_full_and_leaves_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", max_bytes=1)
    with pytest.raises(DiskFull):
        journal.probe()
    journal.set_max_bytes(None)
    journal.probe()
    assert (journal.last_seq, journal.queue_dump()) == (0, None)
    assert journal._reader.execute("SELECT count(*) FROM snapshots").fetchone() == (0,)


def test_listeners_hear_of_each_append_with_events(journal: Journal) -> None:
    heard: list[int] = []
    journal.on_append(heard.append)
    journal.append(Write(entries=(entry(LogWritten(level="info", message="a")),)))
    journal.append(Write(accepted=row()))
    assert heard == [1]


def test_commits_are_synced_to_disk_in_wal_mode(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    assert journal._writer.execute("PRAGMA synchronous").fetchone() == (2,)
    journal.close()
    assert sqlite3.connect(tmp_path / "j").execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_journal_that_turned_read_only_is_unwritable_until_it_is_not(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    write = Write(entries=(entry(LogWritten(level="info", message="a")),))
    writable = journal._writer
    journal._writer = sqlite3.connect(
        f"file:{tmp_path}/j?mode=ro", uri=True, isolation_level=None, check_same_thread=False
    )
    with pytest.raises(JournalUnwritable) as refused:
        journal.append(write)
    assert refused.value.code == "journal_unwritable"
    journal._writer = writable
    assert journal.append(write) == 1


def test_a_policy_version_is_announced_once(journal: Journal) -> None:
    for version in (3, 3, 6):
        body = PolicyVersionPublished(version=version, step=version, checkpoint="c", sha256="s")
        journal.append(Write(entries=(entry(body),)))
    assert [event.body.version for event in journal.read(after=0, limit=9)] == [3, 6]


def test_the_metrics_of_a_step_are_found_whoever_wrote_beside_them(journal: Journal) -> None:
    for step, values in ((1, {"a": 1.0}), (2, {"a": 2.0}), (2, {"b": 3.0}), (3, {"a": 9.0})):
        other = Entry(body=MetricsRecorded(step=step, values={"a": -1.0}), occurred_at_us=1, job_id="other", attempt=1)
        journal.append(Write(entries=(entry(MetricsRecorded(step=step, values=values)), other)))
    assert journal.metrics("job", 1, 2) == {"a": 2.0, "b": 3.0}
