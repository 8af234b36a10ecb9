"""A specification as somebody without this console sends it: exactly what the form submits, or a job was given."""

import json
import math
from dataclasses import dataclass
from pprint import pformat
from typing import Any

_WIDTH = 76


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippets:
    """The same request as a command, as a program and as its body."""

    curl: str
    python: str
    json: str


def snippets_of(spec: Any, base_url: str) -> Snippets:
    """``base_url`` without a slash at its end. The API key is left to the reader's environment."""
    body = as_json(spec)
    quoted = body.replace("'", "'\\''")
    curl = (
        f"curl {base_url}/api/v1/jobs \\\n"
        '  -H "Authorization: Bearer $JOYNEXUS_KEY" \\\n'
        '  -H "Idempotency-Key: $(cat /proc/sys/kernel/random/uuid)" \\\n'
        f"  --json '{quoted}'"
    )
    python = (
        "import os\n\nfrom joynexus_client import Client\n\n"
        f'with Client("{base_url}", os.environ["JOYNEXUS_KEY"]) as client:\n'
        f"    job = client.jobs.submit({_indented(pformat(spec, sort_dicts=False, width=_WIDTH))})\n"
        '    print(client.jobs.wait(job["id"])["state"])'
    )
    return Snippets(curl=curl, python=python, json=body)


def as_json(spec: Any) -> str:
    """What is no JSON, an infinite number, becomes the text that was typed; the API refuses both."""
    return json.dumps(finite(spec), indent=2, ensure_ascii=False)


def finite(value: Any) -> Any:
    """The same with texts in the place of numbers that JSON does not have."""
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _indented(text: str) -> str:
    return text.replace("\n", "\n" + " " * 29)
