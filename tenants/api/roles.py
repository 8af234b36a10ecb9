"""Names of roles and permissions, as bodies and answers have them."""

from datetime import UTC, datetime
from typing import Annotated, Literal, get_args

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from pydantic import AfterValidator, AwareDatetime, Field

from tenants.models import Role
from tenants.permissions import Permission

RoleName = Literal["owner", "admin", "researcher", "viewer", "billing"]
ROLES = [(role, role) for role in Role.values]
PERMISSIONS = [(permission.value, permission.value) for permission in Permission]
assert set(get_args(RoleName)) == set(Role.values)


def _mailable(text: str) -> str:
    """An address that mail can be sent to. Raises ValueError."""
    try:
        validate_email(text)
    except ValidationError:
        raise ValueError("expected an e-mail address like alice@example.org") from None
    return text


EmailText = Annotated[str, Field(min_length=3, max_length=254), AfterValidator(_mailable)]


def _in_utc(moment: datetime) -> datetime:
    """The same moment in UTC, as databases keep it. Raises ValueError outside the years they know."""
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("the moment must lie in the years 1 to 9999, in UTC") from None


Moment = Annotated[AwareDatetime, AfterValidator(_in_utc)]
