"""How a client paces itself: the algorithms of Go's package pace, held to the same vectors (pace/testdata/algorithms.json).

Times are seconds of one monotonic clock, rates are per second. ``next``, ``sent``, ``accepted``, ``refused`` and
``concurrent`` are what every pacer has; those that share a quota by telemetry have ``queue``, ``next_report``,
``report`` and ``told`` besides.
"""

from __future__ import annotations

import math
import random as _random
from dataclasses import dataclass, field, replace
from typing import Any, Callable

from .hints import Hint

LONGEST = 100 * 365 * 24 * 3600.0
NEVER = math.inf
ANSWER_WITHIN = 3.0
REPORT_GAP = 1.0
SLOWEST = 1.0  # a request is believed to take to the limiter, at most: what is longer is the time of the server behind it

Random = Callable[[], float]


def _between(random: Random, low: float, high: float) -> float:
    return low + random() * (high - low)


@dataclass
class Report:
    """What one client tells the others; counts are since its last report."""

    congested: bool = False
    sent: int = 0
    accepted: int = 0
    refused: int = 0
    waiting: int = 0


@dataclass
class Aggregate:
    """What an aggregator makes of the reports on a quota. ``last_refusal`` is an age, negative if none is known."""

    sent: int = 0
    active: int = 0
    refusals: int = 0
    refused: int = 0
    waiting: int = 0
    last_refusal: float = 0
    per_second: float = 0
    partial: bool = False

    def plausible(self) -> Aggregate:
        active = max(1, self.active)
        rate = self.per_second if 0 < self.per_second < 1e9 else 0
        return replace(
            self, active=active, sent=max(0, self.sent), waiting=max(0, self.waiting), refusals=max(0, self.refusals),
            refused=min(max(0, self.refused), active), per_second=rate,
        )

    @property
    def average(self) -> float:
        return self.sent / max(1, self.active)


class Pacer:
    """The state of an algorithm at one quota. It is not safe for use by several threads at once."""

    shares = False

    def next(self, now: float) -> float:
        """When the next attempt may be sent: now or earlier means at once."""
        raise NotImplementedError

    def sent(self, now: float) -> None: ...

    def accepted(self, now: float, hint: Hint) -> None: ...

    def refused(self, now: float, attempt: int, hint: Hint) -> None: ...

    def concurrent(self) -> int:
        """How many attempts may be unanswered at once, 0 for any number."""
        return 1

    def rate(self) -> float:
        return 0

    def queue(self, now: float, requests: int) -> None:
        """Notes how many requests are not served yet, which pacers that share a quota report."""

    def told(self, now: float, a: Aggregate) -> None:
        """Notes what an aggregator says, for pacers that share a quota."""


def _after(served: int) -> int:
    """How many requests may be unanswered at once when so many were served since a refusal."""
    return 1 + served // 8


class _AP(Pacer):
    def __init__(self, first: float, low: float | None, high: float | None, random: Random) -> None:
        self._random = random
        self._pause = first
        self._min = min(4.0, first) if low is None else low
        self._max = max(90.0, first) if high is None else high
        self._until = -LONGEST
        self._served = 0
        self._most = 1.0
        self._refused = False
        self._full = 0.0

    def next(self, now: float) -> float:
        return self._until

    def accepted(self, now: float, hint: Hint) -> None:
        self._served += 1
        self._most = max(self._most, self._served)

    def refused(self, now: float, attempt: int, hint: Hint) -> None:
        if hint.full_in > 0:
            self._full = hint.full_in
        if now < self._until:
            return  # one of several that were under way together: the pause has begun
        enough = min(16.0, max(1.0, self._most / 2))
        if self._refused:
            if self._served == 0:
                self._pause = min(self._max, 2 * self._pause)
            elif self._served >= enough:
                self._pause = max(self._min, self._pause * 2 / 3)
        if self._full > 0 and (self._served > 0 or not self._refused):
            self._pause = min(self._pause, self._full)
        self._most = max(1.0, 0.97 * self._most)
        self._refused = True
        self._served = 0
        self._until = now + self._pause * (0.8 + 0.4 * self._random())

    def concurrent(self) -> int:
        """1 after a pause, and one more for every eight that are served.

        The next refusal then meets few of those that wait.
        """
        return _after(self._served) if self._refused else 0


