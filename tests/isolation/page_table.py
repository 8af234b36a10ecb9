"""What everybody gets from each page. A path that is not here fails the tests; a method that is not, answers 405.

Columns: anonymous; owner, researcher, viewer, billing of Alice's lab; the owner of another lab, asking for Alice's
rows. An API key opens no page: whoever brings one gets what anonymous visitors get. 302 of an anonymous visitor leads
to the log-in.
"""

_RESET = r"/^account/password/reset/(?P<uidb36>[0-9A-Za-z]+)-(?P<key>.+)/$"

PAGES: dict[str, str] = {
    # For anybody; who is logged in is sent on, and the log-out takes everybody to the log-in.
    f"GET {_RESET}": "200 200 200 200 200 200",
    f"POST {_RESET}": "200 200 200 200 200 200",
    "GET /account/inactive/": "200 200 200 200 200 200",
    "GET /account/password/reset/": "200 200 200 200 200 200",
    "POST /account/password/reset/": "200 200 200 200 200 200",
    "GET /account/password/reset/done/": "200 200 200 200 200 200",
    "GET /account/password/reset/sent/": "200 200 200 200 200 200",
    "GET /login/": "200 302 302 302 302 302",
    "POST /login/": "200 302 302 302 302 302",
    "POST /logout/": "302 302 302 302 302 302",
    # Of the platform itself. No runtime and no broker here: not ready. Figures need the token of the scraper.
    "GET /healthz": "200 200 200 200 200 200",
    "POST /healthz": "200 200 200 200 200 200",
    "GET /metrics": "401 401 401 401 401 401",
    "GET /readyz": "503 503 503 503 503 503",
    "POST /readyz": "503 503 503 503 503 503",
    # Dora's invitation: a stranger may sign up, people who are logged in are somebody else.
    "GET /invitations/accept/<str:token>/": "200 403 403 403 403 403",
    "POST /invitations/accept/<str:token>/": "200 403 403 403 403 403",
    # One's own account. 302: on to the log-in, to confirming the password, or back. 404: no second factor yet.
    "GET /account/confirm/": "302 200 200 200 200 200",
    "POST /account/confirm/": "302 200 200 200 200 200",
    "GET /account/mfa/": "302 200 200 200 200 200",
    "GET /account/mfa/authenticate/": "302 302 302 302 302 302",
    "POST /account/mfa/authenticate/": "302 302 302 302 302 302",
    "GET /account/mfa/reauthenticate/": "302 302 302 302 302 302",
    "POST /account/mfa/reauthenticate/": "302 302 302 302 302 302",
    "GET /account/mfa/recovery-codes/": "302 404 404 404 404 404",
    "GET /account/mfa/recovery-codes/download/": "302 404 404 404 404 404",
    "POST /account/mfa/recovery-codes/download/": "302 404 404 404 404 404",
    "GET /account/mfa/recovery-codes/generate/": "302 302 302 302 302 302",
    "POST /account/mfa/recovery-codes/generate/": "302 302 302 302 302 302",
    "GET /account/mfa/totp/activate/": "302 302 302 302 302 302",
    "POST /account/mfa/totp/activate/": "302 302 302 302 302 302",
    "GET /account/mfa/totp/deactivate/": "302 404 404 404 404 404",
    "POST /account/mfa/totp/deactivate/": "302 404 404 404 404 404",
    "GET /account/password/": "302 200 200 200 200 200",
    "POST /account/password/": "302 200 200 200 200 200",
    "GET /account/password/set/": "302 302 302 302 302 302",
    "POST /account/password/set/": "302 302 302 302 302 302",
    "GET /account/sessions/": "302 200 200 200 200 200",
    "POST /account/sessions/": "302 302 302 302 302 302",
    "POST /tenant/": "302 403 403 403 403 403",
    # The console.
    "GET /": "302 302 302 302 302 302",
    "POST /": "302 302 302 302 302 302",
    "GET /frame/": "302 200 200 200 200 200",
    "GET /jobs/": "302 200 200 200 200 200",
    "GET /jobs/compare/": "302 200 200 200 200 200",
    "GET /jobs/compare/csv/": "302 200 200 200 200 200",
    "POST /jobs/act/": "302 422 422 403 403 422",
    "GET /jobs/csv/": "302 200 200 200 200 200",
    "GET /jobs/<uuid:job_id>/": "302 200 200 200 200 404",
    "POST /jobs/<uuid:job_id>/cancel/": "302 302 302 403 403 404",
    "GET /jobs/<uuid:job_id>/episodes/": "302 200 200 200 200 404",
    "POST /jobs/<uuid:job_id>/import/": "302 302 302 403 403 404",
    "GET /jobs/<uuid:job_id>/made/": "302 200 200 200 200 404",
    "GET /jobs/<uuid:job_id>/videos/": "302 200 200 200 200 404",
    "GET /usage/": "302 200 200 200 200 200",
    "GET /datasets/": "302 200 200 200 403 200",
    "GET /datasets/upload/": "302 200 200 403 403 200",
    "GET /datasets/<uuid:dataset_id>/": "302 200 200 200 403 404",
    # Without what the page showed: 412. A version that a job learned from stays: 409.
    "POST /datasets/<uuid:dataset_id>/delete/": "302 412 412 403 403 404",
    "POST /datasets/<uuid:dataset_id>/keep/": "302 412 412 403 403 404",
    "POST /datasets/<uuid:dataset_id>/versions/<int:number>/delete/": "302 409 409 403 403 404",
    "GET /billing/invoices/": "302 200 200 200 200 200",
    "GET /billing/invoices/<uuid:invoice_id>/": "302 200 200 200 200 404",
    "GET /runtime/": "302 200 200 200 403 200",
    "GET /runtime/data/": "302 200 200 200 403 200",
}
