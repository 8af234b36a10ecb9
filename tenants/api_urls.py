"""Routes of the tenants app under /api/v1/."""

from django.urls import path

from tenants.api import invitations, keys, members, projects

urlpatterns = [
    path("me", members.MeApi.as_view()),
    path("members", members.MemberListApi.as_view()),
    path("members/<int:member_id>", members.MemberApi.as_view()),
    path("invitations", invitations.InvitationListApi.as_view()),
    path("invitations/<uuid:invitation_id>", invitations.InvitationApi.as_view()),
    path("projects", projects.ProjectListApi.as_view()),
    path("projects/<uuid:project_id>", projects.ProjectApi.as_view()),
    path("projects/<uuid:project_id>/archive", projects.ProjectArchiveApi.as_view()),
    path("keys", keys.KeyListApi.as_view()),
    path("keys/<uuid:key_id>", keys.KeyApi.as_view()),
]
