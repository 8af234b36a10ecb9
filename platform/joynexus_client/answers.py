"""The server's answers as typed dictionaries; the OpenAPI document at /api/v1/schema is the full account."""

from typing import Any, Literal, TypedDict

JobKind = Literal["sft", "rl", "evaluation", "rollout"]
ArtifactKind = Literal["adapter", "checkpoint", "evaluation", "video", "dataset"]


class Version(TypedDict):
    """A dataset version; ``summary`` is set once it is ready, ``recorded_from`` if a job made it.

    ``derived_from`` is the version it was made from, if its uploader said so.
    """

    id: str
    number: int
    state: str
    reason: str
    size_bytes: int
    created_at: str
    dataset: str
    name: str
    recorded_from: str | None
    derived_from: str | None
    declared: dict[str, Any]
    report: dict[str, Any] | None
    summary: dict[str, Any] | None


class PolicyRef(TypedDict):
    """The adapter a job starts from, and the job that trained it."""

    artifact_id: str
    name: str
    policy_version: int
    job_id: str
    job_name: str


class DatasetImport(TypedDict):
    """Recorded episodes on their way into the datasets: waiting, importing, imported, or failed with the reason."""

    state: str
    reason: str
    attempts: int
    version_id: str | None


class QueuePlace(TypedDict):
    """Why a job waits (``reason`` empty: it starts soon) and how many of the tenant's jobs are before it."""

    reason: str
    position: int
    of: int


class JobBudget(TypedDict):
    """Where a job ends, whatever it has still to do."""

    max_cost: str | None
    max_compute_s: int | None


class CostRange(TypedDict):
    """Money as exact digits."""

    low: str
    likely: str
    high: str


class EstimateLine(TypedDict):
    """One meter; None where the quantity is unknown, and then it is in no sum."""

    meter: str
    basis: str
    low: int | None
    likely: int | None
    high: int | None
    price: dict[str, Any]
    cost: CostRange | None


class EstimateCost(CostRange):
    complete: bool


class Estimate(TypedDict):
    """What submitting would cost, reserve and be refused with, and the place in line."""

    project: str
    priority: int
    priority_permille: int
    currency: str
    lines: list[EstimateLine]
    cost: EstimateCost
    hold: str
    admitted: bool
    refusals: list[dict[str, Any]]
    queue: QueuePlace


class Quota(TypedDict):
    """A limit and what is used of it. ``project`` None: of the whole tenant; ``limit`` None: unlimited."""

    resource: str
    unit: str
    project: dict[str, str] | None
    limit: int | None
    used: int | None
    source: Literal["own", "default", "none"]
    expires_at: str | None
    etag: str | None


class Job(TypedDict):
    """A job: on demonstrations (``dataset``), or from a policy (``policy``) in ``environments``.

    Lists leave out ``spec``, ``cost``, ``compute_share`` (the tenant's part of training and inference time),
    ``attempts``, ``recorded`` (dataset versions it made) and ``dataset_import`` (None where nothing was recorded).
    """

    id: str
    kind: JobKind
    name: str
    project: str
    priority: int
    state: str
    reason: str
    message: str
    queue: QueuePlace | None
    budget: JobBudget
    base_model: str
    head: str
    dataset: dict[str, Any] | None
    policy: PolicyRef | None
    environments: list[str]
    attempt: int
    step: int
    total_steps: int
    last_seq: int
    created_at: str
    started_at: str | None
    finished_at: str | None
    spec: dict[str, Any]
    cost: dict[str, Any]
    compute_share: float | None
    attempts: list[dict[str, Any]]
    recorded: list[dict[str, Any]]
    dataset_import: DatasetImport | None


class Event(TypedDict):
    seq: int
    attempt: int
    type: str
    data: dict[str, Any]
    occurred_at: str


class EventPage(TypedDict):
    """Events in order; ask again with ``after=seq``."""

    events: list[Event]
    seq: int
    more: bool
    state: str


class Series(TypedDict):
    """One curve of one attempt by columns: ``shown`` buckets of ``total`` points."""

    name: str
    attempt: int
    total: int
    shown: int
    step: list[int]
    last: list[float | None]
    min: list[float | None]
    max: list[float | None]
    special: list[str | None]


class MetricsPage(TypedDict):
    seq: int
    state: str
    series: list[Series]


class Artifact(TypedDict):
    """A published file; ``manifest`` is the adapter's, or the report, film or recording in short."""

    id: str
    job: str
    kind: ArtifactKind
    media_type: str
    name: str
    attempt: int
    policy_version: int
    size_bytes: int
    sha256: str
    manifest: dict[str, Any]
    created_at: str
    keep_until: str | None  # then it is deleted; None: until you do so
    deleted_at: str | None  # its file is gone, what is said of it stays
    download: str


class PolicyVersion(TypedDict):
    id: str
    attempt: int
    version: int
    step: int
    checkpoint: str
    sha256: str
    created_at: str


class SuccessRate(TypedDict):
    """Successes of counted episodes with the Wilson 95 % interval; None where there was no episode to judge by."""

    successes: int
    episodes: int
    rate: float | None
    low: float | None
    high: float | None


Episode = TypedDict(
    "Episode",
    {
        "seed": int,
        "initial_state": str | None,
        "cause": str,  # success, max_steps, terminated, error or solved_at_reset
        "success_once": bool,
        "success_at_end": bool,
        "steps": int,
        "return": float,
        "error": str | None,
        "video": str | None,
    },
)


class TaskResult(TypedDict):
    """One task: what was planned, what counted (less what was solved at reset), and each episode."""

    protocol: dict[str, Any]
    protocol_hash: str
    planned: int
    counted: int
    success_once: SuccessRate
    success_at_end: SuccessRate
    mean_return: float | None
    mean_steps: float | None
    episodes: list[Episode]


class Totals(TypedDict):
    """Of some tasks together; every counted episode weighs the same."""

    planned: int
    counted: int
    errors: int
    success_once: SuccessRate
    success_at_end: SuccessRate


class SuiteTotals(Totals):
    suite: str
    tasks: list[str]


class EvaluationReport(TypedDict):
    """Success of one policy. An episode that ended with an error counts as a failure."""

    tasks: list[TaskResult]
    suites: list[SuiteTotals]
    overall: Totals
    protocol_hashes: list[str]


UsageGroup = Literal["meter", "job", "day", "project", "key"]


class Money(TypedDict):
    """``amount``: a text of exact digits."""

    amount: str
    currency: str


class UsageRow(TypedDict):
    """One meter of one group. ``free``: parts of the quantity that were not billed, each with its reason."""

    group: str | None
    label: str
    meter: str
    quantity: int
    free: list[dict[str, Any]]
    cost: Money


class Plan(TypedDict):
    """A price plan; ``since`` is None for the default one."""

    code: str
    name: str
    currency: str
    version: int
    since: str | None


class PriceRow(TypedDict):
    """A price for ``per`` units: ended, in force or announced. ``tiers`` of graduated ones count units of a month."""

    meter: str
    shape: Literal["unit", "graduated", "package"]
    per: int
    price: Money
    tiers: list[dict[str, Any]]
    valid_from: str
    valid_until: str | None
    state: Literal["ended", "in_force", "announced"]


class PriceList(TypedDict):
    """What a tenant pays. ``factors``: thousandths of the price that jobs of a priority pay, 1000 if not listed."""

    plan: Plan
    coming_plans: list[Plan]
    results: list[PriceRow]
    factors: list[dict[str, Any]]
