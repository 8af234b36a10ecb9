"""The client itself."""

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from joynexus_client.answers import PriceList, PriceRow, Quota, UsageGroup, UsageRow
from joynexus_client.artifacts import Artifacts
from joynexus_client.datasets import Datasets
from joynexus_client.jobs import Jobs
from joynexus_client.transport import Transport


class Client:
    """One tenant's access to one JoyNexus server. Use it as a context manager or call `close`.

    ``transport`` and ``sleep`` are for tests and unusual networks.
    """

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._transport = Transport(url, api_key, transport=transport, sleep=sleep)
        self.datasets = Datasets(self._transport)
        self.jobs = Jobs(self._transport)
        self.artifacts = Artifacts(self._transport)

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    def me(self) -> dict[str, Any]:
        """Who this key is, in which tenant, and what it may do."""
        answer: dict[str, Any] = self._transport.get("/api/v1/me")
        return answer

    def bases(self) -> list[dict[str, Any]]:
        """The base models a job may name."""
        return [*self._transport.get("/api/v1/bases")["results"]]

    def runtime(self) -> dict[str, Any]:
        """How busy the shared services are, and how many environment seats are taken."""
        answer: dict[str, Any] = self._transport.get("/api/v1/runtime")
        return answer

    def usage(
        self,
        *,
        group_by: UsageGroup = "meter",
        job: str | None = None,
        project: str | None = None,
        key: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> list[UsageRow]:
        """Metered quantities and their cost within the UTC days [since, until), written like "2026-05-01".

        Each row is one meter of one group; ``free`` says what of it was not billed, and why.
        """
        answer = self._transport.get(
            "/api/v1/usage", group_by=group_by, job=job, project=project, key=key, since=since, until=until
        )
        return [*answer["results"]]

    def usage_csv(self, to: Path | str, *, group_by: UsageGroup = "meter", **wanted: str | None) -> Path:
        """Save usage as a table; the filters are those of `usage`."""
        return self._transport.save("/api/v1/usage/csv", Path(to), accept="text/csv", group_by=group_by, **wanted)

    def quotas(self) -> list[Quota]:
        """Every limit of the tenant and of its projects, with what is used of it now."""
        return [*self._transport.get("/api/v1/quotas")["results"]]

    def prices(self) -> list[PriceRow]:
        """Every published price of the tenant's plan, by meter and newest first; ``state`` says which is in force."""
        return [*self.price_list()["results"]]

    def price_list(self) -> PriceList:
        """The tenant's plan with its prices, the factors of priorities, and plans that are to come."""
        answer: PriceList = self._transport.get("/api/v1/prices")
        return answer
