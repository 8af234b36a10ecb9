"""Append-only, kept by the database itself: UPDATE and DELETE on the money tables fail, whoever sends them.

A later migration that rebuilds one of these tables on SQLite drops its triggers: it must end with `install`.
"""

from django.db.backends.base.schema import BaseDatabaseSchemaEditor

TABLES = ("billing_priceversion", "billing_usageevent", "billing_ratedusage")

_POSTGRESQL_FUNCTION = """
CREATE OR REPLACE FUNCTION billing_refuse_change() RETURNS trigger AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
$$ LANGUAGE plpgsql;
"""


def install(editor: BaseDatabaseSchemaEditor) -> None:
    """Create the triggers (idempotent)."""
    remove(editor)
    if editor.connection.vendor == "postgresql":
        editor.execute(_POSTGRESQL_FUNCTION, params=None)
    for statement in _statements(editor.connection.vendor):
        editor.execute(statement, params=None)


def remove(editor: BaseDatabaseSchemaEditor) -> None:
    """Drop the triggers: for a reversed migration, and for tests that empty the tables."""
    for table in TABLES:
        for event in _events(editor.connection.vendor):
            name = f"{table}_refuses_{event.lower()}"
            on = f" ON {table}" if editor.connection.vendor == "postgresql" else ""
            editor.execute(f"DROP TRIGGER IF EXISTS {name}{on}", params=None)


def _events(vendor: str) -> tuple[str, ...]:
    return ("UPDATE", "DELETE", "TRUNCATE") if vendor == "postgresql" else ("UPDATE", "DELETE")


def _statements(vendor: str) -> list[str]:
    body = {
        "postgresql": "FOR EACH STATEMENT EXECUTE FUNCTION billing_refuse_change()",
        "sqlite": "BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END",
    }[vendor]
    return [
        f"CREATE TRIGGER {table}_refuses_{event.lower()} BEFORE {event} ON {table} {body.format(table=table)}"
        for table in TABLES
        for event in _events(vendor)
    ]
