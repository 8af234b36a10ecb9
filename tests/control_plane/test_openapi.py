"""The API describes itself, completely, and the description can be read under the strict policy."""

import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
import yaml
from django.core.management import CommandError, call_command
from django.test import Client

from control_plane.management.commands import openapi


@pytest.fixture(scope="module")
def schema() -> dict:
    out = StringIO()
    call_command("spectacular", "--validate", "--fail-on-warn", stdout=out)
    return yaml.safe_load(out.getvalue())


def operations(schema: dict):
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            if method in {"get", "post", "put", "patch", "delete"}:
                yield f"{method.upper()} {path}", operation


ROOT = Path(__file__).resolve().parents[2]


def test_the_description_is_valid_and_without_warnings(schema):
    assert schema["openapi"].startswith("3.1")
    assert len(schema["paths"]) >= 10


def test_every_operation_may_answer_with_a_problem(schema):
    problem = {"$ref": "#/components/schemas/Problem"}
    for name, operation in operations(schema):
        content = operation["responses"]["default"]["content"]
        assert content["application/problem+json"]["schema"] == problem, name


def test_the_committed_description_is_what_the_code_says():
    """If it is not: `python manage.py openapi` writes it anew; read the difference before you commit it.

    On the embedded database, whatever this run uses: how wide integer columns are, and so what fits, differs.
    """
    embedded = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    command = [sys.executable, "manage.py", "openapi", "--check"]
    done = subprocess.run(command, cwd=ROOT, env=embedded, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_description_that_is_out_of_date_is_told_with_the_way_out(monkeypatch, tmp_path):
    committed = tmp_path / "openapi.json"
    monkeypatch.setattr(openapi, "COMMITTED", committed)
    call_command("openapi", stdout=StringIO())
    call_command("openapi", "--check", stdout=StringIO())
    committed.write_text(committed.read_text().replace("/api/v1/webhooks", "/api/v1/hooks"))
    with pytest.raises(CommandError, match="is not what the code says") as told:
        call_command("openapi", "--check", stdout=StringIO())
    assert "/api/v1/hooks" in str(told.value)


def test_callers_may_use_a_key_or_a_session(schema):
    assert set(schema["components"]["securitySchemes"]) == {"apiKey", "session"}


@pytest.mark.django_db
def test_the_description_is_public():
    answer = Client().get("/api/v1/schema")
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("application/vnd.oai.openapi")


@pytest.mark.django_db
def test_the_reader_has_no_inline_script_and_only_own_files():
    answer = Client().get("/api/v1/docs")
    page = answer.content.decode()
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", page, re.DOTALL)
    assert scripts
    for attributes, inline in scripts:
        assert 'src="/' in attributes
        assert inline.strip() == ""
    policy = [directive.strip() for directive in answer["Content-Security-Policy"].split(";")]
    assert "script-src 'self'" in policy
    assert "<style" not in page
    assert not re.findall(r"""(?:src|href)=["']https?://""", page)
