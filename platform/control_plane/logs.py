"""Log lines carry the id of the request they belong to."""

import logging
from contextvars import ContextVar

request_id_now: ContextVar[str] = ContextVar("request_id", default="-")


class RequestIdFilter(logging.Filter):
    """Adds ``request_id`` to every record, "-" outside a request. Django logs refusals when the request is over."""

    def filter(self, record: logging.LogRecord) -> bool:
        request = getattr(record, "request", None)
        record.request_id = getattr(request, "request_id", None) or request_id_now.get()
        return True
