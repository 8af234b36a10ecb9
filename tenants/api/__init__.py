"""REST: oneself, members, invitations, projects and API keys."""
