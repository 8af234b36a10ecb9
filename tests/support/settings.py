"""Settings of the tests: a temporary state folder, no broker, quick password hashes. `DATABASE_URL` picks PostgreSQL.

The folder is made before the real settings are read. Child processes of a test run share it; parallel test workers
each have their own.
"""

import atexit
import os
import shutil
import tempfile

_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")
if os.environ.get("JOYNEXUS_TEST_STATE_OF") != _WORKER:
    os.environ["JOYNEXUS_TEST_STATE_OF"] = _WORKER
    os.environ["JOYNEXUS_STATE"] = tempfile.mkdtemp(prefix="joynexus-tests-")
    _OWNER = os.getpid()
    atexit.register(lambda: shutil.rmtree(os.environ["JOYNEXUS_STATE"]) if os.getpid() == _OWNER else None)

from control_plane.settings import *  # noqa: E402, F403
from control_plane.settings import DATABASES, MIDDLEWARE, STATE_DIR  # noqa: E402

if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # A file, not memory: threads of one test need the locking that production has.
    DATABASES["default"]["TEST"] = {"NAME": str(STATE_DIR / "test.sqlite3")}

CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
CELERY_BROKER_URL = "memory://"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
MIDDLEWARE = [name for name in MIDDLEWARE if not name.startswith("whitenoise.")]