class _UB(Pacer):
    def __init__(self, random: Random) -> None:
        self._random = random
        self._longest = _between(random, 30, 34)
        self._until = -LONGEST

    def next(self, now: float) -> float:
        return self._until

    def refused(self, now: float, attempt: int, hint: Hint) -> None:
        self._until = now + _between(self._random, 0.1, min(self._longest, 2.0 ** min(attempt, 6) - 1))


class _WB(_UB):
    def __init__(self, per_minute: int, profile: str, random: Random) -> None:
        super().__init__(random)
        self._most = max(1, int(per_minute))
        self._attempts = profile == "published"
        self._last: list[float] = []

    def next(self, now: float) -> float:
        at = super().next(now)
        return at if len(self._last) < self._most else max(at, self._last[0] + 60)

    def sent(self, now: float) -> None:
        if self._attempts:
            self._add(now)

    def accepted(self, now: float, hint: Hint) -> None:
        if not self._attempts:
            self._add(now)

    def _add(self, now: float) -> None:
        self._last.append(now)
        del self._last[: -self._most]


def _rounded(rate: float) -> float:
    return math.floor(rate * 100 + 0.5) / 100


class _ATB(Pacer):
    def __init__(self, o: ATB, now: float, random: Random) -> None:
        self._o, self._random = o, random
        self._tokens = 1.0
        self._rate = o.rate
        self._congested = o.congested
        self._last = now
        self._most = 10 * o.rate if o.max_rate is None else o.max_rate
        if o.profile == "reference":
            self._congested *= 60  # the code reads the rate of congestion, which is given per minute, as one per second
            self._rate = _rounded(self._rate)

    def _at(self, now: float) -> float:
        since = now - self._last
        if self._o.profile == "reference":  # its times have two decimals
            since = _rounded(now) - _rounded(self._last)
        return min(self._o.bucket, self._tokens + max(0.0, since) * self._rate)

    def next(self, now: float) -> float:
        tokens = self._at(now)
        return now if tokens >= 1 else now + (1 - tokens) / self._rate

    def sent(self, now: float) -> None:
        self._tokens, self._last = max(0.0, self._at(now) - 1), now

    def accepted(self, now: float, hint: Hint) -> None:
        growth = self._o.alpha if self._rate < self._congested else self._o.beta
        self._set(min(self._most, max(self._rate + self._o.step, self._rate * growth)))

    def refused(self, now: float, attempt: int, hint: Hint) -> None:
        self._congested, self._tokens = self._rate, 0.0
        least = self._o.min_rate
        if self._o.profile == "corrected":
            self._last = now  # else the time on the network counts as saved up
        elif self._o.profile == "published":
            least += (self._random() - 0.5) / 60  # line 24 of Table III
        self._set(max(least, self._rate / 2))

    def _set(self, rate: float) -> None:
        self._rate = _rounded(rate) if self._o.profile == "reference" else rate

    def rate(self) -> float:
        return self._rate


@dataclass
class _Alarm:
    """A refusal that the client reported."""

    due: bool = False
    open: bool = False
    decided: bool = False
    at: float = 0
    rate: float = 0
    jitter: float = 0


