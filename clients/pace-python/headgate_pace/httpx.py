"""Transports for httpx."""

from __future__ import annotations

from typing import Callable

import httpx

from .line import MAX_REFUSAL, PENDING, Line, Options, Pace, Throttled

__all__ = ["AsyncTransport", "Transport"]


def _key(options: Options, request: httpx.Request) -> str:
    return options.key(request) if options.key else f"{request.url.scheme}://{request.url.netloc.decode('ascii')}"


def _repeatable(request: httpx.Request) -> bool:
    return isinstance(request.stream, httpx.ByteStream)


def _again(request: httpx.Request, line: Line) -> httpx.Request:
    """What is sent: a copy where a field is added."""
    with line.lock:
        pending = line.pending()
    if pending is None:
        return request
    headers = request.headers.copy()
    headers[PENDING] = str(pending)
    return httpx.Request(request.method, request.url, headers=headers, stream=request.stream, extensions=request.extensions)


def _get(response: httpx.Response) -> Callable[[str], "str | None"]:
    return lambda name: response.headers.get(name)


def _kept(response: httpx.Response, body: bytes) -> httpx.Response:
    """A refusal whose body was read, so that its connection is free while the request waits."""
    return httpx.Response(response.status_code, headers=response.headers, stream=httpx.ByteStream(body), extensions=response.extensions)


class Transport(httpx.BaseTransport):
    """Paces requests of an httpx.Client, and sends them again when they are refused.

    Requests that were never sent raise Throttled. Timeouts of httpx are those of each attempt; Options.max_wait is
    that of the queue.
    """

    def __init__(self, options: Options | None = None, base: httpx.BaseTransport | None = None) -> None:
        self._base = base or httpx.HTTPTransport()
        self._pace = Pace(options)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        line = self._pace.line(_key(self._pace.o, request))
        try:
            return self._paced(line, request)
        finally:
            self._pace.leave(line)

    def _paced(self, line: Line, request: httpx.Request) -> httpx.Response:
        pace, waiter, refusal, number = self._pace, self._pace.waiter(request), None, 0
        while True:
            number += 1
            try:
                waited = pace.wait(line, waiter)
            except Throttled:
                if refusal is not None:
                    return refusal  # the server's own words say more
                raise
            sent = pace.o.now()
            try:
                response = self._base.handle_request(_again(request, line))
            except BaseException:
                pace.unanswered(line, number, waited, sent)
                raise
            if not pace.answered(line, number, waited, sent, request.method, response.status_code, _get(response), "Idempotency-Key" in request.headers):
                return response
            if not _repeatable(request):
                return response
            body = b""
            try:
                for part in response.stream:  # type: ignore[union-attr]
                    body += part
                    if len(body) > MAX_REFUSAL:
                        break
            except httpx.TransportError:
                pass  # it broke off: the status and the fields are what counts
            finally:
                response.close()
            refusal = _kept(response, body[:MAX_REFUSAL])

    def close(self) -> None:
        self._pace.close()
        self._base.close()


class AsyncTransport(httpx.AsyncBaseTransport):
    """Paces requests of an httpx.AsyncClient, and sends them again when they are refused. See Transport."""

    def __init__(self, options: Options | None = None, base: httpx.AsyncBaseTransport | None = None) -> None:
        self._base = base or httpx.AsyncHTTPTransport()
        self._pace = Pace(options)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        line = self._pace.line(_key(self._pace.o, request))
        try:
            return await self._paced(line, request)
        finally:
            self._pace.leave(line)

    async def _paced(self, line: Line, request: httpx.Request) -> httpx.Response:
        pace, waiter, refusal, number = self._pace, self._pace.waiter(request), None, 0
        while True:
            number += 1
            try:
                waited = await pace.wait_async(line, waiter)
            except Throttled:
                if refusal is not None:
                    return refusal
                raise
            sent = pace.o.now()
            try:
                response = await self._base.handle_async_request(_again(request, line))
            except BaseException:
                pace.unanswered(line, number, waited, sent)
                raise
            if not pace.answered(line, number, waited, sent, request.method, response.status_code, _get(response), "Idempotency-Key" in request.headers):
                return response
            if not _repeatable(request):
                return response
            body = b""
            try:
                async for part in response.stream:  # type: ignore[union-attr]
                    body += part
                    if len(body) > MAX_REFUSAL:
                        break
            except httpx.TransportError:
                pass
            finally:
                await response.aclose()
            refusal = _kept(response, body[:MAX_REFUSAL])

    async def aclose(self) -> None:
        self._pace.close()
        await self._base.aclose()
