"""Row-level tenancy: a tenant-owned model's manager refuses any query outside a tenant's scope.

`with tenant_scope(tenant):` opens it; `with platform_scope():` is for the platform's own work across tenants
(relay, sweeps, admin). The guard is django-scopes; its holes (`_base_manager`) are covered by lookups that
always name the tenant (`tenants.access`).
"""

from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, Self
from uuid import UUID

from django.db import models
from django_scopes import ScopedManager, get_scope, scope, scopes_disabled
from django_scopes.exceptions import ScopeError
from django_scopes.manager import DisabledQuerySet

if TYPE_CHECKING:
    from tenants.models import Tenant

_project_now: ContextVar[UUID | None] = ContextVar("project_in_scope", default=None)

# The library refuses every read outside a scope except this one, which would tell whether rows exist.
DisabledQuerySet.exists = DisabledQuerySet.error


def tenant_scope(tenant: "Tenant") -> AbstractContextManager[Any]:
    """Rows of this tenant only, in this thread or coroutine. Raises TypeError for None, which would mean every row."""
    if tenant is None:
        raise TypeError("a tenant's scope needs a tenant")
    return scope(tenant=tenant)


def project_scope(project_id: UUID | None) -> AbstractContextManager[Any]:
    """Within a request of a key that is bound to a project: jobs and artifacts of other projects do not exist."""
    return _ProjectScope(project_id)


def project_in_scope() -> UUID | None:
    """The only project whose jobs may be seen, None: every one of the tenant. Selectors of jobs ask this."""
    return _project_now.get()


class _ProjectScope(AbstractContextManager[None]):
    def __init__(self, project_id: UUID | None) -> None:
        self.project_id = project_id

    def __enter__(self) -> None:
        self.token = _project_now.set(self.project_id)

    def __exit__(self, *_: object) -> None:
        _project_now.reset(self.token)


def platform_scope() -> AbstractContextManager[Any]:
    """Rows of every tenant: for the relay, sweeps, billing and the admin. Never in a request of a tenant."""
    return scopes_disabled()


class TenantOwned(models.Model):
    """Base of every table that belongs to a tenant: its own non-null key, never "through" another row."""

    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.PROTECT, related_name="+")

    objects: ClassVar[models.Manager[Self]] = ScopedManager(tenant="tenant")

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Refuse to write a row of one tenant inside another tenant's scope."""
        current = get_scope()
        owner = current.get("tenant") if current.get("_enabled", True) else None
        if owner is not None and owner.pk != self.tenant_id:
            raise ScopeError(f"{type(self).__name__} of tenant {self.tenant_id} inside the scope of {owner.pk}")
        super().save(*args, **kwargs)
