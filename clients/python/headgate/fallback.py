"""What is decided while Headgate cannot be asked."""

from __future__ import annotations

import ipaddress
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from .client import Decision


def deny(question: Mapping[str, Any]) -> Decision:
    """Nothing passes: 503, to be tried again in five seconds."""
    return _refusal(503, "unavailable", "Limits unavailable", "The limits cannot be checked at the moment.", 5)


def allow(question: Mapping[str, Any]) -> Decision:
    """Everything passes, without any limit."""
    return Decision(allowed=True, status=200, reason="unavailable")


class Local:
    """A token bucket for each user or address, in this process.

    limit tokens come in per seconds, and burst of them are held. It bounds an outage, and is not the limit: it knows
    no endpoints, and each process has its own.
    """

    def __init__(self, limit: float, per: float = 1, burst: float | None = None, *, most: int = 10_000, now=time.monotonic) -> None:
        if not (limit > 0 and per > 0 and (burst is None or burst >= 1) and most >= 1):
            raise ValueError("limit and per have to be above 0, burst and most 1 or more")
        self._rate = limit / per
        self._burst = max(1.0, limit) if burst is None else burst
        self._most = most
        self._now = now
        self._lock = threading.Lock()
        self._full: OrderedDict[str, float] = OrderedDict()  # when each bucket is full again, the longest unused first

    def __call__(self, question: Mapping[str, Any]) -> Decision:
        who = self._who(question)
        with self._lock:
            now = self._now()
            full = max(now, self._full.get(who, now)) + 1 / self._rate
            wait = full - now - self._burst / self._rate
            if wait > 1e-9:
                return _refusal(429, "over_limit", "Quota exceeded", "Limit while limits cannot be checked.", max(1, math.ceil(wait)))
            self._full[who] = full
            self._full.move_to_end(who)
            if len(self._full) > self._most:
                self._full.popitem(last=False)
        return Decision(allowed=True, status=200, reason="unavailable")

    @staticmethod
    def _who(question: Mapping[str, Any]) -> str:
        if "user" in question:
            return f"user {question['user']['project']!r} {question['user']['id']!r}"
        try:
            address = ipaddress.ip_address(question["client"])
        except ValueError:
            return "nobody"
        if address.version == 6:  # one customer has a /64 at least
            return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))
        return str(address)


def _refusal(status: int, reason: str, title: str, detail: str, retry_after: int) -> Decision:
    return Decision(
        allowed=False,
        status=status,
        reason=reason,
        retry_after=retry_after,
        header={"Retry-After": str(retry_after), "Content-Type": "application/problem+json", "Cache-Control": "no-store"},
        problem={"type": "about:blank", "title": title, "status": status, "detail": detail},
    )
