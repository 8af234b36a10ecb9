"""`Idempotency-Key`: a POST that creates or spends has one effect, however often it is sent."""

import json
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response

from gpu_runtime.protocol.base import fingerprint
from tenants.errors import ApplicationError
from tenants.models import IdempotencyRecord, Tenant
from tenants.requests import TenantRequest

KEPT_FOR = timedelta(hours=24)
CLAIM_TTL = timedelta(minutes=2)  # longer than a handler takes; a claim left behind by a killed process ends then
_RETRY_AFTER_S = "1"
_KEY_LENGTH_MAX = 200
KEY_PARAMETER = OpenApiParameter(
    "Idempotency-Key", str, OpenApiParameter.HEADER, required=True, description="Fresh per request, e.g. a UUID."
)
_NOT_KEPT = frozenset({409, 429})  # the same request may succeed later
_UNDER_WAY = 0  # the status of a record without an answer yet

Records = QuerySet[IdempotencyRecord]


def idempotent(
    request: TenantRequest,
    handler: Callable[[], Response],
    *,
    body_sha256: str | None = None,
    secret_fields: tuple[str, ...] = (),
) -> Response:
    """Run ``handler`` once per (tenant, key, method and path); its effects and the record of its answer commit as one.

    A repeat gets the first answer with `Idempotent-Replayed: true`. While the first is under way it gets 409 with
    `Retry-After`: the claim is committed before the handler begins, so a repeat never waits for its locks, on SQLite
    neither. The same key with another body is refused (422). A refusal, a 409, 429 or 5xx leaves no record.

    A process killed in between leaves its claim behind; after two minutes a repeat takes it over. Should the first
    live after all, it finds its claim gone and is rolled back: of two there is never more than one effect.

    ``secret_fields`` of the answer are shown once and stored as null. ``body_sha256`` is for streamed bodies.
    Raises ApplicationError 400 without a key.
    """
    return idempotent_act(
        handler,
        tenant=request.tenant,
        key=idempotency_key(request),
        route=f"{request.method} {request.path}"[:200],
        body_sha256=body_sha256 or fingerprint(request.data),
        secret_fields=secret_fields,
    )


def idempotent_act(
    handler: Callable[[], Response],
    *,
    tenant: Tenant,
    key: str,
    route: str,
    body_sha256: str,
    secret_fields: tuple[str, ...] = (),
) -> Response:
    """`idempotent` for whoever has its key elsewhere than in a header, such as a form of a page."""
    records, claim = IdempotencyRecord.objects.filter(key=key, route=route), uuid.uuid4()
    earlier = _claim(records, tenant, key=key, route=route, body_sha256=body_sha256, claim=claim)
    if earlier is not None:
        return _replay(earlier, body_sha256)
    mine = records.filter(claim=claim, status=_UNDER_WAY)
    try:
        return _run(handler, mine, secret_fields)
    finally:
        if mine.exists():  # no answer was kept, so the key is free again
            mine.delete()


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


def _run(handler: Callable[[], Response], mine: Records, secret_fields: tuple[str, ...]) -> Response:
    """The handler and the record of its answer in one transaction, which needs the claim to be still ours."""
    with transaction.atomic():
        response = handler()
        if response.status_code in _NOT_KEPT or response.status_code >= 500:
            transaction.set_rollback(True)
            return response
        kept = mine.update(
            status=response.status_code,
            response=_stored(response, secret_fields),
            location=response.headers.get("Location", ""),
        )
        if kept != 1:
            raise _under_way()
    return response


def _claim(records: Records, tenant: Tenant, *, claim: uuid.UUID, **fields: str) -> IdempotencyRecord | None:
    """Write the claim down and commit it. If somebody else has the key: their record.

    The look before the write takes no lock: a repeat is answered while the first holds the database's only one.
    """
    earlier = records.first()
    if earlier is None:
        try:
            with transaction.atomic():
                IdempotencyRecord.objects.create(
                    tenant=tenant, claim=claim, status=_UNDER_WAY, response=None, **fields
                )
        except IntegrityError:  # somebody was faster
            earlier = records.first()
            if earlier is None:  # and has given the key back already
                raise _under_way() from None
        else:
            return None
    now = timezone.now()
    if earlier.created_at >= now - (CLAIM_TTL if earlier.status == _UNDER_WAY else KEPT_FOR):
        return earlier
    fresh = {"claim": claim, "status": _UNDER_WAY, "response": None, "location": "", "created_at": now}
    if records.filter(claim=earlier.claim, status=earlier.status).update(**fresh, **fields) != 1:
        raise _under_way()
    return None


def _under_way() -> ApplicationError:
    return ApplicationError(
        code="request_in_progress",
        status=409,
        detail="A request with this Idempotency-Key is under way; repeat it to get its answer.",
        headers={"Retry-After": _RETRY_AFTER_S},
    )


def _replay(record: IdempotencyRecord, body_sha256: str) -> Response:
    if record.body_sha256 != body_sha256:
        raise ApplicationError(
            code="idempotency_key_reused",
            status=422,
            detail=f"Idempotency-Key {record.key!r} was used with another body; use a new key for a new request.",
        )
    if record.status == _UNDER_WAY:
        raise _under_way()
    headers = {"Idempotent-Replayed": "true"} | ({"Location": record.location} if record.location else {})
    return Response(record.response, status=record.status, headers=headers)


def _stored(response: Response, secret_fields: tuple[str, ...]) -> Any:
    answer = json.loads(JSONRenderer().render(response.data) or b"null")
    return {name: None if name in secret_fields else value for name, value in answer.items()} if answer else answer