class _AATB(Pacer):
    shares = True

    def __init__(self, o: AATB, now: float, random: Random) -> None:
        self._o, self._random = o, random
        self._most = 10 * o.rate if o.max_rate is None else o.max_rate
        self._tokens = 1.0
        self._last = now
        self._not_before = 0.0
        self._under = False
        # Of the request that waits: when, the tokens and what was told when it was decided. What is told later is for the one after it.
        self._turn: tuple[float, float, float] | None = None
        self._changed = self._refused = now - LONGEST
        self._routine = now + o.interval
        self._asked = NEVER
        self._told = now
        self._latest = Aggregate()
        self._counts = Report()
        self._archived = 0
        self._waiting = 0
        self._alarm = _Alarm()
        self._set(o.rate)

    def _at(self, now: float) -> float:
        return min(self._o.bucket, self._tokens + max(0.0, now - self._last) * self._rate)

    def next(self, now: float) -> float:
        if self._alarm.open and not self._alarm.decided:
            until = self._alarm.at + ANSWER_WITHIN
            if now < until:
                return until
            self._decide(now, Aggregate(active=1))
        if self._o.profile == "published" or self._waiting == 0 or self._under:
            return self._earliest(now)
        if self._turn is None:
            self._turn = (self._earliest(now), self._at(now), self._not_before)
            self._not_before = 0.0
        return self._turn[0]

    def _earliest(self, now: float) -> float:
        """When a request that comes now has its token, and may be sent."""
        if self._o.profile == "published":
            now = max(now, self._not_before)
        tokens = self._at(now)
        return max(now + (1 - tokens) / self._rate if tokens < 1 else now, self._not_before)

    def sent(self, now: float) -> None:
        # What could be saved up while it waited for its turn is lost.
        self._tokens, self._last = max(0.0, (self._turn[1] if self._turn else self._at(now)) - 1), now
        if self._not_before <= now and self._turn is None:
            self._not_before = 0.0
        self._turn, self._under = None, True

    def accepted(self, now: float, hint: Hint) -> None:
        self._under = False
        self._counts.sent += 1
        self._counts.accepted += 1
        if self._alone(now):
            self._set(max(self._rate + self._o.step, self._rate * self._o.beta))

    def _alone(self, now: float) -> bool:
        return self._o.profile == "corrected" and now - self._told > 2 * self._o.interval

    def refused(self, now: float, attempt: int, hint: Hint) -> None:
        self._under, self._turn = False, None
        self._counts.sent += 1
        self._counts.refused += 1
        self._refused = now
        self._alarm = _Alarm(due=True, open=True, at=now, rate=self._rate)
        if self._alone(now):
            self._alarm.decided, self._alarm.open = True, False
            self._tokens, self._last, self._changed = 0.0, now, now
            self._set(max(self._o.min_rate, self._rate / 2))
        elif self._o.profile == "corrected":
            self._alarm.jitter = self._random()
            self._decide(now, self._latest)

    def _decide(self, now: float, a: Aggregate) -> None:
        alarm, profile = self._alarm, self._o.profile
        first, alarm.decided = not alarm.decided, True
        base = alarm.at
        if profile != "corrected":  # it was blocked until now
            base, alarm.jitter, alarm.open = now, self._random(), False
        tokens = a.refusals + 1
        if profile == "published":
            tokens = a.refused
        elif profile == "corrected":
            tokens = min(a.refusals, a.active) + 1
        self._set(max(self._o.min_rate, alarm.rate / (2 if self._load() < 0.5 * a.average else 3)))
        if first:
            self._tokens, self._last = 1.1, base
        self._changed = base
        wait = tokens / (a.per_second if a.per_second > 0 else self._o.quota) + alarm.jitter
        if profile == "corrected":
            wait = min(wait, 60.0)
        self._not_before, self._turn = base + wait, None

    def _load(self) -> int:
        """What the client sent of late: as much as its last two reports."""
        return self._archived + self._counts.sent

    def queue(self, now: float, requests: int) -> None:
        self._waiting = requests
        if requests == 0 and self._turn:  # nobody waits for that turn any more
            self._not_before, self._turn = max(self._not_before, self._turn[2]), None

    def next_report(self, now: float) -> float:
        return now if self._alarm.due else self._routine

    def report(self, now: float) -> Report | None:
        if self._alarm.due:
            self._alarm.due = False
            return self._made(True)
        if now < self._routine:
            return None
        while self._routine <= now:
            self._routine += self._o.interval
        if now - self._refused < self._o.interval:
            return None
        self._asked = now
        return self._made(False)

    def _made(self, congested: bool) -> Report:
        made = replace(self._counts, congested=congested, waiting=self._waiting)
        self._archived, self._counts = made.sent, Report()
        return made

    def told(self, now: float, aggregate: Aggregate) -> None:
        a = aggregate.plausible()
        self._told, self._latest = now, a
        alarm, profile = self._alarm, self._o.profile
        if alarm.open:
            alarm.open = False
            if now - alarm.at <= ANSWER_WITHIN:
                self._decide(now, a)
                return
            if not alarm.decided:
                self._decide(alarm.at + ANSWER_WITHIN, Aggregate(active=1))
        if self._asked == NEVER or now - self._asked > ANSWER_WITHIN:
            return
        if self._o.profile == "corrected":
            now = self._asked  # else an answer that is quicker than the one before comes within the interval of it
        self._asked = NEVER
        told = (a.refused if profile == "published" else a.refusals) > 0
        believed = not self._o.gate or now - self._refused <= 2 * self._o.interval  # else nothing that this client saw agrees
        if told and believed:
            self._not_before = now + self._o.interval + _between(self._random, -2, 2)
        elif a.partial and profile == "corrected":
            pass  # an aggregator that has just started knows of no refusals, whoever had some
        elif now - self._changed >= self._o.interval:
            few = self._load() < 0.75 * a.average or (profile != "published" and (a.active == 1 or a.sent == 0))
            self._set(max(self._rate + self._o.step, self._rate * (self._o.alpha if few else self._o.beta)))
            self._changed = now

    def _set(self, rate: float) -> None:
        rate = min(rate, self._most)
        self._rate = _rounded(rate) if self._o.profile == "reference" else rate

    def rate(self) -> float:
        return self._rate


