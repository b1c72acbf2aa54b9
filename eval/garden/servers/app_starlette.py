"""Starlette, whose router FastAPI uses as well."""
from urllib.parse import parse_qsl, quote

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route


def route(method, path, name, choose=None):
    async def serve(request):
        served, user = name, ""
        if choose == "action" and request.query_params.get("action") == "login":
            served = "GET /rpc?action=login"
        if choose == "user":
            user = (await plain_form(request)).get("user", "")
        return Response("ok", headers={"X-Route": served, "X-Id": request.headers.get("X-Id", ""),
                                       "X-Method": request.method, "X-User": quote(user, safe="", errors="replace")})
    return Route(path, serve, methods=[method])


async def plain_form(request):
    return dict(parse_qsl((await request.body()).decode("latin-1"), keep_blank_values=True))


app = Starlette(routes=[
    route("GET", "/v1/items", "GET /v1/items"),
    route("POST", "/v1/items", "POST /v1/items"),
    route("GET", "/v1/items/search", "GET /v1/items/search"),
    route("GET", "/v1/items/{id}", "GET /v1/items/{id}"),
    route("GET", "/v1/items/{id}/parts/{part}", "GET /v1/items/{id}/parts/{part}"),
    route("GET", "/v1/admin/users", "GET /v1/admin/users"),
    route("GET", "/v1/admin/users/{id}", "GET /v1/admin/users/{id}"),
    route("GET", "/v1/exports", "GET /v1/exports"),
    route("GET", "/v1/getThing", "GET /v1/getThing"),
    route("GET", "/public/{path:path}", "GET /public/{path...}"),
    route("GET", "/rpc", "GET /rpc", "action"),
    route("POST", "/login", "POST /login", "user"),
])
