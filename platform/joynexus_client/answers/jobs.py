"""Jobs, what they would cost, and how much room there is for them."""

from typing import Any, Literal, TypedDict

JobKind = Literal["sft", "rl", "evaluation", "rollout"]
JobSort = Literal["-created_at", "created_at", "name", "-name"]
BulkAction = Literal["cancel", "archive", "unarchive", "tag", "untag"]


class JobsWanted(TypedDict, total=False):
    """Which jobs. ``state`` may be "live"; ``q`` is a part of the name, note or a tag, or an id, a number, J-12."""

    state: str | None
    kind: JobKind | None
    head: str | None
    base_model: str | None
    owner: str | None
    tag: str | None
    project: str | None
    priority: int | None
    archived: Literal["false", "true", "all"] | None
    q: str | None


class BulkResult(TypedDict):
    """What became of one job; ``code`` and ``detail`` say why if it is not ``done``."""

    job: str
    number: int | None
    name: str | None
    state: str | None
    done: bool
    code: str
    detail: str


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


class EstimateLora(TypedDict):
    """Size of the adapter that a job trains; None: the runtime has not told of the base yet."""

    parameters: int | None
    memory_bytes: int | None


class Estimate(TypedDict):
    """What submitting would cost, reserve and be refused with, and the place in line."""

    project: str
    priority: int
    priority_permille: int
    currency: str
    lines: list[EstimateLine]
    cost: EstimateCost
    lora: EstimateLora | None
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
    number: int
    kind: JobKind
    name: str
    tags: list[str]
    note: str
    archived_at: str | None
    cloned_from: str | None
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
