"""Routes of the tenants app under /api/v1/."""

from django.urls import path

from tenants import api

urlpatterns = [
    path("me", api.MeApi.as_view()),
    path("members", api.MemberListApi.as_view()),
    path("members/<int:member_id>", api.MemberApi.as_view()),
    path("keys", api.KeyListApi.as_view()),
    path("keys/<uuid:key_id>", api.KeyApi.as_view()),
]
