"""REST: the resident base models, and how busy the shared services are."""

from dataclasses import asdict

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.runtime_outputs import BasesOutput, RuntimeOutput
from jobs.selectors.runtime import bases_offered, runtime_report
from tenants.listing import refuse_query
from tenants.permissions import Permission
from tenants.requests import TenantRequest


class BaseListApi(APIView):
    """Base models a job may name."""

    permission = {"GET": Permission.JOBS_READ}

    @extend_schema(operation_id="bases_list", responses=BasesOutput)
    def get(self, request: TenantRequest) -> Response:
        refuse_query(request)
        return Response({"results": bases_offered()})


class RuntimeApi(APIView):
    """The GPU runtime as a whole: nothing in it tells tenants apart."""

    permission = {"GET": Permission.RUNTIME_READ}

    @extend_schema(operation_id="runtime", responses=RuntimeOutput)
    def get(self, request: TenantRequest) -> Response:
        refuse_query(request)
        return Response(RuntimeOutput(asdict(runtime_report())).data)
