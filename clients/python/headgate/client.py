"""The client of Headgate's decision service (docs/decisions.md, "From a program, in JSON")."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

DEFAULT_URL = "http://127.0.0.1:8082"
DEFAULT_TIMEOUT = 0.25  # seconds, for each of connecting, sending and waiting
LIMITS = httpx.Limits(max_connections=1000, max_keepalive_connections=100)


class Unavailable(Exception):
    """Headgate could not be asked, or did not decide; the text says why."""


@dataclass(frozen=True)
class User:
    """Who the application has logged in; Headgate believes it."""

    id: str
    project: str = ""


@dataclass(frozen=True)
class Decision:
    """What is decided about a request."""

    allowed: bool
    status: int  # to answer the client with; 200 where the request may pass
    reason: str
    header: Mapping[str, str] = field(default_factory=dict)  # for the client's answer
    problem: Mapping[str, Any] | None = None  # the body of a refusal (RFC 9457)
    body: str = ""  # or one that a rule has itself, of the type that header says
    endpoint: str = ""
    rule: str = ""
    remaining: int | None = None
    retry_after: float | None = None  # seconds
    reservation: str = ""  # what settle asks for

    def payload(self) -> bytes:
        """The body of a refusal, as the client gets it."""
        if self.body or self.problem is None:
            return self.body.encode()
        return json.dumps(self.problem).encode()


def question(
    method: str,
    target: str,
    client: str,
    *,
    header: Iterable[tuple[str, str]] = (),
    user: User | None = None,
    identifier: str = "",
    cost: int = 0,
    reserve: int = 0,
) -> dict[str, Any]:
    """Describes a request: target as it stood in the request line, client the address of the connection."""
    fields: dict[str, list[str]] = {}
    for name, value in header:
        fields.setdefault(name, []).append(value)
    q: dict[str, Any] = {"method": method, "target": target, "client": client}
    if fields:
        q["header"] = fields
    if user is not None:
        q["user"] = {"id": user.id, "project": user.project}
    if identifier:
        q["identifier"] = identifier
    if cost:
        q["cost"] = cost
    if reserve:
        q["reserve"] = reserve
    return q


def decision(answer: Mapping[str, Any]) -> Decision:
    return Decision(
        allowed=answer["allowed"] is True,
        status=answer["status"],
        reason=answer["reason"],
        header=answer.get("header", {}),
        problem=answer.get("problem"),
        body=answer.get("body", ""),
        endpoint=answer.get("endpoint", ""),
        rule=answer.get("rule", ""),
        remaining=answer.get("remaining"),
        retry_after=answer.get("retry_after"),
        reservation=answer.get("reservation", ""),
    )


class Seldom:
    """Logs a failure, at most one a second: an outage is no reason to fill a disk."""

    def __init__(self) -> None:
        self._last = float("-inf")

    def warn(self, failure: Exception) -> None:
        if (now := time.monotonic()) - self._last >= 1:
            self._last = now
            logging.getLogger("headgate").warning("%s", failure)


class Breaker:
    """Spares requests the wait for a service that is away: after three failures in a row it is asked once a second."""

    def __init__(self, now=time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._failures = 0
        self._again = 0.0

    def ask(self) -> None:
        """Raises Unavailable if Headgate is not to be asked at this moment."""
        with self._lock:
            if self._failures < 3:
                return
            now = self._now()
            if now < self._again:
                raise Unavailable("Headgate has failed three times in a row, and is asked once a second")
            self._again = now + 1

    def told(self, ok: bool) -> None:
        with self._lock:
            if ok:
                self._failures = 0
                return
            self._failures += 1
            self._again = self._now() + 1


def _read(response: httpx.Response, breaker: Breaker) -> dict[str, Any]:
    """Returns the answer. What is no answer raises Unavailable."""
    if response.status_code != 200:
        # A question that is refused says nothing against the service.
        breaker.told(response.status_code < 500)
        try:
            detail = response.json().get("detail", "")
        except ValueError:
            detail = ""
        raise Unavailable(f"Headgate answered {response.status_code}: {detail}")
    try:
        answer = response.json()
    except ValueError as e:
        breaker.told(False)
        raise Unavailable("Headgate's answer is no JSON") from e
    breaker.told(True)
    return answer


class Client:
    """Asks from threads. Safe for concurrent use; close it, or use it in a with statement."""

    def __init__(self, url: str = DEFAULT_URL, *, timeout: float = DEFAULT_TIMEOUT) -> None:
        self._http = httpx.Client(base_url=url, timeout=timeout, trust_env=False, limits=LIMITS)
        self._breaker = Breaker()

    def check(self, method: str, target: str, client: str, **more: Any) -> Decision:
        """Whether a request may pass. It raises Unavailable if that is not known. See question for more."""
        return self.ask(question(method, target, client, **more))

    def ask(self, question: Mapping[str, Any]) -> Decision:
        return decision(self._post("/v1/check", question))

    def settle(self, reservation: str, actual: int, *, forgive: bool = False) -> Mapping[str, Any]:
        """Says what a request has cost that was reserved for. Repeat it after Unavailable: it counts once."""
        return self._post("/v1/settle", {"reservation": reservation, "actual": actual, "forgive": forgive})

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self._breaker.ask()
        try:
            try:
                response = self._http.post(path, json=body)
            except httpx.RemoteProtocolError:  # a connection that was closed while it was idle
                response = self._http.post(path, json=body)
        except httpx.HTTPError as e:
            self._breaker.told(False)
            raise Unavailable(f"Headgate did not answer: {type(e).__name__}") from e
        return _read(response, self._breaker)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient:
    """Asks from coroutines of one event loop. Close it, or use it in an async with statement."""

    def __init__(self, url: str = DEFAULT_URL, *, timeout: float = DEFAULT_TIMEOUT) -> None:
        self._http = httpx.AsyncClient(base_url=url, timeout=timeout, trust_env=False, limits=LIMITS)
        self._breaker = Breaker()

    async def check(self, method: str, target: str, client: str, **more: Any) -> Decision:
        """Whether a request may pass. It raises Unavailable if that is not known. See question for more."""
        return await self.ask(question(method, target, client, **more))

    async def ask(self, question: Mapping[str, Any]) -> Decision:
        return decision(await self._post("/v1/check", question))

    async def settle(self, reservation: str, actual: int, *, forgive: bool = False) -> Mapping[str, Any]:
        """Says what a request has cost that was reserved for. Repeat it after Unavailable: it counts once."""
        return await self._post("/v1/settle", {"reservation": reservation, "actual": actual, "forgive": forgive})

    async def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self._breaker.ask()
        try:
            try:
                response = await self._http.post(path, json=body)
            except httpx.RemoteProtocolError:  # a connection that was closed while it was idle
                response = await self._http.post(path, json=body)
        except httpx.HTTPError as e:
            self._breaker.told(False)
            raise Unavailable(f"Headgate did not answer: {type(e).__name__}") from e
        return _read(response, self._breaker)

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
