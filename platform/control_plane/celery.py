"""The Celery application: short control-plane tasks only. A job that runs for hours belongs to the runtime."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")

app = Celery("control_plane")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(
    ["jobs", "tenants", "tenants.quotas", "tenants.datasets", "tenants.billing", "tenants.webhooks"]
)
