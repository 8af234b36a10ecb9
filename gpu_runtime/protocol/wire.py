"""Bytes on the wire: msgpack maps of JSON types and numpy arrays. Nothing executable, ever."""

from typing import Any, TypeVar

import msgpack
import numpy as np
from pydantic import BaseModel

MEDIA_TYPE = "application/msgpack"
ALLOWED_DTYPES = frozenset({"|b1", "|u1", "|i1", "<u2", "<i2", "<i4", "<i8", "<f2", "<f4", "<f8"})
_ARRAY = "__ndarray__"

M = TypeVar("M", bound=BaseModel)


class WireError(ValueError):
    """The bytes are not a well-formed message."""


def pack(value: Any) -> bytes:
    """Encode JSON types and numpy arrays."""
    packed: bytes = msgpack.packb(value, default=_encode_array, use_bin_type=True)
    return packed


def unpack(data: bytes) -> Any:
    """Decode what ``pack`` wrote. Raises WireError for anything else. Arrays are read-only."""
    try:
        return msgpack.unpackb(data, object_hook=_decode_array, raw=False, strict_map_key=True)
    except WireError:
        raise
    except Exception as error:
        raise WireError(f"not a msgpack message: {error}") from error


def encode(message: BaseModel) -> bytes:
    """Encode a protocol message."""
    return pack(message.model_dump(mode="python", by_alias=True))


def decode(kind: type[M], data: bytes) -> M:
    """Decode and validate a protocol message. Raises WireError or pydantic.ValidationError."""
    return kind.model_validate(unpack(data))


def _encode_array(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"cannot send a {type(value).__name__}")
    array = np.ascontiguousarray(value)
    if array.dtype.str not in ALLOWED_DTYPES:
        raise TypeError(f"cannot send an array of {array.dtype}; allowed: {sorted(ALLOWED_DTYPES)}")
    return {_ARRAY: True, "dtype": array.dtype.str, "shape": list(array.shape), "data": array.tobytes()}


def _decode_array(value: dict[str, Any]) -> Any:
    if _ARRAY not in value:
        return value
    dtype, shape, data = value.get("dtype"), value.get("shape"), value.get("data")
    if dtype not in ALLOWED_DTYPES:
        raise WireError(f"array dtype {dtype!r} is not allowed; allowed: {sorted(ALLOWED_DTYPES)}")
    if not isinstance(shape, list) or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise WireError(f"array shape {shape!r} is not a list of sizes")
    expected = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    if not isinstance(data, bytes) or len(data) != expected:
        raise WireError(f"array of shape {shape} and dtype {dtype} needs {expected} bytes")
    return np.frombuffer(data, dtype=dtype).reshape(shape)
