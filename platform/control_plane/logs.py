"""Log lines carry the id of the request they belong to."""

import logging
from contextvars import ContextVar

request_id_now: ContextVar[str] = ContextVar("request_id", default="-")


class RequestIdFilter(logging.Filter):
    """Adds ``request_id`` to every record, "-" outside a request."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = request_id_now.get()
        return True
