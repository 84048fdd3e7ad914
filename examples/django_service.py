"""A Django site in one file, with the stages of a request.

Run it: gunicorn examples.django_service:app, then: curl http://127.0.0.1:8000/rank/7/
"""

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

import tailscope
from tailscope import integrations

tailscope.init(service="ranking")
integrations.instrument()
settings.configure(SECRET_KEY="an example's own", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"])  # noqa: S106


def rank(_request: HttpRequest, item: int) -> JsonResponse:
    """Answer one request."""
    with tailscope.stage("preprocess"):
        features = [item, item + 1]
    with tailscope.stage("inference"):
        return JsonResponse({"score": sum(features)})


urlpatterns = [path("rank/<int:item>/", rank)]
app = get_wsgi_application()
