"""Routes of the webhooks app under /api/v1/."""

from django.urls import URLPattern, path

from tenants.webhooks import api, delivery_api

urlpatterns: list[URLPattern] = [
    path("webhooks", api.WebhookListApi.as_view()),
    path("webhooks/<uuid:webhook_id>", api.WebhookApi.as_view()),
    path("webhooks/<uuid:webhook_id>/rotate-secret", api.WebhookSecretApi.as_view()),
    path("webhooks/<uuid:webhook_id>/test", api.WebhookTestApi.as_view()),
    path("webhook-deliveries", delivery_api.DeliveryListApi.as_view()),
    path("webhook-deliveries/<uuid:delivery_id>", delivery_api.DeliveryApi.as_view()),
    path("webhook-deliveries/<uuid:delivery_id>/redeliver", delivery_api.RedeliverApi.as_view()),
]