class _XATB(Pacer):
    shares = True

    def __init__(self, o: XATB, random: Random) -> None:
        self._o, self._random = o, random
        self._pause = o.pause.start(0, random)
        self._due = NEVER
        self._reported = self._told = self._refused = -LONGEST
        self._alarm = False
        self._counts = Report()
        self._requests = self._named = self._served = 0
        self._latest = Aggregate()
        self._congested = False
        self._since = self._phase = self._until = 0.0

    def _quota(self) -> float:
        return self._latest.per_second if self._latest.per_second > 0 else self._o.quota

    def _fresh(self, now: float) -> bool:
        return now - self._told <= 2 * self._o.interval and self._quota() > 0

    def rate(self) -> float:
        return self._share() if self._congested else 0

    def _share(self) -> float:
        """At least a tenth of an equal share, whatever the others claim.

        A queue counts as long as it was when it was reported, as those of the others do.
        """
        everything = self._o.factor * self._quota()
        own = max(1, self._named)  # as the others' queues: as long as it was said to be
        others = max(0, self._latest.waiting - self._named)
        return min(everything, max(everything * own / (own + others), everything / (10 * max(1, self._latest.active))))

    def next(self, now: float) -> float:
        if not self._fresh(now):
            return self._pause.next(now)
        return max(self._until, self._since + self._phase / self._share()) if self._congested else self._until

    def sent(self, now: float) -> None:
        self._pause.sent(now)
        self._since, self._phase = now, 1.0

    def accepted(self, now: float, hint: Hint) -> None:
        self._counts.sent += 1
        self._counts.accepted += 1
        self._served += 1
        self._pause.accepted(now, hint)

    def refused(self, now: float, attempt: int, hint: Hint) -> None:
        self._counts.sent += 1
        self._counts.refused += 1
        self._refused = self._due = now
        self._served = 0
        self._alarm = True
        if not self._fresh(now):
            self._congested = True
            self._pause.refused(now, attempt, hint)
            return
        self._congest(now)
        self._until = self._since = now + (2 + 2 * self._random()) / self._quota()  # its turns go on from there

    def _congest(self, now: float) -> None:
        if not self._congested:
            self._congested, self._since, self._phase = True, now, self._random()

    def queue(self, now: float, requests: int) -> None:
        if self._requests == 0 and requests > 0:
            self._due = min(self._due, max(now, self._reported + REPORT_GAP))
        if self._requests > 0 and requests == 0 and self._congested and self._named > 0:
            self._due = min(self._due, now)  # the others may have its share
        self._requests = requests

    def next_report(self, now: float) -> float:
        return self._due

    def report(self, now: float) -> Report | None:
        if now < self._due:
            return None
        self._due = NEVER
        if self._requests == 0 and not self._alarm and self._named == 0:
            return None
        if self._requests > 0:
            self._due = now + self._o.interval
        # While nothing is held back, all that there is will be gone when others hear of it.
        made = replace(self._counts, congested=self._alarm, waiting=self._requests if self._congested else 0)
        self._counts, self._alarm, self._named, self._reported = Report(), False, made.waiting, now
        return made

    def told(self, now: float, a: Aggregate) -> None:
        self._told, self._latest = now, a.plausible()
        recent = 0 <= a.last_refusal <= 3 * self._o.interval
        if self._latest.waiting <= 1:
            # Nobody else waits, as far as is known by an aggregator that has watched for a window. A client that was
            # just refused is not told so by its own report.
            if not a.partial and now >= self._until:
                self._congested = False
        elif recent and not (self._o.gate and now - self._refused > 2 * self._o.interval):
            self._congest(now)

    def concurrent(self) -> int:
        """As with AP: to share is no reason to send all that waits at once."""
        return _after(self._served) if self._refused > -LONGEST / 2 else self._pause.concurrent()


