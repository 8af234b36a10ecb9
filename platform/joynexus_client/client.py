"""The client itself."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import httpx

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

    def usage(self, *, job: str | None = None, group_by: str = "meter") -> list[dict[str, Any]]:
        """Metered quantities and their cost, by meter, job or day; ``free``: what was not billed, and why."""
        return [*self._transport.get("/api/v1/usage", job=job, group_by=group_by)["results"]]

    def prices(self) -> list[dict[str, Any]]:
        """Every published price, newest first."""
        return [*self._transport.get("/api/v1/prices")["results"]]
