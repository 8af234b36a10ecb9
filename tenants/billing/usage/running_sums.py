"""Adding to running sums: one statement per few hundred rows, exact, the same on every database.

Django's upsert can only overwrite; this one adds.
"""

from collections.abc import Sequence
from typing import Any

from django.db import connection, models

_ROWS_PER_STATEMENT = 500


def sums_add(rows: Sequence[models.Model], *, unique: Sequence[str], sums: Sequence[str]) -> None:
    """Insert these rows; where a row with the same ``unique`` fields exists, add the ``sums`` fields to it.

    The rows must differ in ``unique``. They are written in its order, so that two writers cannot deadlock.
    """
    if not rows:
        return
    names = [_field(rows[0], name).attname for name in unique]
    ordered = sorted(rows, key=lambda row: [str(getattr(row, name)) for name in names])
    for start in range(0, len(ordered), _ROWS_PER_STATEMENT):
        _write(ordered[start : start + _ROWS_PER_STATEMENT], unique, sums)


def _write(rows: Sequence[models.Model], unique: Sequence[str], sums: Sequence[str]) -> None:
    meta = rows[0]._meta
    fields = [field for field in meta.concrete_fields if not field.primary_key]
    quote = connection.ops.quote_name
    table = quote(meta.db_table)
    columns = {field.name: quote(str(field.column)) for field in fields}
    source, values = _source(rows, fields)
    added = ", ".join(f"{columns[name]} = {table}.{columns[name]} + excluded.{columns[name]}" for name in sums)
    statement = (  # names are the model's own, values are parameters
        f"INSERT INTO {table} ({', '.join(columns.values())}) {source} "
        f"ON CONFLICT ({', '.join(columns[name] for name in unique)}) DO UPDATE SET {added}"
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def _source(rows: Sequence[models.Model], fields: Sequence[Any]) -> tuple[str, list[Any]]:
    """The rows in SQL, and its parameters: one array per column where there are arrays, which is far less text."""
    table = [[field.get_db_prep_save(getattr(row, field.attname), connection) for row in rows] for field in fields]
    if connection.vendor == "postgresql":
        arrays = ", ".join(f"%s::{field.db_type(connection)}[]" for field in fields)
        return f"SELECT * FROM UNNEST({arrays})", table  # noqa: S608  types of the model's columns
    one_row = "(" + ", ".join(["%s"] * len(fields)) + ")"
    return "VALUES " + ", ".join([one_row] * len(rows)), [value for row in zip(*table, strict=True) for value in row]


def _field(row: models.Model, name: str) -> Any:
    return row._meta.get_field(name)
