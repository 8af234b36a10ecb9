"""What a tenant may choose from: its datasets, policies and projects, the platform's base models and priorities."""

from collections.abc import Iterator
from typing import Any

from django.urls import reverse
from django.utils import timezone

from frontend.forms.offers import Offer, Offering, Offers
from frontend.forms.posted import Texts
from frontend.measured import Result, latest_results
from gpu_runtime.protocol.ordering import PRIORITY_DEFAULT
from jobs.models import Artifact, ArtifactKind
from jobs.selectors.jobs import artifact_list, environments_of, job_list
from jobs.selectors.runtime import bases_offered, runtime_simulators
from tenants.billing.prices.price_list import Validity, price_list
from tenants.datasets.models import DatasetVersion, VersionState
from tenants.datasets.selectors import version_list
from tenants.identity import Actor
from tenants.models import DEFAULT_PROJECT, Tenant
from tenants.selectors import project_list

SHOWN_MAX = 200  # of datasets and of policies; older ones are chosen from their own page
_REMEMBERED = 60  # newest jobs whose environments are suggested
PRIORITY_MAX = 9


def offering_of(tenant: Tenant, actor: Actor, texts: Texts) -> Offering:
    """Everything the form offers this tenant now; hints are about what ``texts`` has chosen."""
    environments = Offers(choices=tuple(_environments(tenant)), closed=False)
    simulators = _simulators_hint()
    versions, policies = _versions(tenant), _policies(tenant)
    return Offering(
        offers={
            "dataset.id": _dataset_offers(versions),
            "policy.artifact": _policy_offers(tenant, policies),
            "base_model": Offers(choices=tuple(_bases())),
            "project": Offers(choices=tuple(_projects(actor))),
            "priority": Offers(choices=tuple(_priorities(tenant))),
            "environment.id": environments,
            "environments.#.id": environments,
        },
        hints={"environment.id": simulators, "environments.#.id": simulators}
        | _dataset_hints(versions, texts.get("dataset.id", ""))
        | _policy_hints(policies, texts.get("policy.artifact", "")),
        units={"budget.max_cost": tenant.currency},
    )


def _versions(tenant: Tenant) -> list[DatasetVersion]:
    return list(version_list(tenant).filter(state=VersionState.READY)[:SHOWN_MAX])


def _dataset_offers(versions: list[DatasetVersion]) -> Offers:
    choices = tuple(Offer(value=str(version.pk), label=_version_words(version)) for version in versions)
    return Offers(
        choices=(Offer(value="", label="Choose a dataset"), *choices) if choices else (),
        none="No dataset of yours is ready yet.",
        none_url=reverse("frontend:dataset_upload"),
        none_act="Upload demonstrations",
    )


def _version_words(version: DatasetVersion) -> str:
    summary: dict[str, Any] = version.summary or {}
    schema = summary.get("schema") or {}
    cameras = [str(camera["key"]).rpartition(".")[2] for camera in schema.get("cameras", ())]
    facts = [
        f"{summary.get('episodes', 0):,} episodes",
        f"{len((schema.get('action') or {}).get('names', ()))} action dimensions",
        ", ".join(cameras) or "no camera",
    ]
    return f"{version.dataset.name} v{version.number} · {' · '.join(facts)}"


def _dataset_hints(versions: list[DatasetVersion], chosen: str) -> dict[str, str]:
    version = next((one for one in versions if str(one.pk) == chosen), None)
    if version is None:
        return {}
    schema = (version.summary or {}).get("schema") or {}
    keys = ", ".join(str(camera["key"]) for camera in schema.get("cameras", ()))
    dimensions = len((schema.get("action") or {}).get("names", ()))
    return {
        "dataset.cameras": f"This dataset has {keys or 'none'}.",
        "dataset.action_dim": f"This dataset has {dimensions}.",
    }


def _policies(tenant: Tenant) -> list[Artifact]:
    kept = artifact_list(tenant, kind=ArtifactKind.ADAPTER).filter(deleted_at=None).select_related("job")
    return list(kept.defer("job__spec")[:SHOWN_MAX])


def _policy_offers(tenant: Tenant, policies: list[Artifact]) -> Offers:
    results = latest_results(tenant, [row.pk for row in policies])
    choices = tuple(Offer(value=str(row.pk), label=_policy_words(row, results.get(row.pk))) for row in policies)
    return Offers(
        choices=(Offer(value="", label="Choose a policy"), *choices) if choices else (),
        none="You have no policy yet: a fine-tuning job makes one.",
        none_url=f"{reverse('frontend:job_new')}?kind=sft",
        none_act="Fine-tune one",
    )


def _policy_words(row: Artifact, result: Result | None) -> str:
    """``result``: as the list of policies shows it."""
    once = result.overall.once if result else None
    success = "not evaluated"
    if once is not None and once.percent is not None:
        success = f"{once.percent:.0f} % of {once.episodes} episodes"
    facts = [f"version {row.policy_version}", f"{row.job.head} on {row.job.base_model}", success]
    return f"J-{row.job.number} {row.job.name} · {' · '.join(facts)}"


def _policy_hints(policies: list[Artifact], chosen: str) -> dict[str, str]:
    row = next((one for one in policies if str(one.pk) == chosen), None)
    action = (row.manifest.get("action") or {}) if row is not None else {}
    names = ", ".join(map(str, action.get("names", ())))
    hints = {}
    if action.get("horizon"):
        hints["executed_steps"] = f"The chunks of this policy have {action['horizon']} actions."
    if names:
        hints["unexplored"] = f"This policy's dimensions: {names}."
    return hints


def _bases() -> Iterator[Offer]:
    for base in bases_offered():
        info = base["info"] or {}
        facts = [f"{info['parameters'] / 1e6:,.0f} M parameters"] if info.get("parameters") else []
        facts += ["random weights"] * bool(base["random_weights"])
        facts.append("resident" if base["resident"] else "not reported by the runtime")
        yield Offer(value=base["name"], label=f"{base['name']} · {', '.join(facts)}")


def _projects(actor: Actor) -> Iterator[Offer]:
    rows = list(project_list(actor).filter(archived_at=None).order_by("slug"))
    for row in sorted(rows, key=lambda row: row.slug != DEFAULT_PROJECT):
        is_default = row.slug == DEFAULT_PROJECT
        yield Offer(value="" if is_default else row.slug, label=f"{row.name} · default" if is_default else row.name)


def _priorities(tenant: Tenant) -> Iterator[Offer]:
    now = price_list(tenant, at=timezone.now())
    factors = {factor.priority: factor.permille for factor, term in now.factors if term.state == Validity.IN_FORCE}
    for priority in range(PRIORITY_MAX, -1, -1):
        is_default = priority == PRIORITY_DEFAULT
        words = f"{priority} · {factors.get(priority, 1000) / 1000:g} × the price"
        yield Offer(value="" if is_default else str(priority), label=words + " · default" * is_default)


def _environments(tenant: Tenant) -> Iterator[Offer]:
    """What this tenant played lately."""
    seen: dict[str, None] = {}
    for job in job_list(tenant).exclude(kind="sft")[:_REMEMBERED]:
        seen.update(dict.fromkeys(environments_of(job)))
    for name in sorted(seen):
        yield Offer(value=name, label="played before")


def _simulators_hint() -> str:
    known = runtime_simulators().namespaces
    if known is None:
        return ""
    names = ", ".join(f"{name}/…" if name else "ManiSkill" for name in known)
    return f"Simulators here: {names or 'none'}."
