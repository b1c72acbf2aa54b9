"""Django in one file: path() converters, request.GET and request.POST."""
from urllib.parse import quote

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, HttpResponseNotAllowed
from django.urls import path

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="not one", DEBUG=False,
                   MIDDLEWARE=["django.middleware.common.CommonMiddleware"], LOGGING_CONFIG=None)


def view(*names):
    def serve(request, **_):
        method = "GET" if request.method == "HEAD" else request.method
        for name in names:
            if name.startswith(method + " "):
                break
        else:
            return HttpResponseNotAllowed([])
        user = ""
        if name == "GET /rpc" and request.GET.get("action") == "login":
            name = "GET /rpc?action=login"
        if name == "POST /login":
            user = request.POST.get("user", "")
        return HttpResponse("ok", headers={"X-Route": name, "X-Id": request.headers.get("X-Id", ""),
                                           "X-Method": request.method, "X-User": quote(user, safe="", errors="replace")})
    return serve


urlpatterns = [
    path("v1/items", view("GET /v1/items", "POST /v1/items")),
    path("v1/items/search", view("GET /v1/items/search")),
    path("v1/items/<str:id>", view("GET /v1/items/{id}")),
    path("v1/items/<str:id>/parts/<str:part>", view("GET /v1/items/{id}/parts/{part}")),
    path("v1/admin/users", view("GET /v1/admin/users")),
    path("v1/admin/users/<str:id>", view("GET /v1/admin/users/{id}")),
    path("v1/exports", view("GET /v1/exports")),
    path("v1/getThing", view("GET /v1/getThing")),
    path("public/<path:path>", view("GET /public/{path...}")),
    path("rpc", view("GET /rpc")),
    path("login", view("POST /login")),
]
application = get_wsgi_application()
