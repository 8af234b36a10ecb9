"""The Django project: wiring only. Rules live in `tenants` and `jobs`."""

from control_plane.celery import app as celery_app

__all__ = ["celery_app"]
