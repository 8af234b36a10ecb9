"""Final invoices stay as they are, whoever sends the statement: the database refuses to change or delete them.

What becomes of one later is kept beside it: paid, void and why. A later migration that rebuilds the tables on SQLite
must end with `install`.
"""

from django.db.backends.base.schema import BaseDatabaseSchemaEditor

INVOICES, LINES = "billing_invoice", "billing_invoiceline"
_KEPT = (
    *("tenant_id", "kind", "number", "period_start", "period_end", "currency", "total", "corrects_id"),
    "finalized_at",
)
_NAMES = (
    (INVOICES, "billing_invoice_frozen_update", "UPDATE"),
    (INVOICES, "billing_invoice_frozen_delete", "DELETE"),
    (LINES, "billing_invoiceline_frozen_update", "UPDATE"),
    (LINES, "billing_invoiceline_frozen_delete", "DELETE"),
)
_MESSAGE = "a final invoice is never changed"
_REFUSE_SQLITE = f"BEGIN SELECT RAISE(ABORT, '{_MESSAGE}'); END"
_FUNCTION = f"""
CREATE OR REPLACE FUNCTION refuse_frozen() RETURNS trigger AS $$
BEGIN
    RAISE EXCEPTION '{_MESSAGE}' USING ERRCODE = 'restrict_violation';
END
$$ LANGUAGE plpgsql;
"""
_LINES_FUNCTION = f"""
CREATE OR REPLACE FUNCTION refuse_frozen_line() RETURNS trigger AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM {INVOICES} WHERE id = OLD.invoice_id AND state <> 'draft') THEN
        RAISE EXCEPTION '{_MESSAGE}' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
END
$$ LANGUAGE plpgsql;
"""  # noqa: S608


def install(editor: BaseDatabaseSchemaEditor) -> None:
    """Create the triggers (idempotent)."""
    remove(editor)
    make = _postgresql if editor.connection.vendor == "postgresql" else _sqlite
    for statement in make():
        editor.execute(statement, params=None)


def remove(editor: BaseDatabaseSchemaEditor) -> None:
    """Drop the triggers: for a reversed migration, and for tests that empty the tables."""
    for table, name, _ in _NAMES:
        on = f" ON {table}" if editor.connection.vendor == "postgresql" else ""
        editor.execute(f"DROP TRIGGER IF EXISTS {name}{on}", params=None)


def _changed(differs: str) -> str:
    """Of a row that is no draft: what must stay is another, or it becomes a draft again."""
    columns = " OR ".join(f"NEW.{column} {differs} OLD.{column}" for column in _KEPT)
    return f"OLD.state <> 'draft' AND (NEW.state = 'draft' OR {columns})"


def _sqlite() -> list[str]:
    of_final = f"(SELECT state FROM {INVOICES} WHERE id = OLD.invoice_id) <> 'draft'"  # noqa: S608
    conditions = (_changed("IS NOT"), "OLD.state <> 'draft'", of_final, of_final)
    return [
        f"CREATE TRIGGER {name} BEFORE {event} ON {table} FOR EACH ROW WHEN {condition} {_REFUSE_SQLITE}"
        for (table, name, event), condition in zip(_NAMES, conditions, strict=True)
    ]


def _postgresql() -> list[str]:
    conditions = (f"WHEN ({_changed('IS DISTINCT FROM')}) ", "WHEN (OLD.state <> 'draft') ", "", "")
    functions = ("refuse_frozen", "refuse_frozen", "refuse_frozen_line", "refuse_frozen_line")
    return [_FUNCTION, _LINES_FUNCTION] + [
        f"CREATE TRIGGER {name} BEFORE {event} ON {table} FOR EACH ROW {condition}EXECUTE FUNCTION {function}()"
        for (table, name, event), condition, function in zip(_NAMES, conditions, functions, strict=True)
    ]
