"""REST: which jobs use a dataset version."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from jobs.api.outputs import JobOutput
from jobs.selectors.filters import JobFilter
from jobs.selectors.jobs import job_list
from tenants.datasets.selectors import version_get
from tenants.listing import ListView, PageQuery
from tenants.permissions import Permission
from tenants.requests import TenantRequest


class DatasetVersionJobsApi(ListView):
    """Jobs of one dataset version."""

    permission = {"GET": Permission.JOBS_READ}
    serializer_class = JobOutput

    def rows(self, request: TenantRequest, query: PageQuery) -> Any:
        version = version_get(request.tenant, self.kwargs["version_id"])
        return job_list(request.tenant, JobFilter(archived=None)).filter(dataset_version=version)

    @extend_schema(operation_id="dataset_versions_jobs")
    def get(self, request: TenantRequest, version_id: UUID) -> Response:
        """Jobs that learn, or learned, from it, newest first. While there is one, it cannot be deleted."""
        return self.list(request)
