"""The one pydantic configuration of every message and specification."""

import hashlib
import json
from typing import Any

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """Immutable, and unknown fields are refused by name: nothing a caller asks for is silently ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=True)


def shown(*, label: str = "", unit: str = "") -> dict[str, Any]:
    """How a form calls a field where its name does not say it, and its unit: extensions of the JSON schema."""
    return {name: text for name, text in (("x-label", label), ("x-unit", unit)) if text}


def canonical_json(value: Any) -> bytes:
    """The one byte form that is hashed: sorted keys, no spaces, UTF-8, NaN refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def fingerprint(value: Any) -> str:
    """SHA-256 of ``canonical_json(value)``, in hexadecimal."""
    return hashlib.sha256(canonical_json(value)).hexdigest()
