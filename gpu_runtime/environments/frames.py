"""Frames between a session and its environment process: four bytes of length, one message of ``protocol.wire``."""

import asyncio
import socket
import struct
from typing import Any

from gpu_runtime.protocol.wire import WireError, pack, unpack

FRAME_BYTES_MAX = 256 * 2**20  # a chunk of many environments with large cameras is a tenth of it
_LENGTH = struct.Struct(">I")


def to_frame(message: dict[str, Any]) -> bytes:
    """The bytes of one message."""
    content = pack(message)
    return _LENGTH.pack(len(content)) + content


def receive_blocking(channel: socket.socket) -> dict[str, Any] | None:
    """The next message, in the child; None when the parent has closed the channel. Raises WireError."""
    header = _exactly(channel, _LENGTH.size)
    if header is None:
        return None
    content = _exactly(channel, _length_of(header))
    return None if content is None else _message_of(content)


def _exactly(channel: socket.socket, count: int) -> bytes | None:
    content = bytearray()
    while len(content) < count:
        part = channel.recv(min(count - len(content), 2**20))
        if not part:
            return None
        content += part
    return bytes(content)


async def receive(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The next message, in the parent. Raises WireError, asyncio.IncompleteReadError, ConnectionError."""
    header = await reader.readexactly(_LENGTH.size)
    return _message_of(await reader.readexactly(_length_of(header)))


def _length_of(header: bytes) -> int:
    length: int = _LENGTH.unpack(header)[0]
    if length > FRAME_BYTES_MAX:
        raise WireError(f"a frame of {length} bytes; at most {FRAME_BYTES_MAX} are allowed")
    return length


def _message_of(content: bytes) -> dict[str, Any]:
    message = unpack(content)
    if not isinstance(message, dict):
        raise WireError(f"a frame holds a {type(message).__name__}; it must be a map")
    return message
