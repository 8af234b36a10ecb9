from django.apps import AppConfig


class ControlPlaneConfig(AppConfig):
    name = "control_plane"

    def ready(self) -> None:
        from control_plane import openapi  # noqa: F401  registers how callers authenticate
        from control_plane.accounts import trail  # noqa: F401  hears of acts on accounts
