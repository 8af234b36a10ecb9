"""REST: what a job would cost, whether it would be admitted and when it would start, without submitting it."""

from decimal import Decimal
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.examples import EXAMPLES
from jobs.api.outputs import AnyJobSpec
from jobs.services.estimates.adapter_size import AdapterSize
from jobs.services.estimates.estimate import EstimateLine, Money
from jobs.services.estimates.forecast import Forecast, job_forecast
from tenants.errors import ApplicationError
from tenants.listing import refuse_query
from tenants.permissions import Permission
from tenants.requests import TenantRequest


class MoneyRangeOutput(serializers.Serializer[Any]):
    """Exact digits as strings. `likely` counts a bound in full where there is no experience."""

    low = serializers.CharField()
    likely = serializers.CharField()
    high = serializers.CharField()


class EstimatePriceOutput(serializers.Serializer[Any]):
    """The price now, before the priority's factor."""

    shape = serializers.ChoiceField(choices=["unit", "graduated", "package"])
    amount = serializers.CharField()
    per = serializers.IntegerField(help_text="Units the amount is for.")
    tiers = serializers.ListField(child=serializers.DictField())


class EstimateLineOutput(serializers.Serializer[Any]):
    """One meter. Null quantities: unknown, and not in any sum."""

    meter = serializers.CharField()
    basis = serializers.CharField(help_text="exact, at most, measured (of your last jobs), or unknown.")
    low = serializers.IntegerField(allow_null=True)
    likely = serializers.IntegerField(allow_null=True)
    high = serializers.IntegerField(allow_null=True)
    price = EstimatePriceOutput()
    cost = MoneyRangeOutput(allow_null=True)


class EstimateCostOutput(MoneyRangeOutput):
    complete = serializers.BooleanField(help_text="False: some meter is unknown, and the sums are without it.")


class EstimateLoraOutput(serializers.Serializer[Any]):
    """The adapter that the job trains; without stored features, every epoch costs a forward and a backward pass."""

    parameters = serializers.IntegerField(allow_null=True, help_text="Null: the runtime has not told of the base yet.")
    memory_bytes = serializers.IntegerField(
        allow_null=True, help_text="On the device: weights, gradients and AdamW's two moments, fp32; no activations."
    )


class RefusalOutput(serializers.Serializer[Any]):
    """What submitting would be refused with."""

    code = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    resource = serializers.CharField(allow_null=True)
    limit = serializers.CharField(allow_null=True)
    used = serializers.CharField(allow_null=True)


class EstimatePlaceOutput(serializers.Serializer[Any]):
    position = serializers.IntegerField()
    of = serializers.IntegerField()
    reason = serializers.CharField(
        allow_blank=True, help_text="What it would wait for; empty: it would start at once."
    )


class JobEstimateOutput(serializers.Serializer[Any]):
    """A forecast: prices and limits are those of this moment, usage is rated when it happens."""

    project = serializers.CharField(help_text="Its slug.")
    priority = serializers.IntegerField()
    priority_permille = serializers.IntegerField(help_text="Thousandths of the price that this priority pays.")
    currency = serializers.CharField()
    lines = EstimateLineOutput(many=True)
    cost = EstimateCostOutput()
    lora = EstimateLoraOutput(allow_null=True, help_text="Null: the job trains none.")
    hold = serializers.CharField(help_text="Reserved while the job lives: budget.max_cost, else the known high end.")
    admitted = serializers.BooleanField()
    refusals = RefusalOutput(many=True)
    queue = EstimatePlaceOutput()


class JobEstimateApi(APIView):
    """Estimating."""

    permission = {"POST": Permission.JOBS_WRITE}

    @extend_schema(operation_id="jobs_estimate", examples=EXAMPLES, request=AnyJobSpec, responses=JobEstimateOutput)
    def post(self, request: TenantRequest) -> Response:
        """Judge a specification as POST /jobs would, and price it; nothing is changed. 422 as there."""
        refuse_query(request)
        forecast = job_forecast(tenant=request.tenant, actor=request.actor, spec=request.data)
        return Response(JobEstimateOutput(_told(forecast)).data)


def _told(forecast: Forecast) -> dict[str, Any]:
    known = forecast.estimate
    return {
        "project": forecast.project.slug,
        "priority": forecast.priority,
        "priority_permille": known.permille,
        "currency": known.currency,
        "lines": [_line(line) for line in known.lines],
        "cost": {**_range(known.cost), "complete": known.is_complete},
        "lora": _adapter(known.adapter),
        "hold": f"{forecast.hold:f}",
        "admitted": forecast.is_admitted,
        "refusals": [_refusal(refusal) for refusal in forecast.refusals],
        "queue": {"position": forecast.position, "of": forecast.of, "reason": forecast.reason},
    }


def _adapter(size: AdapterSize | None) -> dict[str, int | None] | None:
    return None if size is None else {"parameters": size.parameters, "memory_bytes": size.memory_bytes}


def _line(line: EstimateLine) -> dict[str, Any]:
    figure, version = line.figure, line.version
    price = {"shape": version.shape, "amount": f"{version.amount:f}", "per": version.per, "tiers": version.tiers}
    return {
        "meter": figure.meter.value,
        "basis": figure.basis,
        "low": figure.low,
        "likely": figure.likely,
        "high": figure.high,
        "price": price,
        "cost": None if line.cost is None else _range(line.cost),
    }


def _range(cost: Money) -> dict[str, str]:
    amounts: dict[str, Decimal] = {"low": cost.low, "likely": cost.likely, "high": cost.high}
    return {name: f"{amount:f}" for name, amount in amounts.items()}


def _refusal(refusal: ApplicationError) -> dict[str, Any]:
    facts = {name: refusal.extra.get(name) for name in ("resource", "limit", "used")}
    told = {name: None if fact is None else str(fact) for name, fact in facts.items()}
    return {"code": refusal.code, "status": refusal.status, "detail": refusal.detail} | told
