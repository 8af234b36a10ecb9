"""A real recording all the way: sent in chunks, validated by a child process, counted as it lies, looked into."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from tenants.datasets import services, storage
from tenants.datasets.models import DatasetVersion
from tenants.datasets.tasks import validate_dataset
from tenants.quotas.storage import Stored, storage_expected, storage_of
from tenants.scope import platform_scope
from tests.jobs.test_client import client_of
from tests.support.lerobot_v21 import CAMERA
from tests.support.lerobot_v30 import write_v30
from tests.support.story import Person


@pytest.mark.django_db
def test_a_recording_arrives_in_chunks_is_sealed_counted_and_shown(
    bob: Person, tmp_path: Path, dataset_root: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.JOYNEXUS_PREVIEW_ROOT = tmp_path / "previews"
    monkeypatch.setattr(services, "nudge_validation", lambda version_id: None)
    client = client_of(bob)
    sent = client.datasets.upload(write_v30(tmp_path / "recording"), "push", chunk_bytes=4096)
    validate_dataset(sent["id"])
    version = client.datasets.wait_ready(sent["id"], timeout_s=1)
    with platform_scope():
        row = DatasetVersion.objects.get(pk=sent["id"])
    lies = storage.size_of(storage.stored_path(row.storage_key))
    assert version["size_bytes"] == lies != sent["size_bytes"]
    assert storage_of(bob.tenant) == storage_expected(bob.tenant) == Stored(used_bytes=lies)
    address = f"/api/v1/dataset-versions/{sent['id']}"
    shown = bob.api.get(f"{address}/preview").json()
    assert [row["length"] for row in shown["episodes"]] == [12, 8, 10]
    assert shown["schema_signature"] == row.schema_signature
    curves = bob.api.get(f"{address}/episodes/2").json()
    statistics = shown["summary"]["statistics"]["action"]
    assert statistics["min"][0] - 1e-5 <= min(curves["action"][0]["min"])
    assert max(curves["action"][0]["max"]) <= statistics["max"][0] + 1e-5
    assert bob.api.get(f"{address}/episodes/2/frames/{CAMERA}?index=9").content.startswith(b"\xff\xd8\xff")
    assert bob.api.delete(address).status_code == 204
    assert storage_of(bob.tenant) == Stored()


@pytest.mark.recording
@pytest.mark.django_db
def test_the_real_recording_of_a_humanoid_is_taken_in_and_shown(
    bob: Person, recording: Path, tmp_path: Path, dataset_root: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.JOYNEXUS_PREVIEW_ROOT = tmp_path / "previews"
    monkeypatch.setattr(services, "nudge_validation", lambda version_id: None)
    client = client_of(bob)
    sent = client.datasets.upload(recording, "bottle", chunk_bytes=2**20)
    validate_dataset(sent["id"])
    version = client.datasets.wait_ready(sent["id"], timeout_s=1)
    assert storage_of(bob.tenant) == storage_expected(bob.tenant) == Stored(used_bytes=version["size_bytes"])
    address = f"/api/v1/dataset-versions/{sent['id']}"
    shown = bob.api.get(f"{address}/preview").json()
    told = [json.loads(line) for line in (recording / "meta" / "episodes.jsonl").read_text().splitlines()]
    assert [(row["index"], row["length"]) for row in shown["episodes"]] == [
        (row["episode_index"], row["length"]) for row in told
    ]
    action = pyarrow.parquet.read_table(next(recording.rglob("episode_000005.parquet")))["action"].to_pylist()
    curves = bob.api.get(f"{address}/episodes/5?max_points=50").json()
    assert curves["length"] == len(action)
    buckets = zip(curves["frames"], [*curves["frames"][1:], len(action)], strict=True)
    for number, (begin, end) in enumerate(buckets):
        for dimension, curve in enumerate(curves["action"]):
            values = [row[dimension] for row in action[begin:end]]
            shown_range = curve["min"][number], curve["max"][number]
            assert shown_range == pytest.approx((min(values), max(values)), abs=1e-5)
    (camera,) = [row["key"] for row in shown["summary"]["schema"]["cameras"]]
    last = f"{address}/episodes/5/frames/{camera}?index={len(action) - 1}"
    assert bob.api.get(last).content.startswith(b"\xff\xd8\xff")
