"""What an answer says of a quota, in all dialects that Go's package pace reads (pace/testdata/headers.json)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Callable

LONGEST = 100 * 365 * 24 * 3600.0

Get = Callable[[str], "str | None"]  # the value of a field, several lines joined by commas


@dataclass
class Hint:
    """``wait``, ``gap`` and ``round_trip`` are seconds, 0 if unknown; ``remaining`` is -1 if unknown."""

    wait: float = 0
    remaining: int = -1
    slot: bool = False
    burst: int = 0
    gap: float = 0
    reserves: bool = False
    round_trip: float = 0

    @property
    def full_in(self) -> float:
        """How long the quota takes to fill, 0 if unknown."""
        return min(self.burst * self.gap, LONGEST)

    def note(self, left: int, wait: float) -> None:
        """Takes in one quota. The longest wait counts, of those that have nothing left."""
        if self.remaining < 0 or left < self.remaining:
            self.remaining = left
        if left == 0:
            self.wait = max(self.wait, wait)


def _seconds(s: float) -> float:
    return min(max(0.0, s), LONGEST)


_NUMBER = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)\Z")
_COUNT = re.compile(r"\+?[0-9]{1,18}\Z")


def _number(text: str | None) -> float | None:
    """A decimal number that is not negative: no signs, exponents, NaN or infinity."""
    if text is None or len(text) > 400 or not _NUMBER.match(text):
        return None
    n = float(text)
    return n if math.isfinite(n) else None


def _count(text: str | None) -> int | None:
    """A whole number; what follows a comma or semicolon is dropped: "10, 10;w=1" is 10."""
    first = re.split("[,;]", text or "", maxsplit=1)[0].strip()
    return int(first) if _COUNT.match(first) else None


_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_DATES = (
    re.compile(r"[A-Za-z]{3}, (?P<d>\d\d) (?P<m>[A-Za-z]{3}) (?P<y>\d{4}) (?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d) GMT\Z", re.A),
    re.compile(r"[A-Za-z]{6,9}, (?P<d>\d\d)-(?P<m>[A-Za-z]{3})-(?P<y>\d\d) (?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d) GMT\Z", re.A),
    re.compile(r"[A-Za-z]{3} (?P<m>[A-Za-z]{3}) (?P<d>[ \d]\d) (?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d) (?P<y>\d{4})\Z", re.A),
)


def _http_date(text: str) -> float | None:
    """The Unix time of an HTTP date in any of its three forms (RFC 9110 section 5.6.7)."""
    for pattern in _DATES:
        m = pattern.match(text)
        if not m:
            continue
        year = int(m["y"])
        if year < 100:
            year += 2000 if year < 69 else 1900
        try:
            return datetime(year, _MONTHS.index(m["m"]) + 1, int(m["d"]), int(m["H"]), int(m["M"]), min(59, int(m["S"])), tzinfo=timezone.utc).timestamp()
        except ValueError:
            return None
    return None


_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"\+?(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|ms|s|m|h))+\Z", re.A)
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)", re.A)
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)\Z", re.A)


def _until(text: str | None, now: float) -> float:
    """A reset in any dialect: seconds from now, a Unix time, a time of RFC 3339, or a duration such as 6m0s."""
    value = (text or "").strip()
    n = _number(value)
    if n is not None:
        if n >= 1e12:
            return _seconds(n / 1000 - now)
        return _seconds(n - now) if n >= 1e9 else _seconds(n)
    m = _RFC3339.match(value)
    if m:
        try:
            whole = datetime.fromisoformat(m[1] + ("+00:00" if m[3] == "Z" else m[3])).timestamp()
        except (ValueError, OverflowError):
            return 0
        return _seconds(whole + float(m[2] or 0) - now)
    if len(value) <= 100 and _DURATION.match(value):
        return _seconds(sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value)))
    return 0


class _List:
    """A List of RFC 9651 whose members are Strings or Tokens."""

    _text = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
    _token = re.compile(r"[A-Za-z*][A-Za-z0-9!#$%&'*+\-.^_`|~:/]*")
    _key = re.compile(r"[a-z*][a-z0-9_\-.*]*")
    _num = re.compile(r"-?([0-9]{1,15})(?:\.([0-9]{1,3}))?(?![0-9.])")
    _other = re.compile(r'\?0|:[A-Za-z0-9+/=]*:|@-?[0-9]{1,15}(?![0-9.])|%"(?:[ !#-\[\]-~]|\\["\\])*"')
    _most = 64

    def __init__(self, field: str) -> None:
        self._rest, self._at = field.strip(" "), 0

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        m = pattern.match(self._rest, self._at)
        if m:
            self._at = m.end()
        return m

    def _take(self, c: str) -> bool:
        if self._rest.startswith(c, self._at):
            self._at += len(c)
            return True
        return False

    def _blank(self, characters: str) -> None:
        while self._at < len(self._rest) and self._rest[self._at] in characters:
            self._at += 1

    def _string(self) -> str | None:
        m = self._match(self._text)
        return re.sub(r'\\(["\\])', r"\1", m[1]) if m else None

    def _name(self) -> str | None:
        if self._rest.startswith('"', self._at):
            return self._string()
        m = self._match(self._token)
        return m[0] if m else None

    def _value(self) -> object:
        """An int, a str, True, "" for what matters to nobody, or None for what is no value."""
        if self._rest.startswith('"', self._at):
            return self._string()
        m = self._match(self._num)
        if m:
            if m[2] is not None:
                return "" if len(m[1]) <= 12 else None
            return int(m[0])
        if self._take("?1"):
            return True
        if self._match(self._other) or self._match(self._token):
            return ""
        return None

    def read(self) -> list[tuple[str, dict[str, object]]] | None:
        items: list[tuple[str, dict[str, object]]] = []
        while len(items) < self._most:
            name = self._name()
            if name is None:
                return None
            params: dict[str, object] = {}
            while self._take(";"):
                self._blank(" ")
                key = self._match(self._key)
                if key is None:
                    return None
                value = self._value() if self._take("=") else True
                if value is None:
                    return None
                params[key[0]] = value
            items.append((name, params))
            self._blank(" \t")
            if self._at == len(self._rest):
                return items
            if not self._take(","):
                return None
            self._blank(" \t")
        return None


def _integer(params: dict[str, object], key: str) -> int | None:
    value = params.get(key)
    return value if type(value) is int else None


def _delay(s: float) -> float:
    """A number of seconds; a Unix time in its place is a fault of the server."""
    return 0 if s >= 1e9 else _seconds(s)


_LEGACY = (
    ("ratelimit-remaining", "ratelimit-reset"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("x-rate-limit-remaining", "x-rate-limit-reset"),
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
)


def _rate_limit(h: Hint, field: str, policy_field: str) -> None:
    items = _List(field).read()
    if items is None:
        _dictionary(h, field)
        return
    policies = _List(policy_field).read() or []
    h.reserves = any(params.get("headgate-reserves") is True for _, params in policies)
    least = -1
    for name, params in items:
        renamed = "a" in params  # as the working group proposes (its pull request 166)
        left = _integer(params, "a" if renamed else "r")
        if left is None or left < 0:
            continue
        policy = next((p for n, p in policies if n == name), {})
        unit = policy.get("qu")
        if isinstance(unit, str) and unit not in ("", "requests") and left > 0:
            continue  # so many bytes, or requests at once: not so many requests
        h.note(left, _delay(max(0, _integer(params, "w" if renamed else "t") or 0)))
        slot = _integer(params, "headgate-slot")
        if slot is not None and slot >= 0 and left == 0:
            h.slot, h.wait = True, _seconds(slot / 1000)
        if least < 0 or left < least:
            least, h.burst, h.gap = left, 0, 0
        if left == least:
            _describe(h, policy)


def _describe(h: Hint, policy: dict[str, object]) -> None:
    """Takes in the policy of a quota that has least left: of several, the one that takes longest to fill."""
    quota, window = _integer(policy, "q") or 0, _integer(policy, "w") or 0
    if quota <= 0 or window <= 0:
        return
    own = _integer(policy, "headgate-burst") or 0
    d = Hint(burst=own if own > 0 else quota, gap=window / quota)
    if d.full_in > h.full_in:
        h.burst, h.gap = d.burst, d.gap


def _dictionary(h: Hint, field: str) -> None:
    """RateLimit of draft-07: limit=100, remaining=50, reset=5."""
    left, wait = None, 0.0
    for part in field.split(","):
        name, _, value = part.partition("=")
        n = _count(value)
        if n is None:
            continue
        if name.strip() == "remaining":
            left = n
        elif name.strip() == "reset":
            wait = _delay(n)
    if left is not None:
        h.note(left, wait)


def _retry_after(get: Get, now: float) -> float | None:
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        ms = _number(get(name))
        if ms is not None:
            return _seconds(ms / 1000)
    value = (get("retry-after") or "").strip()
    s = _number(value)
    if s is not None:
        return _seconds(s)
    at = _http_date(value)
    return None if at is None else _seconds(at - now)


def read_hint(get: Get, now: float) -> Hint:
    """Reads what an answer says of a quota. What cannot be understood counts as absent. ``now`` is the wall clock."""
    date = _http_date(get("date") or "")
    if date is not None:
        now = date  # times of day are by the server's clock
    h = Hint()
    _rate_limit(h, get("ratelimit") or "", get("ratelimit-policy") or "")
    for remaining, reset in _LEGACY:
        left = _count(get(remaining))
        if left is not None:
            h.note(left, _until(get(reset), now))
    used, slash, everything = (get("x-shopify-shop-api-call-limit") or "").partition("/")
    u, a = _count(used), _count(everything)
    if slash and u is not None and a is not None:
        h.note(max(0, a - u), 0)
    wait = _retry_after(get, now)
    if wait is not None and not h.slot:
        h.wait = wait
    h.wait = min(h.wait, LONGEST)
    return h


_THROTTLING = {
    "ThrottlingException", "Throttling", "ThrottledException", "RequestThrottledException", "TooManyRequestsException",
    "ProvisionedThroughputExceededException", "RequestLimitExceeded",
}


def is_refusal(status: int, get: Get) -> bool:
    """Whether an answer means that a limit was reached."""
    if status == 503:
        return get("retry-after") is not None
    if status == 403:
        return get("retry-after") is not None or _count(get("x-ratelimit-remaining")) == 0
    if status == 400:
        return (get("x-amzn-errortype") or "").partition(":")[0] in _THROTTLING
    return status == 429
