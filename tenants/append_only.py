"""Rows that are written once: the model refuses, and so does the database, whoever sends the statement.

A later migration that rebuilds such a table on SQLite drops its triggers: it must end with `install`.
"""

from collections.abc import Sequence

from django.db import models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

_POSTGRESQL_FUNCTION = """
CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
$$ LANGUAGE plpgsql;
"""


class AppendOnly(models.Model):
    """A row that can be written once. Corrections are new rows."""

    class Meta:
        abstract = True

    def save(self, *args: object, **kwargs: object) -> None:
        if not self._state.adding:
            raise TypeError(f"{type(self).__name__} is append-only")
        super().save(*args, **kwargs)  # type: ignore[arg-type]

    def delete(self, *args: object, **kwargs: object) -> tuple[int, dict[str, int]]:
        raise TypeError(f"{type(self).__name__} is append-only")


def tables() -> tuple[str, ...]:
    """Every append-only table there is. Migrations name theirs instead: they must not change with the code."""
    from django.apps import apps

    return tuple(model._meta.db_table for model in apps.get_models() if issubclass(model, AppendOnly))


def install(editor: BaseDatabaseSchemaEditor, tables: Sequence[str]) -> None:
    """Create the triggers of these tables (idempotent)."""
    remove(editor, tables)
    if editor.connection.vendor == "postgresql":
        editor.execute(_POSTGRESQL_FUNCTION, params=None)
    for statement in _statements(editor.connection.vendor, tables):
        editor.execute(statement, params=None)


def remove(editor: BaseDatabaseSchemaEditor, tables: Sequence[str]) -> None:
    """Drop the triggers: for a reversed migration, and for tests that empty the tables."""
    for table in tables:
        for event in _events(editor.connection.vendor):
            name = f"{table}_refuses_{event.lower()}"
            on = f" ON {table}" if editor.connection.vendor == "postgresql" else ""
            editor.execute(f"DROP TRIGGER IF EXISTS {name}{on}", params=None)


def _events(vendor: str) -> tuple[str, ...]:
    return ("UPDATE", "DELETE", "TRUNCATE") if vendor == "postgresql" else ("UPDATE", "DELETE")


def _statements(vendor: str, tables: Sequence[str]) -> list[str]:
    body = {
        "postgresql": "FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()",
        "sqlite": "BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END",
    }[vendor]
    return [
        f"CREATE TRIGGER {table}_refuses_{event.lower()} BEFORE {event} ON {table} {body.format(table=table)}"
        for table in tables
        for event in _events(vendor)
    ]
