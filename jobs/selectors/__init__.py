"""Reading jobs. Every function takes the tenant first and opens its scope; operators' reads say so."""

from jobs.selectors.jobs import (
    artifact_get,
    artifact_list,
    compute_share,
    job_for_user,
    job_get,
    job_list,
    policy_version_list,
)
from jobs.selectors.money import BillingCheck, reconcile_billing
from jobs.selectors.runtime import runtime_bases, runtime_report
from jobs.selectors.series import series_read
from jobs.selectors.stream import StreamPage, event_page, stream_page

__all__ = [
    "BillingCheck",
    "StreamPage",
    "artifact_get",
    "artifact_list",
    "compute_share",
    "event_page",
    "job_for_user",
    "job_get",
    "job_list",
    "policy_version_list",
    "reconcile_billing",
    "runtime_bases",
    "runtime_report",
    "series_read",
    "stream_page",
]
