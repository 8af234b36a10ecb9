from django.apps import AppConfig


class JobsConfig(AppConfig):
    name = "jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from jobs import limits_changed
        from jobs.selectors.jobs import artifact_bytes
        from jobs.selectors.line import quota_use
        from tenants.quotas.storage import storage_counts
        from tenants.quotas.usage import count_jobs_with

        limits_changed.connect()
        storage_counts(artifact_bytes)
        count_jobs_with(quota_use)
