"""Routes of FastAPI in most of their shapes. `python starlette_app.py` answers lines "METHOD /target" by who serves them."""
import sys

from fastapi import APIRouter, FastAPI
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route, WebSocketRoute


def served(name):
    async def serve(request=None):
        return Response(name)
    return serve


app = FastAPI(docs_url=None, redoc_url=None, openapi_url="/openapi.json")
items = APIRouter(prefix="/items")
for method, path in [("GET", ""), ("POST", ""), ("GET", "/{id:int}"), ("GET", "/{slug}"), ("GET", "/search"), ("GET", "/{id}/parts/{part}"),
                     ("DELETE", "/{id:uuid}"), ("GET", "/x-{a}.{b}")]:
    items.add_api_route(path, served(f"{method} /v1/items{path}"), methods=[method])
app.include_router(items, prefix="/v1")
app.add_api_route("/files/{path:path}", served("GET /files/{path:path}"), methods=["GET"])
app.add_api_route("/files/new", served("GET /files/new"), methods=["GET", "POST"])
app.add_api_route("/hidden", served("GET /hidden"), methods=["GET"], include_in_schema=False)


async def inner(request):
    return Response(request.method + " /inner" + request.scope["route"].path if "route" in request.scope else "inner")


def inner_route(path, *methods):
    async def serve(request):
        return Response(methods[0] + " /inner" + path)
    return Route(path, serve, methods=list(methods))


async def everything(scope, receive, send):
    await Response("/raw")(scope, receive, send)


app.mount("/inner", Starlette(routes=[inner_route("/a/{x:float}", "GET"), inner_route("/b", "PUT", "PATCH")]))
app.mount("/raw", everything)

if __name__ == "__main__":
    from starlette.testclient import TestClient
    client = TestClient(app, follow_redirects=False)
    for line in sys.stdin:
        method, target = line.split()
        answer = client.request(method, target)
        print(answer.text if answer.status_code == 200 and method != "HEAD" else "-", flush=True)