class _HATB(Pacer):
    def __init__(self, otherwise: Pacer, jitter: float, distrust: bool, random: Random) -> None:
        self._otherwise, self._jitter, self._distrust, self._random = otherwise, max(0.0, jitter), distrust, random
        self._until = self._marked = -LONGEST
        self._held = False
        self._most = 1  # until the server has said what it has left; 0 for any number
        self._window = 0.0

    def _hinted(self, now: float) -> bool:
        return not self._held and now - self._marked <= 2 * (self._window or 60.0)

    def next(self, now: float) -> float:
        return max(now, self._until) if self._hinted(now) else max(self._until, self._otherwise.next(now))

    def sent(self, now: float) -> None:
        self._otherwise.sent(now)

    def _relied(self, h: Hint) -> bool:
        return h.slot and h.wait > 0 and not self._distrust

    def accepted(self, now: float, h: Hint) -> None:
        self._otherwise.accepted(now, h)
        self._most = max(1, h.remaining) if h.remaining >= 0 else 0
        if h.remaining == 0 and h.wait > 0:
            self._until = max(self._until, self._kept(now, h))
            self._mark(now, h)

    def refused(self, now: float, attempt: int, h: Hint) -> None:
        if self._relied(h):
            self._most = 1
            self._until = max(self._until, self._kept(now, h))
            self._mark(now, h)
            return
        self._held = True
        self._otherwise.refused(now, attempt, h)
        if h.wait > 0:
            self._until = max(self._until, now + h.wait)

    def _mark(self, now: float, h: Hint) -> None:
        if self._relied(h):
            self._marked, self._held = now, False
        if h.full_in > 0:
            self._window = min(h.full_in, 3600.0)

    def _kept(self, now: float, h: Hint) -> float:
        """When a time of the server begins: it counts from when the limiter decided, at the end of the round trip at the latest.

        Who comes early is refused.
        """
        return now - max(0.0, h.round_trip - SLOWEST) + h.wait + _between(self._random, 0, self._jitter)

    def concurrent(self) -> int:
        other = self._otherwise.concurrent()
        return self._most + other if self._most == 0 or other == 0 else min(self._most, other)

    def rate(self) -> float:
        return self._otherwise.rate()


