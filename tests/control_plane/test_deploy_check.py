"""`manage.py check --deploy` with the settings of production finds nothing."""

import os
import subprocess
import sys
from pathlib import Path

from control_plane.conf.environment import REPOSITORY


def check(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    base = {"PATH": os.environ["PATH"], "JOYNEXUS_STATE": str(tmp_path), "JOYNEXUS_ENV": "production"}
    base |= {"DJANGO_SECRET_KEY": "".join(map(chr, range(40, 120))), "JOYNEXUS_HOSTS": "vla.example.org"}
    command = [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"]
    return subprocess.run(command, cwd=REPOSITORY, env=base | environment, capture_output=True, text=True, check=False)


def test_a_deployment_by_the_book_has_no_warning(tmp_path: Path):
    done = check(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "no issues" in done.stdout


def test_the_check_can_fail(tmp_path: Path):
    done = check(tmp_path, DJANGO_SECRET_KEY="weak")
    assert done.returncode != 0
    assert "security.W009" in done.stderr


def test_a_header_of_a_proxy_is_believed_only_if_it_was_named(tmp_path: Path):
    code = "from control_plane import settings as s; print(s.SECURE_PROXY_SSL_HEADER, s.SECURE_HSTS_PRELOAD)"
    environment = os.environ | {"JOYNEXUS_STATE": str(tmp_path)}

    def said(**extra: str) -> str:
        done = subprocess.run([sys.executable, "-c", code], env=environment | extra, capture_output=True, text=True)
        return done.stdout.strip()

    assert said() == "None False"
    named = {"JOYNEXUS_PROXY_SSL_HEADER": "X-Forwarded-Proto", "JOYNEXUS_HSTS_PRELOAD": "1"}
    assert said(**named) == "('HTTP_X_FORWARDED_PROTO', 'https') False"
    production = {"JOYNEXUS_ENV": "production", "DJANGO_SECRET_KEY": "k" * 60}
    assert said(**named, **production).endswith("True")
