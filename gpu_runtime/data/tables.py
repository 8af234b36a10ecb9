"""Parquet tables within bounds: the footer's claims are checked before anything is allocated for them.

What rows unpack to is bounded by the reader's memory limit. The metadata of a column chunk are never asked for:
where they are damaged, Arrow ends the process (pyarrow 26).

Shapes: N rows, D dimensions of one vector feature.
"""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gpu_runtime.data.errors import DatasetError
from gpu_runtime.data.files import existing_file

COLUMNS_MAX = 20_000
FOOTER_BYTES_MAX = 64 * 2**20
ROWS_MAX = 200_000_000
_MAGIC = b"PAR1"


def _check_footer(path: Path, relative: str) -> None:
    """Refuse truncated files and giant footers (10^6 columns) before Arrow parses them."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size < 12:
            raise DatasetError("parquet_truncated", f"{relative} has only {size} bytes", file=relative)
        file.seek(size - 8)
        length, magic = struct.unpack("<I4s", file.read(8))
    if magic != _MAGIC or length + 12 > size:
        raise DatasetError(
            "parquet_truncated", f"{relative} does not end as a parquet file: truncated?", file=relative
        )
    if length > FOOTER_BYTES_MAX:
        raise DatasetError(
            "metadata_too_large", f"{relative} has {length} bytes of metadata; too many columns?", file=relative
        )


def open_parquet(root: Path, relative: str) -> pq.ParquetFile:
    """Open a parquet file whose footer passed the checks; every Arrow failure becomes a DatasetError."""
    path = existing_file(root, relative)
    _check_footer(path, relative)
    try:
        file = pq.ParquetFile(path, thrift_string_size_limit=FOOTER_BYTES_MAX, thrift_container_size_limit=1_000_000)
        _ = file.schema_arrow.names, file.schema.names  # decodes the names: they may not be UTF-8
    except MemoryError:  # Arrow's own MemoryError is also an ArrowException
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DatasetError("parquet_unreadable", f"{relative} cannot be read: {error}", file=relative) from error
    if file.metadata.num_columns > COLUMNS_MAX:
        raise DatasetError(
            "too_many_columns",
            f"{relative} has {file.metadata.num_columns} columns; at most {COLUMNS_MAX} are allowed",
            file=relative,
        )
    if not 0 <= file.metadata.num_rows <= ROWS_MAX:
        raise DatasetError("parquet_unreadable", f"{relative} claims {file.metadata.num_rows} rows", file=relative)
    return file


def check_row_count(root: Path, relative: str, rows: int) -> None:
    """Refuse a file that has other than ``rows`` rows, before any of them is read."""
    found = open_parquet(root, relative).metadata.num_rows
    if found != rows:
        raise DatasetError("episode_length", f"the file has {found} rows; its episodes have {rows}", file=relative)


def read_columns(root: Path, relative: str, columns: Sequence[str]) -> pa.Table:
    """Read whole columns; a missing column is refused by name."""
    file = open_parquet(root, relative)
    present = set(file.schema_arrow.names)
    for name in columns:
        if name not in present:
            raise DatasetError("column_missing", f"{relative} has no column {name!r}", file=relative, feature=name)
    try:
        return file.read(columns=list(columns), use_threads=False)
    except MemoryError:  # Arrow's own MemoryError is also an ArrowException
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DatasetError("parquet_unreadable", f"{relative} cannot be read: {error}", file=relative) from error


def read_rows(root: Path, relative: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    """``read_columns`` of a small metadata table as one dict per row."""
    try:
        return read_columns(root, relative, columns).to_pylist()
    except UnicodeDecodeError as error:
        raise DatasetError("parquet_unreadable", f"{relative}: a text is not UTF-8: {error}", file=relative) from error


def iter_rows(root: Path, relative: str, column: str, start: int, stop: int) -> Iterator[pa.Array]:
    """Rows ``start..stop`` of one column in small batches, reading only the row groups that hold them."""
    file = open_parquet(root, relative)
    if column not in file.schema_arrow.names:
        raise DatasetError("column_missing", f"{relative} has no column {column!r}", file=relative, feature=column)
    first = 0
    try:
        for group in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if first < stop and first + rows > start:
                position = first
                for batch in file.iter_batches(32, row_groups=[group], columns=[column], use_threads=False):
                    low, high = max(start - position, 0), min(stop - position, batch.num_rows)
                    if low < high:
                        yield batch.column(0).slice(low, high - low)
                    position += batch.num_rows
            first += rows
    except MemoryError:  # Arrow's own MemoryError is also an ArrowException
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DatasetError("parquet_unreadable", f"{relative} cannot be read: {error}", file=relative) from error


def _flat_values(column: pa.ChunkedArray, dim: int, name: str, relative: str) -> tuple[np.ndarray, int]:
    """Values of every row, end to end, and the true size of one row."""
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if array.null_count:
        raise DatasetError("value_missing", f"{name} has {array.null_count} empty cells", file=relative, feature=name)
    if pa.types.is_fixed_size_list(array.type):
        width, values = array.type.list_size, array.flatten()
    elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        lengths = np.diff(array.offsets.to_numpy())
        wrong = np.flatnonzero(lengths != dim)
        width, values = (dim if not wrong.size else int(lengths[wrong[0]])), array.flatten()
    else:
        width, values = 1, array
    if values.null_count:
        raise DatasetError("value_missing", f"{name} has empty values", file=relative, feature=name)
    if not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type) or pa.types.is_boolean(values.type)):
        raise DatasetError("column_type", f"{name} holds {values.type}; numbers expected", file=relative, feature=name)
    return values.to_numpy(zero_copy_only=False), width


def vector_column(table: pa.Table, name: str, dim: int, relative: str) -> np.ndarray:
    """Column ``name`` as float32 [N, D]; refuses rows that do not have ``dim`` numbers."""
    if table.num_rows == 0:
        return np.zeros((0, dim), np.float32)
    values, width = _flat_values(table.column(name), dim, name, relative)
    if width != dim or values.size != table.num_rows * dim:
        raise DatasetError(
            "vector_size", f"{name} has rows of {width} numbers; info.json says {dim}", file=relative, feature=name
        )
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes infinite and is reported as such
        return values.astype(np.float32).reshape(-1, dim)


def scalar_column(table: pa.Table, name: str, dtype: type[np.generic], relative: str) -> np.ndarray:
    """A bookkeeping column (``timestamp``, ``frame_index`` …) as [N]; rows may be numbers or lists of one."""
    if table.num_rows == 0:
        return np.zeros(0, dtype)
    values, width = _flat_values(table.column(name), 1, name, relative)
    if width != 1 or values.size != table.num_rows:
        raise DatasetError("vector_size", f"{name} must hold one number per row", file=relative, feature=name)
    return values.astype(dtype)
