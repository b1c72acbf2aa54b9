"""An application for ASGI that asks Headgate. A field stands for its session."""

import os

import headgate
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute


async def item(request):
    return PlainTextResponse("served " + request.path_params["id"])


async def socket(ws):
    await ws.accept()
    await ws.send_text("served")
    await ws.close()


routes = [Route("/v1/items/{id}", item), WebSocketRoute("/v1/socket", socket)]
url, timeout = os.environ["HEADGATE"], float(os.environ["TIMEOUT"])
fallback = {"deny": headgate.deny, "allow": headgate.allow, "local": headgate.Local(2, per=3600)}[os.environ["FALLBACK"]]


def session(scope):
    return next((value.decode() for name, value in scope["headers"] if name == b"session"), None)


# begin: asgi
def who(scope):
    name = session(scope)  # of the application: a name, or None
    return headgate.User(name) if name else None


app = Starlette(routes=routes, middleware=[
    Middleware(headgate.ASGIMiddleware, url, user=who, fallback=fallback, timeout=timeout),
])
# end: asgi
