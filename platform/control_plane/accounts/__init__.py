"""People's accounts: logging in, second factors, sessions, invitations. The mechanics are django-allauth's."""
