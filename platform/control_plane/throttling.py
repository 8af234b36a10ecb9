"""How many requests a minute the API takes: per tenant, per key, and per address from strangers.

Windows are whole minutes of the clock, counted in the shared cache, so every process sees the same counts; around
the turn of a minute a burst may thus reach twice the limit. One key may use half of its tenant's limit, and what is
refused to the key counts for the key alone: a script that runs wild leaves room for people and for other keys.
Stopping a job has a count of its own, because whoever has used up their requests must still be able to stop what costs
money. Pages, health and metrics are not limited here.

The deployment's cache counts on per process while its server is away (`control_plane.conf.cache`). Whatever else a
cache raises lets everything through and is logged once a minute: limits must never be what takes the API down.
"""

import hashlib
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from redis.exceptions import RedisError

from control_plane.middleware import GetResponse, IdentifiedRequest, client_address
from control_plane.problems import is_api, plain_problem
from tenants.quotas.limits import limit_of
from tenants.quotas.models import Resource

logger = logging.getLogger(__name__)

WINDOW_S = 60
STRANGER_LIMIT = 60  # requests a minute from one address without valid credentials
_STOPPING = re.compile(r"/api/v1/jobs/[0-9a-f-]+/cancel")
_SAY_EVERY_S = 60.0
_LEAVE_ALONE_S = 5.0  # after a failure the cache is not asked again for a while: each asking may take half a second


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One count: its name in the headers, whose it is, and how many requests a window may have."""

    name: str
    whose: str
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a caller stands with one policy after this request."""

    policy: Policy
    used: int
    reset_s: int

    @property
    def remaining(self) -> int:
        return max(0, self.policy.limit - self.used)

    @property
    def exceeded(self) -> bool:
        return self.used > self.policy.limit


class Counter:
    """Counts requests of this minute in the shared cache: narrow policies first, no wider one once one is used up.

    None where the cache is away.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._ask_again_s = self._say_again_s = float("-inf")

    def count(self, policies: list[Policy]) -> list[Standing] | None:
        if self._clock_s() < self._ask_again_s:
            return None
        now_s = int(time.time())
        window, reset_s = now_s // WINDOW_S, WINDOW_S - now_s % WINDOW_S
        standings: list[Standing] = []
        try:
            for policy in policies:
                key = f"rate:{policy.name}:{policy.whose}:{window}"
                is_refused = any(standing.exceeded for standing in standings)
                used = cache.get(key, 0) if is_refused else _increment(key)
                standings.append(Standing(policy=policy, used=used, reset_s=reset_s))
        except (RedisError, OSError) as error:
            self._lost(error)
            return None
        return standings

    def _lost(self, error: Exception) -> None:
        now_s = self._clock_s()
        self._ask_again_s = now_s + _LEAVE_ALONE_S
        if now_s >= self._say_again_s:
            self._say_again_s = now_s + _SAY_EVERY_S
            logger.error("requests are not counted, the cache is away: %s: %s", type(error).__name__, error)


COUNTER = Counter()


class RateLimitMiddleware:
    """Counts every request of the API, refuses those beyond a limit with 429, and tells all of their standing."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: IdentifiedRequest) -> HttpResponse:
        if not is_api(request):
            return self.get_response(request)
        standings = COUNTER.count(_policies(request))
        if standings is None:
            return self.get_response(request)
        exceeded = [standing for standing in standings if standing.exceeded]
        response = _refusal(request, exceeded) if exceeded else self.get_response(request)
        _tell(response, standings)
        return response


def _policies(request: IdentifiedRequest) -> list[Policy]:
    actor = request.actor
    if actor is None:
        address = client_address(request) or "unknown"
        return [Policy(name="address", whose=_hidden(address), limit=STRANGER_LIMIT)]
    limit = limit_of(actor.tenant, Resource.REQUESTS_PER_MINUTE)
    if limit is None:
        return []
    kind = "stop-" if request.method == "POST" and _STOPPING.fullmatch(request.path) else ""
    tenant = Policy(name=f"{kind}tenant", whose=str(actor.tenant.pk), limit=limit)
    if actor.key is None:
        return [tenant]
    return [Policy(name=f"{kind}key", whose=str(actor.key.pk), limit=(limit + 1) // 2), tenant]


def _hidden(address: str) -> str:
    """Addresses are personal: the cache holds no plain ones."""
    return hashlib.sha256(address.encode()).hexdigest()[:32]


def _increment(key: str) -> int:
    """One more in this window; the count is forgotten when the window is over."""
    cache.add(key, 0, timeout=2 * WINDOW_S)
    try:
        return cache.incr(key)
    except ValueError:  # evicted in between
        return 1


def _refusal(request: HttpRequest, exceeded: list[Standing]) -> HttpResponse:
    worst = exceeded[0]
    response = plain_problem(
        request,
        status=429,
        code="too_many_requests",
        detail=f"More than {worst.policy.limit} requests in a minute ({worst.policy.name}). "
        f"Try again in {worst.reset_s} seconds.",
    )
    response["Retry-After"] = str(worst.reset_s)
    return response


def _tell(response: HttpResponse, standings: list[Standing]) -> None:
    """The headers of draft-ietf-httpapi-ratelimit-headers."""
    if not standings:
        return
    response["RateLimit-Policy"] = ", ".join(
        f'"{standing.policy.name}";q={standing.policy.limit};w={WINDOW_S}' for standing in reversed(standings)
    )
    response["RateLimit"] = ", ".join(
        f'"{standing.policy.name}";r={standing.remaining};t={standing.reset_s}' for standing in reversed(standings)
    )
