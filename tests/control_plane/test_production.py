"""`JOYNEXUS_ENV=production`: no made-up secrets, cookies over TLS only."""

import json
import os
import subprocess
import sys
from pathlib import Path

READ = """
import json
from control_plane import settings as s
names = ["SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE", "SECURE_SSL_REDIRECT", "SECURE_HSTS_SECONDS", "DEBUG"]
print(json.dumps({name: getattr(s, name) for name in names}))
"""


def settings_of(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    base = {name: value for name, value in os.environ.items() if name != "DJANGO_SECRET_KEY"}
    base |= {"JOYNEXUS_STATE": str(tmp_path), "JOYNEXUS_ENV": "production"}
    return subprocess.run(
        [sys.executable, "-c", READ], env=base | environment, capture_output=True, text=True, check=False
    )


def test_production_refuses_to_make_up_its_secret(tmp_path: Path):
    done = settings_of(tmp_path)
    assert done.returncode != 0
    assert "DJANGO_SECRET_KEY is required" in done.stderr


def test_production_sends_cookies_over_tls_only(tmp_path: Path):
    told = json.loads(settings_of(tmp_path, DJANGO_SECRET_KEY="k" * 64).stdout)
    assert told.pop("SECURE_HSTS_SECONDS") == 31_536_000
    assert told == {
        "SESSION_COOKIE_SECURE": True,
        "CSRF_COOKIE_SECURE": True,
        "SECURE_SSL_REDIRECT": True,
        "DEBUG": False,
    }
