"""A ready dataset version never changes again: the database says so, whoever sends the statement.

A later migration that rebuilds the table on SQLite drops its trigger: it must end with `install`.
"""

from django.db.backends.base.schema import BaseDatabaseSchemaEditor

_TABLE = "datasets_datasetversion"
_TRIGGER = f"{_TABLE}_stays_sealed"
SEALED_COLUMNS = (
    "tenant_id",
    "dataset_id",
    "number",
    "state",
    "storage_key",
    "declared",
    "report",
    "summary",
    "schema_signature",
    "statistics_hash",
    "fingerprint",
    "size_bytes",
    "recorded_from",
    "created_at",
    "sealed_at",
)
_MESSAGE = "a ready dataset version never changes"

_POSTGRESQL = f"""
CREATE OR REPLACE FUNCTION refuse_change_of_sealed() RETURNS trigger AS $$
BEGIN
    RAISE EXCEPTION '{_MESSAGE}' USING ERRCODE = 'restrict_violation';
END
$$ LANGUAGE plpgsql;
"""


def install(editor: BaseDatabaseSchemaEditor) -> None:
    """Create the trigger (idempotent)."""
    remove(editor)
    is_postgresql = editor.connection.vendor == "postgresql"
    differs = "IS DISTINCT FROM" if is_postgresql else "IS NOT"
    changed = [f"NEW.{column} {differs} OLD.{column}" for column in SEALED_COLUMNS]
    changed.append(f"(NEW.derived_from_id IS NOT NULL AND NEW.derived_from_id {differs} OLD.derived_from_id)")
    when = f"OLD.state = 'ready' AND ({' OR '.join(changed)})"
    if is_postgresql:
        editor.execute(_POSTGRESQL, params=None)
        body = f"WHEN ({when}) EXECUTE FUNCTION refuse_change_of_sealed()"
    else:
        body = f"WHEN {when} BEGIN SELECT RAISE(ABORT, '{_MESSAGE}'); END"
    editor.execute(f"CREATE TRIGGER {_TRIGGER} BEFORE UPDATE ON {_TABLE} FOR EACH ROW {body}", params=None)


def remove(editor: BaseDatabaseSchemaEditor) -> None:
    """Drop the trigger, for a reversed migration."""
    on = f" ON {_TABLE}" if editor.connection.vendor == "postgresql" else ""
    editor.execute(f"DROP TRIGGER IF EXISTS {_TRIGGER}{on}", params=None)
