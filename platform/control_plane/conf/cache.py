"""The cache of counters: shared by all processes; while the server is away each process counts for itself.

So nobody is locked out of the log-in, and its limits still hold, only per process.
"""

import logging
from time import monotonic as clock_s
from typing import Any

from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.redis import RedisCache
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

_LEAVE_ALONE_S = 5.0  # after a failure the server is not asked for a while: each asking may take half a second
_SAY_EVERY_S = 60.0


class _Outage:
    """When the server may be asked again; one for the process, as Django keeps a cache per thread."""

    until_s = float("-inf")
    say_again_s = float("-inf")


class LastingCache(RedisCache):
    """Redis or valkey, else this process's memory."""

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        super().__init__(server, params)
        self._here = LocMemCache("lasting", {name: value for name, value in params.items() if name != "OPTIONS"})

    def add(self, *args: Any, **kwargs: Any) -> Any:
        return self._ask("add", *args, **kwargs)

    def get(self, *args: Any, **kwargs: Any) -> Any:
        return self._ask("get", *args, **kwargs)

    def set(self, *args: Any, **kwargs: Any) -> Any:
        return self._ask("set", *args, **kwargs)

    def touch(self, *args: Any, **kwargs: Any) -> Any:
        return self._ask("touch", *args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> Any:
        return self._ask("delete", *args, **kwargs)

    def incr(self, *args: Any, **kwargs: Any) -> Any:
        return self._ask("incr", *args, **kwargs)

    def has_key(self, *args: Any, **kwargs: Any) -> Any:
        return self._ask("has_key", *args, **kwargs)

    def _ask(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        if clock_s() >= _Outage.until_s:
            try:
                return getattr(super(), verb)(*args, **kwargs)
            except (RedisError, OSError) as error:
                _Outage.until_s = clock_s() + _LEAVE_ALONE_S
                _say(error)
        return getattr(self._here, verb)(*args, **kwargs)


def _say(error: Exception) -> None:
    if clock_s() >= _Outage.say_again_s:
        _Outage.say_again_s = clock_s() + _SAY_EVERY_S
        logger.warning("the cache is away, limits are kept per process: %s", error)
