"""The demo's tenants: made once, remembered in the state folder, so that a second run finds its datasets again."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import httpx
from django.core.management import call_command

from control_plane.demo.scenario import Participant


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """Credentials of one tenant: for people, and for programs."""

    tenant_id: str
    email: str
    password: str
    api_key: str


def labs_ready(participants: Sequence[Participant], url: str, memory: Path) -> dict[str, Lab]:
    """Credentials that work on this platform, remembered or new, by e-mail address."""
    known = json.loads(memory.read_text()) if memory.exists() else {}
    labs = {}
    for who in participants:
        remembered = known.get(who.email)
        if remembered is None or not _works(url, remembered["api_key"]):
            remembered = known[who.email] = _bootstrap(who)
        labs[who.email] = Lab(**{key: remembered[key] for key in ("tenant_id", "email", "password", "api_key")})
    draft = memory.with_suffix(".draft")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(known, indent=2))
    os.replace(draft, memory)
    return labs


def _works(url: str, api_key: str) -> bool:
    answer = httpx.get(f"{url}/api/v1/me", headers={"Authorization": f"Bearer {api_key}"}, timeout=30)
    return answer.status_code == 200


def _bootstrap(who: Participant) -> dict[str, str]:
    out = StringIO()
    call_command("bootstrap", tenant=who.tenant, email=who.email, stdout=out)
    made: dict[str, str] = json.loads(out.getvalue())
    if not made["password"]:
        raise RuntimeError(f"{who.email} exists already, but its password is not in the state folder")
    return made
