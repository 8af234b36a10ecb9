"""Fixtures every suite shares: the story's people, and a database that starts every test freshly migrated."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import TransactionTestCase

from tests.support.story import Api, Person, Story, api_client, make_story

pytest_plugins = ["tests.support.skips"]


@pytest.fixture(scope="session", autouse=True)
def _flush_restores_what_migrations_made() -> Iterator[None]:
    """Tests with real transactions empty every table afterwards, append-only ones and what was seeded too."""
    from django.db import connection

    from tenants import append_only
    from tenants.billing import frozen, seeds
    from tenants.quotas.seeds import add_missing_limits

    original = TransactionTestCase._fixture_teardown

    def teardown(case: TransactionTestCase) -> None:
        with connection.schema_editor() as editor:
            append_only.remove(editor, append_only.tables())
            frozen.remove(editor)
        original(case)
        with connection.schema_editor() as editor:
            append_only.install(editor, append_only.tables())
            frozen.install(editor)
        seeds.add_missing_prices()
        add_missing_limits()

    TransactionTestCase._fixture_teardown = teardown
    yield
    TransactionTestCase._fixture_teardown = original


@pytest.fixture(autouse=True)
def _no_request_was_counted() -> None:
    """Request counters outlive a test otherwise: the cache is not the database's."""
    from django.core.cache import cache

    cache.clear()


@pytest.fixture
def dataset_root(settings: Any, tmp_path: Path) -> Path:
    """A dataset root of this test's own, empty."""
    settings.JOYNEXUS_DATASET_ROOT = tmp_path / "datasets"
    settings.JOYNEXUS_DATASET_ROOT.mkdir()
    return settings.JOYNEXUS_DATASET_ROOT


@pytest.fixture
def story(db: None) -> Story:
    return make_story()


@pytest.fixture
def alice(story: Story) -> Person:
    return story.alice


@pytest.fixture
def bob(story: Story) -> Person:
    return story.bob


@pytest.fixture
def viewer(story: Story) -> Person:
    return story.viewer


@pytest.fixture
def charlie(story: Story) -> Person:
    return story.charlie


@pytest.fixture
def anonymous(db: None) -> Api:
    """A client without credentials."""
    return api_client()


@pytest.fixture(scope="session")
def recording() -> Path:
    """The real recording that lies beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data" / "g1_bottle_v21"
    path = Path(os.environ.get("JOYNEXUS_REAL_DATA", beside))
    if not path.is_dir():
        pytest.skip("real recording missing: set JOYNEXUS_REAL_DATA to a LeRobot v2.1 directory")
    return path
