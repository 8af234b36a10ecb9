from django.apps import AppConfig


class DatasetsConfig(AppConfig):
    name = "tenants.datasets"
    label = "datasets"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from tenants.datasets.selectors import bytes_of
        from tenants.quotas.storage import storage_counts

        storage_counts(bytes_of)
