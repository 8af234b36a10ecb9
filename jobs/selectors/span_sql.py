"""Adding up measured steps by bucket of time and by tenant: what Django's query language cannot say, per database.

A step is added up here if it surely lies in one bucket: its begin is known to the second here, so those that begin in
a bucket's last second count as crossing even where they do not.
"""

from dataclasses import dataclass

BUCKET_S = 15  # length of a bucket of time
_US = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanSql:
    """``second``: a step's begin in whole seconds since 1970. ``each``: one row per tenant of its shares."""

    second: str
    each: str
    tenant: str
    own: str

    def sums(self, by_process: bool) -> str:
        """Bucket, group size, steps, busy time."""
        length = _per_process("busy_us", by_process)
        return (
            f"SELECT {self._bucket}, group_size, COUNT(*), SUM({length}) FROM jobs_devicespan"  # noqa: S608
            f" WHERE {_WANTED} AND NOT {self._crosses(by_process)} GROUP BY 1, 2"
        )

    def shares(self, by_process: bool) -> str:
        """Bucket, tenant id, its time."""
        own = _per_process(self.own, by_process)
        return (
            f"SELECT {self._bucket}, {self.tenant}, SUM({own}) FROM jobs_devicespan, {self.each}"  # noqa: S608
            f" WHERE {_WANTED} AND NOT {self._crosses(by_process)} GROUP BY 1, 2"
        )

    def crossing(self, by_process: bool) -> str:
        """Keys of all the others."""
        return f"SELECT id FROM jobs_devicespan WHERE {_WANTED} AND {self._crosses(by_process)}"  # noqa: S608

    @property
    def _bucket(self) -> str:
        return f"{self.second} / {BUCKET_S}"

    def _crosses(self, by_process: bool) -> str:
        length = _per_process("busy_us", by_process)
        return f"({self.second} %% {BUCKET_S} + 1) * {_US} + {length} > {BUCKET_S * _US}"


_WANTED = (
    "service = %(service)s AND started_at >= %(since)s"
    " AND jobs_devicespan.id > %(after)s AND jobs_devicespan.id <= %(newest)s"
)


def _per_process(time_us: str, by_process: bool) -> str:
    """Whole microseconds; processes side by side count as one."""
    return f"({time_us} / CASE WHEN group_size < 1 THEN 1 ELSE group_size END)" if by_process else f"({time_us})"


STATEMENTS = {
    "sqlite": SpanSql(
        second="CAST(strftime('%%s', substr(started_at, 1, 19)) AS INTEGER)",
        each="json_each(shares) AS part",
        tenant="part.key",
        own="part.value",
    ),
    "postgresql": SpanSql(
        second="CAST(FLOOR(EXTRACT(EPOCH FROM started_at)) AS BIGINT)",
        each="jsonb_each_text(shares) AS part",
        tenant="part.key",
        own="CAST(part.value AS BIGINT)",
    ),
}
