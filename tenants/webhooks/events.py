"""What a tenant's systems can be told of."""

from django.db import models


class EventType(models.TextChoices):
    """Type of a webhook event; what its ``data`` holds is said where it is written."""

    JOB_STARTED = "job.started"  # an attempt runs on the shared base
    JOB_SUCCEEDED = "job.succeeded"
    JOB_FAILED = "job.failed"
    JOB_CANCELLED = "job.cancelled"  # by its tenant, or stopped at a limit: the reason says which
    DATASET_READY = "dataset.ready"  # a version is sealed and can be trained on
    DATASET_INVALID = "dataset.invalid"
    BUDGET_THRESHOLD_PASSED = "budget.threshold_passed"
    INVOICE_FINALIZED = "invoice.finalized"
    TEST = "test"  # asked for by hand, to one endpoint


SUBSCRIBABLE: tuple[EventType, ...] = tuple(kind for kind in EventType if kind != EventType.TEST)
