"""One settings module; `conf.environment` reads the environment and fills in the embedded defaults."""

from celery.schedules import crontab

from control_plane.conf import environment as env
from control_plane.conf import outside
from control_plane.conf.mail import mail_settings
from control_plane.conf.static import static_revision
from gpu_runtime.protocol.catalog import DEFAULT_BASE_MODELS, parse_base_models

PRODUCTION = env.is_production()
STATE_DIR = env.state_dir()
SECRET_KEY = env.secret_key()
DEBUG = False
ALLOWED_HOSTS = env.allowed_hosts()
CSRF_TRUSTED_ORIGINS = env.trusted_origins()

INSTALLED_APPS = [
    "channels",
    "control_plane",  # before the admin, whose frame it extends
    "control_plane.operator.apps.OperatorAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_htmx",
    "tenants",
    "tenants.audit",
    "tenants.quotas",
    "tenants.datasets",
    "tenants.billing",
    "tenants.webhooks",
    "jobs",
    "frontend",  # before allauth, whose pages it draws anew
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.usersessions",
]
MIDDLEWARE = [
    "control_plane.middleware.RequestIdMiddleware",
    "control_plane.telemetry.requests.RequestMetricsMiddleware",
    "control_plane.middleware.AuditOriginMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "control_plane.middleware.TenantMiddleware",
    "control_plane.throttling.RateLimitMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "control_plane.urls"
ASGI_APPLICATION = "control_plane.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

DATABASES = {"default": env.database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_USER_MODEL = "tenants.User"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher"]
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
LOGIN_URL = "/login/"
LOGIN_REDIRECT_URL = "/"
# Log-in by e-mail address; its limits per address and per IP are allauth's own (`ACCOUNT_RATE_LIMITS`).
ACCOUNT_ADAPTER = "control_plane.accounts.adapter.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_EMAIL_VERIFICATION = "none"  # an invitation's token proves the address, and nobody can change it
ACCOUNT_EMAIL_UNKNOWN_ACCOUNTS = False
ACCOUNT_EMAIL_NOTIFICATIONS = True
ACCOUNT_EMAIL_SUBJECT_PREFIX = "[JoyNexus] "
ACCOUNT_SESSION_REMEMBER = True
MFA_ADAPTER = "control_plane.accounts.adapter.MfaAdapter"
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes"]
MFA_ALLOW_UNVERIFIED_EMAIL = True
MFA_TOTP_ISSUER = "JoyNexus"
JOYNEXUS_OPERATOR_MFA = PRODUCTION  # staff enter the admin with a one-time code only
locals().update(mail_settings())
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = PRODUCTION
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^metrics$"]  # asked for inside, where TLS has ended already
SECURE_PROXY_SSL_HEADER = outside.proxy_ssl_header()
SECURE_HSTS_SECONDS = 31_536_000 if PRODUCTION else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = PRODUCTION
SECURE_HSTS_PRELOAD = outside.hsts_preload()
# A host on browsers' preload lists cannot go back to plain HTTP for years: the operator decides it, not a warning.
SILENCED_SYSTEM_CHECKS = ["security.W021"]

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"request_id": {"()": "control_plane.logs.RequestIdFilter"}},
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s [%(request_id)s] %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "filters": ["request_id"], "formatter": "line"}},
    # One line per poll of the runtime or per periodic task is noise.
    "loggers": {name: {"level": "WARNING"} for name in ("httpx", "celery.worker.strategy", "celery.app.trace")},
    "root": {"handlers": ["stderr"], "level": "INFO"},
}

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"
USE_I18N = False
FORMAT_MODULE_PATH = ["control_plane.formats"]

# The content's revision is part of the address, so a browser may keep every file for ever.
STATIC_URL = f"/static/{static_revision()}/"
STATIC_ROOT = STATE_DIR / "static" / static_revision()
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "frontend.finders.PlotlyFinder",
]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedStaticFilesStorage"},
}
WHITENOISE_IMMUTABLE_FILE_TEST = r".*"
WHITENOISE_USE_FINDERS = env.os.environ.get("JOYNEXUS_STATIC_FROM_SOURCE") == "1"

CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [env.channel_host()]},
    }
}

# Request counters only: losing them costs nothing, and a cache that is away must not hold up the API for long.
CACHES = {
    "default": {
        "BACKEND": "control_plane.conf.cache.LastingCache",  # counts on while the server is away
        "LOCATION": env.channel_host(),
        "KEY_PREFIX": "joynexus",
        "OPTIONS": {"socket_connect_timeout": 0.5, "socket_timeout": 0.5},
    }
}

