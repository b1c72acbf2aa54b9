"""An adapter for requests."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import requests
import requests.adapters
import urllib3

from .line import MAX_REFUSAL, PENDING, Line, Options, Pace, Throttled

__all__ = ["Adapter"]


def _repeatable(request: requests.PreparedRequest) -> bool:
    return request.body is None or isinstance(request.body, (bytes, str))


class Adapter(requests.adapters.HTTPAdapter):
    """Paces requests of a requests.Session, and sends them again when they are refused.

    Requests that were never sent raise Throttled. Timeouts of requests are those of each attempt; Options.max_wait is
    that of the queue. Further arguments are those of requests.adapters.HTTPAdapter.
    """

    def __init__(self, options: Options | None = None, **of_base: Any) -> None:
        super().__init__(**of_base)
        self._pace = Pace(options)

    def send(self, request: requests.PreparedRequest, **how: Any) -> requests.Response:  # type: ignore[override]
        pace = self._pace
        at = urlsplit(request.url or "")
        line = pace.line(pace.o.key(request) if pace.o.key else f"{at.scheme}://{at.netloc.rpartition('@')[2]}")
        try:
            return self._paced(line, request, how)
        finally:
            pace.leave(line)

    def _paced(self, line: Line, request: requests.PreparedRequest, how: dict[str, Any]) -> requests.Response:
        pace, waiter, refusal, number = self._pace, self._pace.waiter(request), None, 0
        while True:
            number += 1
            try:
                waited = pace.wait(line, waiter)
            except Throttled:
                if refusal is not None:
                    return refusal  # the server's own words say more
                raise
            with line.lock:
                pending = line.pending()
            out = request
            if pending is not None:
                out = request.copy()
                out.headers[PENDING] = str(pending)
            sent = pace.o.now()
            try:
                response = super().send(out, **how)
            except BaseException:
                pace.unanswered(line, number, waited, sent)
                raise
            response.request = request
            again = pace.answered(line, number, waited, sent, request.method or "GET", response.status_code, response.headers.get, "Idempotency-Key" in request.headers)
            if not again or not _repeatable(request):
                return response
            refusal = _kept(response)

    def close(self) -> None:
        self._pace.close()
        super().close()


def _kept(response: requests.Response) -> requests.Response:
    """Reads the body of a refusal, so that its connection is free while the request waits."""
    body = b""
    try:
        body = response.raw.read(MAX_REFUSAL, decode_content=True)
        if len(body) == MAX_REFUSAL:
            response.raw.close()  # what is left of it would be taken for the next answer
    except (urllib3.exceptions.HTTPError, OSError):
        response.raw.close()  # it broke off: the status and the fields are what counts
    response.raw.release_conn()
    response._content = body  # noqa: SLF001: there is no other way to give a response its content
    response._content_consumed = True  # type: ignore[attr-defined]  # noqa: SLF001
    return response
