"""`manage.py openapi`: write the API's description into the repository, or with --check compare it."""

import difflib
import json
from itertools import islice
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema

COMMITTED = Path(__file__).resolve().parents[2] / "openapi.json"
REGENERATE = "run: python manage.py openapi"
_DIFFERENCES_SHOWN = 40  # lines


class Command(BaseCommand):
    help = "Write platform/control_plane/openapi.json; --check: fail if it is not what the code says."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="compare instead of writing")

    def handle(self, *args: Any, check: bool, **options: Any) -> None:
        present = description()
        if not check:
            COMMITTED.write_text(present)
            self.stdout.write(f"{COMMITTED} is written")
            return
        committed = COMMITTED.read_text() if COMMITTED.exists() else ""
        if committed != present:
            difference = _difference(committed, present)
            raise CommandError(f"{COMMITTED} is not what the code says; {REGENERATE}\n{difference}")
        self.stdout.write(f"{COMMITTED} is what the code says")


def description() -> str:
    """The API's description as stable text. Raises if it is no valid OpenAPI."""
    schema = SchemaGenerator().get_schema(request=None, public=True)
    validate_schema(schema)
    return json.dumps(schema, indent=1, sort_keys=True, default=str, ensure_ascii=False) + "\n"


def _difference(committed: str, present: str) -> str:
    lines = difflib.unified_diff(committed.splitlines(), present.splitlines(), "committed", "code", lineterm="", n=1)
    return "\n".join(islice(lines, _DIFFERENCES_SHOWN))
