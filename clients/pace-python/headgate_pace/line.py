"""The queue of one quota, for threads and for coroutines."""

from __future__ import annotations

import asyncio
import bisect
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Callable

from .algorithms import Algorithm, Auto
from .hints import Hint, is_refusal, read_hint
from .telemetry import Reporter, Telemetry

MAX_REFUSAL = 65_536
PENDING = "Headgate-Pending"
_IDEMPOTENT = {"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"}
_RESERVES_FOR = 600.0  # seconds


class Throttled(Exception):
    """A request was not sent, because it could not have been in time.

    ``retry_after`` is how many seconds until one of its quota can be sent, as far as is known: 0 if it is not.
    """

    def __init__(self, key: str, retry_after: float, reason: str) -> None:
        after = f", retry after {retry_after:.3f} s" if retry_after > 0 else ""
        super().__init__(f"not sent, quota {key!r}: {reason}{after}")
        self.key, self.retry_after, self.reason = key, retry_after, reason


@dataclass(frozen=True)
class Attempt:
    """One request on the network, when it was answered. ``status`` is 0 if it was not."""

    key: str
    number: int
    waited: float
    round_trip: float
    status: int
    refused: bool
    hint: Hint | None = None


@dataclass(frozen=True)
class Options:
    """How requests are paced. Every default is safe.

    ``key`` names the quota of a request, the scheme and host unless it is given; ``priority`` orders those that wait,
    the highest first. Both are called with what the transport is given: a request of httpx, or one that requests has
    prepared. A request that cannot be sent within ``max_wait`` seconds fails with Throttled as soon as that is known.
    One that is told to wait longer than ``max_retry_after`` is given its refusal, as is one that was refused
    ``max_attempts`` times. At most ``max_quotas`` quotas are remembered.
    """

    algorithm: Algorithm = field(default_factory=Auto)
    key: Callable[[Any], str] | None = None
    priority: Callable[[Any], int] | None = None
    max_queue: int = 1000
    max_quotas: int = 1024
    max_wait: float = 120.0
    max_retry_after: float = 120.0
    max_attempts: int = 8
    pending: bool = True
    telemetry: Callable[[str], Telemetry | None] | None = None
    on_attempt: Callable[[Attempt], None] | None = None
    now: Callable[[], float] = time.monotonic
    random: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        wrong = [
            f"{name} is {getattr(self, name)!r}, want a number above 0"
            for name in ("max_queue", "max_quotas", "max_wait", "max_retry_after", "max_attempts")
            if not getattr(self, name) > 0
        ]
        if wrong:
            raise ValueError("; ".join(wrong))


class Waiter:
    """A request in the queue. ``wake`` ends its wait for what happens next."""

    def __init__(self, priority: int, latest: float) -> None:
        self.priority, self.latest, self.arrival = priority, latest, 0
        self.wake: Callable[[], None] = lambda: None

    def __lt__(self, other: Waiter) -> bool:
        return (-self.priority, self.arrival) < (-other.priority, other.arrival)


class Line:
    """The queue of one quota. Its owner holds ``lock`` around every call."""

    def __init__(self, key: str, options: Options) -> None:
        self.key, self.o = key, options
        self.lock = threading.RLock()
        self.pacer = options.algorithm.start(options.now(), options.random)
        self.users = 0
        self.attempts = self.refused = self.accepted = 0
        self._waiting: list[Waiter] = []
        self._arrivals = 0
        self._unanswered = 0
        self._reserved = float("-inf")
        telemetry = options.telemetry(key) if options.telemetry and self.pacer.shares else None
        self._reporter = Reporter(telemetry, self) if telemetry else None

    def close(self, patience: float = 5.0) -> None:
        if self._reporter:
            self._reporter.close(patience)

    def enter(self) -> None:
        self.users += 1
        self._queued()

    def leave(self) -> None:
        self.users -= 1
        self._queued()

    @property
    def paused(self) -> bool:
        now = self.o.now()
        return self.pacer.next(now) > now

    def pending(self) -> int | None:
        """How many more requests wait, for a server that reserves times; None for others."""
        if not self.o.pending or self.o.now() - self._reserved > _RESERVES_FOR:
            return None
        return min(1000, len(self._waiting))

    def join(self, waiter: Waiter) -> None:
        """Puts a request into the queue: after a refusal, where it had been."""
        if waiter.arrival == 0:
            if len(self._waiting) >= self.o.max_queue:
                now = self.o.now()
                raise Throttled(self.key, max(0.0, self.pacer.next(now) - now), "queue full")
            self._arrivals += 1
            waiter.arrival = self._arrivals
        bisect.insort(self._waiting, waiter)

    def abandon(self, waiter: Waiter) -> None:
        if waiter in self._waiting:
            self._waiting.remove(waiter)
            self._wake()

    def turn(self, waiter: Waiter) -> float | None:
        """None if it is the waiter's turn, which it then has taken; else for how long to wait, unless woken."""
        now = self.o.now()
        at = self.pacer.next(now)
        if waiter.latest < max(now, at):
            self.abandon(waiter)
            raise Throttled(self.key, max(0.0, at - now), "too late")
        if self._waiting[0] is not waiter:
            return waiter.latest - now
        most = self.pacer.concurrent()
        if at > now:
            for other in self._waiting[1:]:
                if other.latest < at:
                    other.wake()  # to learn that it comes too late
            return at - now
        if most > 0 and self._unanswered >= most:
            return waiter.latest - now
        self._waiting.pop(0)
        self.pacer.sent(now)
        self._unanswered += 1
        self._wake()
        return None

    def _wake(self) -> None:
        """The head of the queue looks again."""
        if self._waiting:
            self._waiting[0].wake()

    def unanswer(self) -> None:
        """An attempt ended without an answer. That says nothing of the quota."""
        self.attempts += 1
        self._unanswered -= 1
        self._wake()

    def answer(self, number: int, status: int, refused: bool, hint: Hint) -> None:
        now = self.o.now()
        self.attempts += 1
        self._unanswered -= 1
        if hint.reserves or hint.slot:
            self._reserved = now
        hint.wait = min(hint.wait, self.o.max_retry_after)
        if refused:
            self.refused += 1
            self.pacer.refused(now, number, hint)
        elif status < 500:  # a server that fails says nothing of its quota
            self.accepted += 1
            self.pacer.accepted(now, hint)
        self._wake()
        self._queued()

    def _queued(self) -> None:
        if self._reporter:
            self.pacer.queue(self.o.now(), self.users)
            self._reporter.due()

    def told(self, aggregate: Any) -> None:
        with self.lock:
            self.pacer.told(self.o.now(), aggregate)
            self._wake()


