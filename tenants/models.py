"""Who: users, tenants, members and API keys."""

import uuid
from typing import ClassVar

from django.contrib.auth.models import AbstractUser, BaseUserManager
from django.db import models

from tenants.scope import TenantOwned


class UserManager(BaseUserManager["User"]):
    """Users are known by e-mail address."""

    def create_user(self, email: str, password: str | None = None, **extra: object) -> "User":
        if not email:
            raise ValueError("a user needs an e-mail address")
        user = self.model(email=self.normalize_email(email).lower(), **extra)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **extra: object) -> "User":
        return self.create_user(email, password, is_staff=True, is_superuser=True, **extra)


class User(AbstractUser):  # type: ignore[django-manager-missing]
    """A person. Staff are operators of the platform; tenants never get Django's admin."""

    username = None  # type: ignore[assignment]
    email = models.EmailField(unique=True)

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    objects: ClassVar[UserManager] = UserManager()  # type: ignore[assignment]


class Tenant(models.Model):
    """A lab: the boundary of isolation, quotas and bills."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=200)
    slug = models.SlugField(unique=True)
    weight = models.PositiveIntegerField(default=1, help_text="Share of a contended device, relative to others.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(weight__gte=1), name="tenant_weight_positive")]

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    """What a member may do; the table is `tenants.permissions`."""

    OWNER = "owner"
    ADMIN = "admin"
    RESEARCHER = "researcher"
    VIEWER = "viewer"
    BILLING = "billing"


class Membership(TenantOwned):
    """A user's role in a tenant."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=20, choices=Role.choices)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "user"], name="one_membership_per_user")]


class ApiKey(TenantOwned):
    """A machine's credential: `jnx_<prefix>_<secret>`; only the prefix and the SHA-256 of the secret are kept."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=200)
    role = models.CharField(max_length=20, choices=Role.choices, default=Role.RESEARCHER)
    prefix = models.CharField(max_length=16, unique=True)
    secret_sha256 = models.CharField(max_length=64)
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)


class IdempotencyRecord(TenantOwned):
    """The first answer to an `Idempotency-Key`, replayed for 24 hours."""

    key = models.CharField(max_length=200)
    route = models.CharField(max_length=200)  # method and path
    body_sha256 = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField()
    response = models.JSONField(null=True)
    location = models.CharField(max_length=300, blank=True)  # the Location header of the answer
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "key", "route"], name="one_answer_per_key")]
