"""REST: a job's events and curves after a cursor, with long polling for machines."""

import time
from dataclasses import asdict
from uuid import UUID

from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.outputs import EventsOutput, MetricsOutput
from jobs.api.queries import WAIT_MAX_S, EventsQuery, MetricsQuery
from jobs.selectors.jobs import job_get
from jobs.selectors.points import POINT_COLUMNS, point_rows
from jobs.selectors.series import POINTS_DEFAULT, POINTS_MAX, series_read
from jobs.selectors.stream import event_page, newest_seq
from jobs.states import TERMINAL
from tenants.bodies import parse_query
from tenants.models import Tenant
from tenants.permissions import Permission
from tenants.requests import TenantRequest
from tenants.tables import MEDIA_TYPE, CsvRenderer, csv_answer, wants_csv

_LOOK_EVERY_S = 0.3
_AFTER = OpenApiParameter("after", int, default=0, description="`seq` of the last answer.")
_WAIT = OpenApiParameter("wait", float, default=0, description=f"Seconds to wait for news, up to {WAIT_MAX_S:g}.")


class JobEventsApi(APIView):
    """State changes, log lines and publications of a job, in order."""

    permission = {"GET": Permission.JOBS_READ}

    @extend_schema(
        operation_id="jobs_events",
        parameters=[_AFTER, _WAIT, OpenApiParameter("limit", int, default=100, description="1 to 500.")],
        responses=EventsOutput,
    )
    def get(self, request: TenantRequest, job_id: UUID) -> Response:
        query = parse_query(EventsQuery, request.query_params)
        deadline_s = time.monotonic() + query.wait
        page = event_page(request.tenant, job_id, after=query.after, limit=query.limit)
        # News may be metric points only: look again from where they ended, until an event comes or time is up.
        while not page.events and _await_news(request.tenant, job_id, page.seq, deadline_s - time.monotonic()):
            page = event_page(request.tenant, job_id, after=page.seq, limit=query.limit)
        return Response({"events": page.events, "seq": page.seq, "more": page.more, "state": page.job.state})


class JobMetricsApi(APIView):
    """Curves of a job."""

    permission = {"GET": Permission.JOBS_READ}
    renderer_classes = [JSONRenderer, CsvRenderer]

    @extend_schema(
        operation_id="jobs_metrics",
        parameters=[
            _AFTER,
            _WAIT,
            OpenApiParameter("series", str, description="Names, separated by commas; default: all."),
            OpenApiParameter("from", OpenApiTypes.INT, description="First step."),
            OpenApiParameter("to", OpenApiTypes.INT, description="Last step."),
            OpenApiParameter("max_points", int, default=POINTS_DEFAULT, description=f"Per curve, 1 to {POINTS_MAX}."),
        ],
        responses={(200, "application/json"): MetricsOutput, (200, MEDIA_TYPE): OpenApiTypes.STR},
    )
    def get(self, request: TenantRequest, job_id: UUID) -> HttpResponseBase:
        """Decimated to equal-step buckets that keep last, minimum and maximum; as CSV every point there is."""
        query = parse_query(MetricsQuery, request.query_params)
        _await_news(request.tenant, job_id, query.after, query.wait)
        if wants_csv(request):
            rows = point_rows(
                request.tenant,
                job_id,
                after=query.after,
                names=query.names,
                from_step=query.from_,
                to_step=query.to,
            )
            return csv_answer(POINT_COLUMNS, rows, name=f"metrics-{job_id}")
        page = series_read(
            request.tenant,
            job_id,
            after=query.after,
            names=query.names,
            from_step=query.from_,
            to_step=query.to,
            max_points=query.max_points,
        )
        job = job_get(request.tenant, job_id)
        return Response({"seq": page.seq, "state": job.state, "series": [asdict(curve) for curve in page.series]})


def _await_news(tenant: Tenant, job_id: UUID, after: int, wait_s: float) -> bool:
    """Wait for a row after ``after``; False if none came in time or the job has ended. Raises the 404."""
    job = job_get(tenant, job_id)
    deadline_s = time.monotonic() + wait_s
    while True:
        if newest_seq(tenant, job_id) > after:
            return True
        left_s = deadline_s - time.monotonic()
        if left_s <= 0 or job.state in TERMINAL:
            return False
        time.sleep(min(_LOOK_EVERY_S, left_s))
        job = job_get(tenant, job_id)