class _Auto(_HATB):
    shares = True
    _otherwise: _XATB

    def queue(self, now: float, requests: int) -> None:
        self._otherwise.queue(now, requests)

    def next_report(self, now: float) -> float:
        return self._otherwise.next_report(now)

    def report(self, now: float) -> Report | None:
        return self._otherwise.report(now)

    def told(self, now: float, a: Aggregate) -> None:
        self._otherwise.told(now, a)


class Algorithm:
    """What paces each quota: one of the classes below."""

    def start(self, now: float, random: Random = _random.random) -> Pacer:
        raise NotImplementedError


@dataclass(frozen=True)
class AP(Algorithm):
    """Pauses the whole queue after a refusal, and finds the length of the pause by trial: for servers that say nothing."""

    first: float = 30.0
    min: float | None = None  # default 4 s, or first
    max: float | None = None  # default 90 s, or first

    def start(self, now: float, random: Random = _random.random) -> _AP:
        return _AP(self.first, self.min, self.max, random)


@dataclass(frozen=True)
class UB(Algorithm):
    """Exponential backoff with full jitter: the baseline of the paper."""

    def start(self, now: float, random: Random = _random.random) -> _UB:
        return _UB(random)


@dataclass(frozen=True)
class WB(Algorithm):
    """UB, with at most so many in any minute."""

    per_minute: int
    profile: str = "corrected"

    def start(self, now: float, random: Random = _random.random) -> _WB:
        return _WB(self.per_minute, self.profile, random)


@dataclass(frozen=True)
class ATB(Algorithm):
    """The paper's adaptive token bucket. ``max_rate`` is 10 times ``rate`` unless given; the paper has no such bound."""

    bucket: float = 40
    rate: float = 40 / 60
    congested: float = 5
    min_rate: float = 0.01
    step: float = 0.01
    alpha: float = 1.2
    beta: float = 1.2
    max_rate: float | None = None
    profile: str = "corrected"

    def start(self, now: float, random: Random = _random.random) -> _ATB:
        return _ATB(self, now, random)


@dataclass(frozen=True)
class AATB(Algorithm):
    """The paper's assisted adaptive token bucket, whose rate follows what an aggregator tells of all clients."""

    bucket: float = 40
    rate: float = 40 / 60
    min_rate: float = 0.01
    step: float = 0.01
    alpha: float = 1.4
    beta: float = 1.2
    max_rate: float | None = None
    interval: float = 30
    quota: float = 0.25  # of the limiter, where the aggregator does not know it
    gate: bool = False
    profile: str = "corrected"

    def start(self, now: float, random: Random = _random.random) -> _AATB:
        return _AATB(self, now, random)


@dataclass(frozen=True)
class XATB(Algorithm):
    """Takes the part of a congested quota that its queue is of all queues, as an aggregator tells. Without news it is AP."""

    pause: AP = field(default_factory=AP)
    interval: float = 30
    quota: float = 0  # a second, where the aggregator does not know it
    factor: float = 1
    gate: bool = False

    def start(self, now: float, random: Random = _random.random) -> _XATB:
        return _XATB(self, random)


@dataclass(frozen=True)
class HATB(Algorithm):
    """Obeys times that the server reserves or spaces; what else it says is a lower bound of AP's pause."""

    pause: AP = field(default_factory=AP)
    jitter: float = 0.05
    distrust: bool = False

    def start(self, now: float, random: Random = _random.random) -> _HATB:
        return _HATB(self.pause.start(now, random), self.jitter, self.distrust, random)


@dataclass(frozen=True)
class Auto(Algorithm):
    """HATB where the server says something, else XATB where there is an aggregator, else AP."""

    share: XATB = field(default_factory=XATB)
    jitter: float = 0.05
    distrust: bool = False

    def start(self, now: float, random: Random = _random.random) -> _Auto:
        return _Auto(self.share.start(now, random), self.jitter, self.distrust, random)
