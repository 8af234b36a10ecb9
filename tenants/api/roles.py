"""Names of roles and permissions, as bodies and answers have them."""

from datetime import UTC, datetime
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, AwareDatetime, Field

from tenants.models import Role
from tenants.permissions import Permission

RoleName = Literal["owner", "admin", "researcher", "viewer", "billing"]
ROLES = [(role, role) for role in Role.values]
PERMISSIONS = [(permission.value, permission.value) for permission in Permission]
assert set(get_args(RoleName)) == set(Role.values)

EmailText = Annotated[str, Field(min_length=3, max_length=254, pattern=r"^[^@\s]+@[^@\s]+$")]


def _in_utc(moment: datetime) -> datetime:
    """The same moment in UTC, as databases keep it. Raises ValueError outside the years they know."""
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("the moment must lie in the years 1 to 9999, in UTC") from None


Moment = Annotated[AwareDatetime, AfterValidator(_in_utc)]
