"""`Idempotency-Key`: a POST that creates or spends has one effect, however often it is sent."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response

from gpu_runtime.protocol.base import fingerprint
from tenants.errors import ApplicationError
from tenants.models import IdempotencyRecord, Tenant
from tenants.requests import TenantRequest

KEPT_FOR = timedelta(hours=24)
_KEY_LENGTH_MAX = 200
KEY_PARAMETER = OpenApiParameter(
    "Idempotency-Key", str, OpenApiParameter.HEADER, required=True, description="Fresh per request, e.g. a UUID."
)
_NOT_KEPT = frozenset({409, 429})  # the same request may succeed later


def idempotent(
    request: TenantRequest,
    handler: Callable[[], Response],
    *,
    body_sha256: str | None = None,
    secret_fields: tuple[str, ...] = (),
) -> Response:
    """Run ``handler`` once per (tenant, key, method and path) in one transaction with the record of its answer.

    A repeat gets the first answer with `Idempotent-Replayed: true`; of two at once, the second waits on the
    unique index. The same key with another body is refused (422). A refusal, a 409, 429 or 5xx leaves no record.
    ``secret_fields`` of the answer are shown once and stored as null. ``body_sha256`` is for streamed bodies.
    Raises ApplicationError 400 without a key.
    """
    key, route = idempotency_key(request), f"{request.method} {request.path}"[:200]
    body_sha256 = body_sha256 or fingerprint(request.data)
    with transaction.atomic():
        record = _claim(request.tenant, key, route, body_sha256)
        if record is None:
            return _replay(IdempotencyRecord.objects.get(key=key, route=route), body_sha256)
        response = handler()
        if response.status_code in _NOT_KEPT or response.status_code >= 500:
            transaction.set_rollback(True)
            return response
        record.status, record.response = response.status_code, _stored(response, secret_fields)
        record.location = response.headers.get("Location", "")
        record.save(update_fields=["status", "response", "location"])
    return response


def idempotency_purge() -> int:
    """Forget answers older than 24 hours. Needs the platform's scope; returns how many."""
    return IdempotencyRecord.objects.filter(created_at__lt=timezone.now() - KEPT_FOR).delete()[0]


def idempotency_key(request: TenantRequest) -> str:
    """The request's key. Raises ApplicationError 400; ask before a long upload is read."""
    key = request.headers.get("Idempotency-Key", "")
    if not key:
        raise ApplicationError(
            code="idempotency_key_required",
            detail="This request needs an Idempotency-Key header, for example a fresh UUID.",
        )
    if len(key) > _KEY_LENGTH_MAX or not key.isprintable():
        raise ApplicationError(
            code="idempotency_key_invalid",
            detail=f"Idempotency-Key: printable text of at most {_KEY_LENGTH_MAX} characters is allowed.",
        )
    return key


def _claim(tenant: Tenant, key: str, route: str, body_sha256: str) -> IdempotencyRecord | None:
    """Insert the record: the insert is the claim. None if somebody has it."""
    expired = timezone.now() - KEPT_FOR
    IdempotencyRecord.objects.filter(key=key, route=route, created_at__lt=expired).delete()
    try:
        with transaction.atomic():
            return IdempotencyRecord.objects.create(
                tenant=tenant, key=key, route=route, body_sha256=body_sha256, status=0, response=None
            )
    except IntegrityError:
        return None


def _replay(record: IdempotencyRecord, body_sha256: str) -> Response:
    if record.body_sha256 != body_sha256:
        raise ApplicationError(
            code="idempotency_key_reused",
            status=422,
            detail=f"Idempotency-Key {record.key!r} was used with another body; use a new key for a new request.",
        )
    headers = {"Idempotent-Replayed": "true"} | ({"Location": record.location} if record.location else {})
    return Response(record.response, status=record.status, headers=headers)


def _stored(response: Response, secret_fields: tuple[str, ...]) -> Any:
    answer = json.loads(JSONRenderer().render(response.data) or b"null")
    return {name: None if name in secret_fields else value for name, value in answer.items()} if answer else answer
