"""REST: what an evaluation found."""

from uuid import UUID

from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.evaluation_output import EvaluationOutput
from jobs.api.queries import Formatted
from jobs.selectors.evaluation import EPISODE_COLUMNS, episodes_of, evaluation_report
from tenants.bodies import parse_query
from tenants.permissions import Permission
from tenants.requests import TenantRequest
from tenants.tables import MEDIA_TYPE, CsvRenderer, csv_answer, wants_csv


class EvaluationQuery(Formatted):
    """In which form."""


class JobEvaluationApi(APIView):
    """The report of an evaluation job."""

    permission = {"GET": Permission.JOBS_READ}
    renderer_classes = [JSONRenderer, CsvRenderer]

    @extend_schema(
        operation_id="jobs_evaluation",
        responses={(200, "application/json"): EvaluationOutput, (200, MEDIA_TYPE): OpenApiTypes.STR},
    )
    def get(self, request: TenantRequest, job_id: UUID) -> HttpResponseBase:
        """The full report as it was published; as CSV its episodes, one row each. 409 until there is one."""
        parse_query(EvaluationQuery, request.query_params)
        report = evaluation_report(request.tenant, job_id)
        if wants_csv(request):
            return csv_answer(EPISODE_COLUMNS, (own.row for own in episodes_of(report)), name=f"episodes-{job_id}")
        return Response(report)
