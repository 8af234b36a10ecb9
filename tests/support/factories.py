"""Rows for tests. Every factory opens the scope it writes in."""

import datetime as dt
import uuid
from typing import Any

import factory
from django.utils import timezone

from tenants.datasets.models import Dataset, DatasetVersion, Upload, VersionState
from tenants.identity import new_secret
from tenants.models import DEFAULT_PROJECT, ApiKey, Membership, Project, Role, Tenant, User
from tenants.scope import platform_scope

PASSWORD = "correct horse battery staple"


class RowFactory(factory.django.DjangoModelFactory):
    """Creates through the plain manager, in the platform's scope."""

    class Meta:
        abstract = True

    @classmethod
    def _create(cls, model_class: Any, *args: Any, **kwargs: Any) -> Any:
        with platform_scope():
            return super()._create(model_class, *args, **kwargs)


class UserFactory(RowFactory):
    class Meta:
        model = User

    email = factory.Sequence(lambda n: f"user{n}@example.org")

    @classmethod
    def _create(cls, model_class: Any, *args: Any, **kwargs: Any) -> User:
        return User.objects.create_user(password=kwargs.pop("password", PASSWORD), **kwargs)


class TenantFactory(RowFactory):
    class Meta:
        model = Tenant

    name = factory.Sequence(lambda n: f"Lab {n}")
    slug = factory.Sequence(lambda n: f"lab-{n}")

    @classmethod
    def _create(cls, model_class: Any, *args: Any, **kwargs: Any) -> Tenant:
        """With its default project, as `tenant_create` makes it."""
        tenant = super()._create(model_class, *args, **kwargs)
        ProjectFactory(tenant=tenant, name="Default", slug=DEFAULT_PROJECT)
        return tenant


class ProjectFactory(RowFactory):
    class Meta:
        model = Project

    tenant = factory.SubFactory(TenantFactory)
    name = factory.Sequence(lambda n: f"Project {n}")
    slug = factory.Sequence(lambda n: f"project-{n}")


class MembershipFactory(RowFactory):
    class Meta:
        model = Membership

    tenant = factory.SubFactory(TenantFactory)
    user = factory.SubFactory(UserFactory)
    role = Role.OWNER


class DatasetFactory(RowFactory):
    class Meta:
        model = Dataset

    tenant = factory.SubFactory(TenantFactory)
    name = factory.Sequence(lambda n: f"push-cube-{n}")


class DatasetVersionFactory(RowFactory):
    class Meta:
        model = DatasetVersion

    tenant = factory.SelfAttribute("dataset.tenant")
    dataset = factory.SubFactory(DatasetFactory)
    number = factory.Sequence(lambda n: n + 1)
    state = VersionState.READY
    summary = factory.LazyFunction(lambda: make_summary())
    storage_key = factory.LazyFunction(lambda: f"tests/{uuid.uuid4()}")


class UploadFactory(RowFactory):
    """A chunked upload that waits for its first byte."""

    class Meta:
        model = Upload

    tenant = factory.SubFactory(TenantFactory)
    name = "push-cube"
    size_bytes = 100
    sha256 = "0" * 64
    touched_at = factory.LazyFunction(timezone.now)


def make_key(
    tenant: Tenant, role: str = Role.RESEARCHER, user: User | None = None, **fields: Any
) -> tuple[ApiKey, str]:
    """An API key and its text."""
    prefix, secret_sha256, text = new_secret()
    with platform_scope():
        row = ApiKey.objects.create(
            tenant=tenant,
            name="test",
            role=role,
            prefix=prefix,
            secret_sha256=secret_sha256,
            created_by=user,
            **fields,
        )
    return row, text


def make_summary(
    *,
    cameras: tuple[str, ...] = ("observation.images.base",),
    state_dim: int = 3,
    action_dim: int = 2,
    episodes: int = 4,
) -> dict[str, Any]:
    """A valid `DatasetSummary` as stored: ``episodes`` of 20 frames at 20 Hz."""

    def numbers(dim: int) -> dict[str, list[float]]:
        values = {"mean": 0.0, "std": 0.5, "min": -1.0, "max": 1.0, "q01": -0.9, "q99": 0.9}
        return {name: [value] * dim for name, value in values.items()}

    return {
        "codebase_version": "v3.0",
        "schema": {
            "cameras": [{"key": key, "height": 64, "width": 64, "rotation_deg": 0} for key in cameras],
            "state": {"key": "observation.state", "names": [f"s{i}" for i in range(state_dim)]} if state_dim else None,
            "action": {"key": "action", "names": [f"a{i}" for i in range(action_dim)]},
            "representation": "delta_ee_scaled",
            "gripper": None,
            "control_hz": 20.0,
            "robot_type": "panda",
        },
        "statistics": {
            "state": numbers(state_dim) if state_dim else None,
            "action": numbers(action_dim),
            "frames": 20 * episodes,
        },
        "fingerprint": "f" * 64,
        "episodes": episodes,
        "frames": 20 * episodes,
        "episode_length_min": 20,
        "episode_length_max": 20,
        "tasks": ["Push the cube to the goal."],
        "size_bytes": 4096,
    }


def moment(text: str) -> dt.datetime:
    """An aware UTC time from ISO text."""
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)
