"""Routes of Django in most of their shapes. `python django_app.py` answers lines "METHOD /target" by who serves them."""
import os
import sys

SECRET_KEY, ROOT_URLCONF, ALLOWED_HOSTS, MIDDLEWARE, LOGGING_CONFIG = "none", __name__, ["*"], ["django.middleware.locale.LocaleMiddleware"], None
LANGUAGES, LANGUAGE_CODE, USE_I18N = [("en", "English"), ("de", "German")], "en", True
if __name__ == "__main__":
    sys.modules["django_app"] = sys.modules["__main__"]
    ROOT_URLCONF = "django_app"
    os.environ["DJANGO_SETTINGS_MODULE"] = "django_app"
    import django
    django.setup()

from django.conf.urls.i18n import i18n_patterns
from django.http import HttpResponse
from django.urls import include, path, re_path, register_converter
from django.views import View


class Year:
    regex = "[0-9]{4}"

    def to_python(self, value): return int(value)
    def to_url(self, value): return str(value)


register_converter(Year, "year")


def served(name):
    return lambda request, *args, **more: HttpResponse(name)


class Things(View):
    def get(self, request): return HttpResponse("things")
    def post(self, request): return HttpResponse("things")


urlpatterns = [
    path("", served("root")),
    path("things/", Things.as_view()),
    path("v1/", include([
        path("items/<int:id>", served("v1/items/<int:id>")),
        path("items/<slug:slug>/", served("v1/items/<slug:slug>/")),
        path("items/new", served("v1/items/new")),
        path("items/7", served("v1/items/7")),
        re_path(r"^old/(?P<id>[0-9]+)/$", served("v1/old/id")),
        re_path(r"^old/(?P<id>[0-9]+)\.json$", served("v1/old/id.json")),
        re_path(r"^(?P<a>\w+)-(?P<b>\w+)/x$", served("v1/a-b/x")),
    ])),
    path("archive/<year:year>/", served("archive/year")),
    path("archive/<str:name>/", served("archive/name")),
    path("files/<path:path>", served("files")),
    path("files/new", served("files/new")),
    re_path(r"^static/(?P<path>.*)$", served("static")),
    re_path(r"^begins/", served("begins")),
    re_path(r"^loose", served("loose")),
    re_path(r"^opt(?:/(?P<page>\d+))?/?$", served("opt")),
]
urlpatterns += i18n_patterns(path("about/", served("about")))

if __name__ == "__main__":
    from django.test import Client
    client = Client()
    for line in sys.stdin:
        method, target = line.split()
        answer = client.generic(method, target)
        print(answer.content.decode() if answer.status_code == 200 and method != "HEAD" else "-", flush=True)
