"""Middleware for ASGI: Starlette, FastAPI, Django, Litestar, Quart."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import quote

from .client import DEFAULT_TIMEOUT, DEFAULT_URL, AsyncClient, Decision, Seldom, Unavailable, User, question
from .fallback import deny

Scope = MutableMapping[str, Any]


class ASGIMiddleware:
    """Asks about each request and WebSocket, and answers the refused ones itself.

    user tells from the scope who is logged in, or None; it may be a coroutine, and stands behind what logs in. cost and
    identifier say of a request what Headgate cannot know. fallback decides while Headgate cannot be asked. Cookies are not
    sent to Headgate, all other fields are.
    """

    def __init__(
        self,
        app: Callable[..., Awaitable[None]],
        url: str = DEFAULT_URL,
        *,
        user: Callable[[Scope], User | None | Awaitable[User | None]] = lambda scope: None,
        cost: Callable[[Scope], int] = lambda scope: 0,
        identifier: Callable[[Scope], str] = lambda scope: "",
        fallback: Callable[[dict[str, Any]], Decision] = deny,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        self._app, self._url, self._timeout = app, url, timeout
        self._user, self._cost, self._identifier, self._fallback = user, cost, identifier, fallback
        self._client: AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told = Seldom()

    async def __call__(self, scope: Scope, receive: Callable, send: Callable) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        decided = await self._decide(scope)
        if decided.allowed:
            await self._app(scope, receive, self._with_fields(send, decided))
        elif scope["type"] == "http":
            await _refuse(decided, send, "http.response", scope["method"] == "HEAD")
        elif "websocket.http.response" in scope.get("extensions", {}):
            await receive()  # websocket.connect
            await _refuse(decided, send, "websocket.http.response", False)
        else:
            await receive()
            await send({"type": "websocket.close", "code": 1008})  # servers answer 403

    async def _decide(self, scope: Scope) -> Decision:
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:  # connections belong to the loop that opened them
            self._client, self._loop = AsyncClient(self._url, timeout=self._timeout), loop
        user = self._user(scope)
        if inspect.isawaitable(user):
            user = await user
        asked = question(
            scope.get("method", "GET"),
            _target(scope),
            (scope.get("client") or ("127.0.0.1", 0))[0],
            header=[(n.decode("latin-1"), v.decode("latin-1")) for n, v in scope["headers"] if n != b"cookie"],
            user=user,
            identifier=self._identifier(scope),
            cost=self._cost(scope),
        )
        try:
            return await self._client.ask(asked)
        except Unavailable as e:
            self._told.warn(e)
            return self._fallback(asked)

    @staticmethod
    def _with_fields(send: Callable, decided: Decision) -> Callable:
        async def sent(message: MutableMapping[str, Any]) -> None:
            if message["type"] in ("http.response.start", "websocket.accept"):
                message = {**message, "headers": [*message.get("headers", ()), *_fields(decided)]}
            await send(message)

        return sent


def _target(scope: Scope) -> str:
    """The target of the request line: raw_path, or what the path has to be to be read as it is."""
    path = scope.get("raw_path") or quote(scope["path"], safe="/:@!$&'()*+,;=~").encode("ascii")
    query = scope.get("query_string", b"")
    return (path + b"?" + query if query else path).decode("latin-1")


def _fields(decided: Decision) -> list[tuple[bytes, bytes]]:
    return [(n.lower().encode("latin-1"), v.encode("latin-1", "replace")) for n, v in decided.header.items()]


async def _refuse(decided: Decision, send: Callable, kind: str, head: bool) -> None:
    body = decided.payload()
    fields = [*_fields(decided), (b"content-length", str(len(body)).encode())]
    await send({"type": kind + ".start", "status": decided.status, "headers": fields})
    await send({"type": kind + ".body", "body": b"" if head else body})