class Pace:
    """What the transports share: the queues, and what to do with an answer."""

    def __init__(self, options: Options | None) -> None:
        self.o = options or Options()
        self._lock = threading.Lock()
        self._lines: dict[str, Line] = {}

    def close(self) -> None:
        with self._lock:
            lines, self._lines = list(self._lines.values()), {}
        for line in lines:
            line.close()

    def line(self, key: str) -> Line:
        with self._lock:
            line = self._lines.get(key)
            if line is None:
                if len(self._lines) >= self.o.max_quotas:
                    self._forget(key)
                line = self._lines[key] = Line(key, self.o)
            with line.lock:
                line.enter()
            return line

    def _forget(self, key: str) -> None:
        idle = [line for line in self._lines.values() if line.users == 0]
        if not idle:
            raise Throttled(key, 0, "too many quotas")
        gone = next((line for line in idle if not line.paused), idle[0])
        del self._lines[gone.key]
        gone.close(patience=0)

    def waiter(self, request: Any) -> Waiter:
        return Waiter(self.o.priority(request) if self.o.priority else 0, self.o.now() + self.o.max_wait)

    def leave(self, line: Line) -> None:
        with line.lock:
            line.leave()

    def wait(self, line: Line, waiter: Waiter) -> float:
        """Waits for a turn in this thread. Returns for how long it did, in seconds."""
        began = self.o.now()
        condition = threading.Condition(line.lock)
        with condition:
            waiter.wake = condition.notify
            line.join(waiter)
            try:
                while (more := line.turn(waiter)) is not None:
                    condition.wait(min(max(more, 0.0), threading.TIMEOUT_MAX))
            except BaseException:
                line.abandon(waiter)
                raise
        return self.o.now() - began

    async def wait_async(self, line: Line, waiter: Waiter) -> float:
        """Waits for a turn in this task. Returns for how long it did, in seconds."""
        began = self.o.now()
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        waiter.wake = lambda: _unless_closed(loop, event.set)
        with line.lock:
            line.join(waiter)
        try:
            while True:
                event.clear()
                with line.lock:
                    more = line.turn(waiter)
                if more is None:
                    return self.o.now() - began
                try:
                    await asyncio.wait_for(event.wait(), max(more, 0.0))
                except (asyncio.TimeoutError, TimeoutError):
                    pass
        except BaseException:
            with line.lock:
                line.abandon(waiter)
            raise

    def unanswered(self, line: Line, number: int, waited: float, sent: float) -> None:
        with line.lock:
            line.unanswer()
        self._tell(Attempt(line.key, number, waited, self.o.now() - sent, 0, False))

    def answered(self, line: Line, number: int, waited: float, sent: float, method: str, status: int, get: Callable[[str], str | None], idempotent: bool) -> bool:
        """Notes an answer, and says whether the request is to be sent again."""
        hint = read_hint(get, time.time())
        hint.round_trip = self.o.now() - sent
        refused, asked = is_refusal(status, get), hint.wait
        with line.lock:
            line.answer(number, status, refused, hint)
        self._tell(Attempt(line.key, number, waited, hint.round_trip, status, refused, hint))
        # What was refused because of a limit was not processed, except perhaps where the server says that it is unavailable.
        may_repeat = status != 503 or method.upper() in _IDEMPOTENT or idempotent
        return refused and number < self.o.max_attempts and asked <= self.o.max_retry_after and may_repeat

    def _tell(self, attempt: Attempt) -> None:
        if self.o.on_attempt:
            self.o.on_attempt(attempt)


def _unless_closed(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        pass  # its loop has ended, and the waiter with it