CELERY_BROKER_URL = env.broker_url()
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# Tasks are short (a nudge to do what the rows already say), so a lost worker's message comes back soon.
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 120,
    "unacked_restore_interval": 5,
    "unacked_restore_throttle": 1,
    "socket_connect_timeout": 2,
    "socket_timeout": 30,
}
CELERY_TASK_PUBLISH_RETRY_POLICY = {"max_retries": 1, "interval_start": 0.2, "interval_max": 0.2}
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_TIME_LIMIT = 60
CELERY_TASK_SOFT_TIME_LIMIT = 45
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# Receivers of webhooks may be slow: their queue has senders of its own.
CELERY_TASK_ROUTES = {"tenants.webhooks.tasks.deliver": {"queue": "webhooks"}}
CELERY_BEAT_SCHEDULE_FILENAME = str(STATE_DIR / "celerybeat-schedule")
CELERY_BEAT_SCHEDULE = {
    "reconcile": {"task": "jobs.tasks.reconcile", "schedule": 5.0},
    "expire_artifacts": {"task": "jobs.tasks.apply_retention", "schedule": 60.0},
    "purge_idempotency": {"task": "tenants.tasks.purge_idempotency", "schedule": 3600.0},
    "sweep_webhooks": {"task": "tenants.webhooks.tasks.sweep", "schedule": 5.0},
    "prune_webhooks": {"task": "tenants.webhooks.tasks.prune", "schedule": 3600.0},
    "reconcile_books": {"task": "jobs.tasks.reconcile_books", "schedule": crontab(hour="3", minute="17")},
    "invoices_close": {"task": "tenants.billing.tasks.invoices_close", "schedule": 3600.0},
    "sweep_storage": {"task": "tenants.datasets.tasks.sweep_storage", "schedule": 3600.0},
    "sweep_transfers": {"task": "tenants.datasets.tasks.sweep_transfers", "schedule": 300.0},
    "apply_retention": {"task": "tenants.datasets.tasks.apply_retention", "schedule": 3600.0},
    "meter_storage": {"task": "tenants.quotas.tasks.meter_storage", "schedule": crontab(minute="5")},
}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "control_plane.authentication.ApiKeyAuthentication",
        "control_plane.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["tenants.access.HasTenantPermission"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["tenants.parsers.StorableJsonParser"],
    "DEFAULT_PAGINATION_CLASS": "control_plane.pagination.CreatedCursorPagination",
    "DEFAULT_SCHEMA_CLASS": "control_plane.openapi.ApiSchema",
    "DEFAULT_METADATA_CLASS": None,
    "EXCEPTION_HANDLER": "control_plane.problems.problem_handler",
    "PAGE_SIZE": 50,
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "OAS_VERSION": "3.1.0",
    "TITLE": "JoyNexus",
    "VERSION": "1",
    "DESCRIPTION": "Post-training of vision-language-action policies on shared, resident base models.",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SERVE_AUTHENTICATION": [],
    "SCHEMA_PATH_PREFIX": "/api/v1/",
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": False,
    "ENUM_NAME_OVERRIDES": {
        "Role": "tenants.api.roles.ROLES",
        "Permission": "tenants.api.roles.PERMISSIONS",
        "DatasetVersionState": "tenants.datasets.models.VersionState.choices",
        "UploadState": "tenants.datasets.models.UploadState.choices",
        "JobState": "jobs.models.JOB_STATES",
        "WebhookDeliveryState": "tenants.webhooks.models.DeliveryState.choices",
        "InvoiceState": "tenants.billing.models.InvoiceState.choices",
        "PriceValidity": "tenants.billing.prices.price_list.VALIDITIES",
    },
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "control_plane.openapi.add_problems",
    ],
}

# plotly makes an empty <style> and fills it by script: the hash of the empty string is all it needs.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'", "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"],
        "img-src": ["'self'", "data:", "blob:"],
        "media-src": ["'self'", "blob:"],
        "connect-src": ["'self'"],
        "font-src": ["'self'"],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
    }
}

JOYNEXUS_BASE_MODELS = parse_base_models(env.os.environ.get("JOYNEXUS_BASE_MODELS", DEFAULT_BASE_MODELS))
JOYNEXUS_RUNTIME_URL = env.runtime_url()
JOYNEXUS_RUNTIME_TOKEN = env.runtime_token()
JOYNEXUS_DATASET_ROOT = env.dataset_root()
JOYNEXUS_UPLOAD_MAX_BYTES = env.whole_number("JOYNEXUS_UPLOAD_MAX_BYTES", 8 * 2**30)
JOYNEXUS_VALIDATIONS_MAX = env.whole_number("JOYNEXUS_VALIDATIONS_MAX", 1)  # fewer than worker processes
JOYNEXUS_CHUNK_MAX_BYTES = env.whole_number("JOYNEXUS_CHUNK_MAX_BYTES", 64 * 2**20)  # of a resumable upload
JOYNEXUS_BODY_MAX_BYTES = 4 * 2**20  # of every request but an upload
JOYNEXUS_PREVIEW_ROOT = STATE_DIR / "previews"  # answers about sealed dataset versions; may be lost at any time
JOYNEXUS_PREVIEW_MAX_BYTES = env.whole_number("JOYNEXUS_PREVIEW_MAX_BYTES", 512 * 2**20)

# Webhooks go to public addresses by TLS. An operator may open networks of their own, to plain HTTP too.
JOYNEXUS_WEBHOOK_KEYS = outside.webhook_keys()
JOYNEXUS_WEBHOOK_ALLOW = outside.networks("JOYNEXUS_WEBHOOK_ALLOW")
JOYNEXUS_WEBHOOK_PORTS = outside.webhook_ports()
JOYNEXUS_WEBHOOK_CA_FILE = outside.webhook_ca_file()

JOYNEXUS_METRICS_DIR = outside.metrics_dir()
JOYNEXUS_METRICS_TOKEN = outside.metrics_token()
JOYNEXUS_METRICS_ALLOW = outside.networks("JOYNEXUS_METRICS_ALLOW")
