"""Operators of the platform, for the tests of their admin."""

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from tenants.models import User
from tests.support.factories import UserFactory


def logged_in(user: User) -> Client:
    browser = Client()
    browser.force_login(user)
    return browser


@pytest.fixture
def olga(db: None) -> User:
    """Olga operates the platform and may do everything."""
    return UserFactory(email="olga@platform.example", is_staff=True, is_superuser=True)


@pytest.fixture
def operator(olga: User) -> Client:
    return logged_in(olga)


@pytest.fixture
def onlooker(db: None) -> Client:
    """Staff that may look at everything and act on nothing."""
    user = UserFactory(email="otto@platform.example", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    return logged_in(user)
