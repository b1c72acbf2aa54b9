"""Middleware for WSGI: Flask, Django, Pyramid, Bottle."""

from __future__ import annotations

import http
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote_from_bytes

from .client import DEFAULT_TIMEOUT, DEFAULT_URL, Client, Decision, Seldom, Unavailable, User, question
from .fallback import deny

Environ = dict[str, Any]


class WSGIMiddleware:
    """Asks about each request, and answers the refused ones itself.

    user tells from the environ who is logged in, or None, and stands behind what logs in. cost and identifier say of a
    request what Headgate cannot know. fallback decides while Headgate cannot be asked. Cookies are not sent to Headgate,
    all other fields are.
    """

    def __init__(
        self,
        app: Callable[[Environ, Callable], Iterable[bytes]],
        url: str = DEFAULT_URL,
        *,
        user: Callable[[Environ], User | None] = lambda environ: None,
        cost: Callable[[Environ], int] = lambda environ: 0,
        identifier: Callable[[Environ], str] = lambda environ: "",
        fallback: Callable[[dict[str, Any]], Decision] = deny,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        self._app, self._client = app, Client(url, timeout=timeout)
        self._told = Seldom()
        self._user, self._cost, self._identifier, self._fallback = user, cost, identifier, fallback

    def __call__(self, environ: Environ, start_response: Callable) -> Iterable[bytes]:
        decided = self._decide(environ)
        fields = list(decided.header.items())
        if not decided.allowed:
            body = decided.payload()
            start_response(_line(decided.status), [*fields, ("Content-Length", str(len(body)))])
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

        def started(status: str, headers: list[tuple[str, str]], *more: Any) -> Callable[[bytes], object]:
            return start_response(status, [*headers, *fields], *more)

        return self._app(environ, started)

    def _decide(self, environ: Environ) -> Decision:
        header = [(n[5:].replace("_", "-"), v) for n, v in environ.items() if n.startswith("HTTP_") and n != "HTTP_COOKIE"]
        asked = question(
            environ["REQUEST_METHOD"],
            _target(environ),
            environ.get("REMOTE_ADDR") or "127.0.0.1",
            header=header,
            user=self._user(environ),
            identifier=self._identifier(environ),
            cost=self._cost(environ),
        )
        try:
            return self._client.ask(asked)
        except Unavailable as e:
            self._told.warn(e)
            return self._fallback(asked)


def _target(environ: Environ) -> str:
    """The target of the request line, as gunicorn, uWSGI and Werkzeug have it, or what the path has to be to be read as it is."""
    for name in ("RAW_URI", "REQUEST_URI"):
        if str(environ.get(name, "")).startswith("/"):
            return environ[name]
    path = quote_from_bytes((environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")).encode("latin-1"), safe="/:@!$&'()*+,;=~")
    query = environ.get("QUERY_STRING", "")
    return (path or "/") + ("?" + query if query else "")


def _line(status: int) -> str:
    try:
        return f"{status} {http.HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Refused"
