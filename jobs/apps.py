from django.apps import AppConfig


class JobsConfig(AppConfig):
    name = "jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from jobs import limits_changed
        from jobs.selectors.line import quota_use
        from tenants.quotas.usage import count_jobs_with

        limits_changed.connect()
        count_jobs_with(quota_use)
