"""Reports to `headgate telemetry` by UDP, in the messages that Go's package pace/telemetry describes."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import selectors
import socket
import struct
import threading
import time
from dataclasses import dataclass
from typing import Any

from .algorithms import Aggregate

SIZE = 128
_SIGNED = 112
_REMEMBERED = 16  # reports that may still be answered
_REPORT = struct.Struct(">4sBBH24sQQIIIIQ40x")
_AGGREGATE = struct.Struct(">4sBBH24sQQIIIIQIIIQI16x")
_NEVER = 2**32 - 1


@dataclass(frozen=True)
class Telemetry:
    """Where to report about a quota, and as whom: with the secret of the aggregator, or with the key of one client."""

    address: tuple[str, int]
    quota: str
    secret: bytes | None = None
    key: bytes | None = None
    client: int | None = None

    def __post_init__(self) -> None:
        if (self.secret is None) == (self.key is None or self.client is None):
            raise ValueError("telemetry: want secret, or key and client")
        if not 1 <= len(self.quota.encode()) <= 24:
            raise ValueError(f"telemetry: quota is {self.quota!r}, want 1 to 24 bytes")


def client_key(secret: bytes, quota: str, client: int) -> bytes:
    """The key of one client at one quota."""
    return hmac.digest(secret, b"headgate telemetry 1\0" + client.to_bytes(8, "big") + quota.encode(), hashlib.sha256)


def _mac(message: bytes, key: bytes) -> bytes:
    return hmac.digest(key, message, hashlib.sha256)[: SIZE - _SIGNED]


def encode(key: bytes, quota: str, client: int, number: int, first: bool, congested: bool, sent: int, accepted: int, refused: int, queue: int, unix_ms: int) -> bytes:
    """A report, signed."""
    message = _REPORT.pack(
        b"HGT1", 1, congested | first << 1, 0, quota.encode(), client, number, sent % 2**32, accepted % 2**32, refused % 2**32, min(max(0, queue), 10_000), unix_ms,
    )
    return message + _mac(message, key)


def decode(message: bytes, key: bytes, quota: str, client: int) -> tuple[int, Aggregate] | None:
    """The number of the report that is answered, and the answer; None for anything else."""
    if len(message) != SIZE or not hmac.compare_digest(message[_SIGNED:], _mac(message[:_SIGNED], key)):
        return None
    magic, kind, flags, _, name, whose, number, sent, _, refused, queue, _, active, refusing, since, capacity, _ = _AGGREGATE.unpack(message[:_SIGNED])
    if magic != b"HGT1" or kind != 2 or name.rstrip(b"\0") != quota.encode() or whose != client:
        return None
    last = -1.0 if since == _NEVER else since / 1000
    return number, Aggregate(sent, active, refused, refusing, queue, last, capacity / 1e6, partial=not flags & 1)


class Reporter:
    """Sends what reports are due for a line, in a thread of its own, and hands on the answers. What is lost is lost."""

    def __init__(self, o: Telemetry, line: Any) -> None:
        self._o, self._line = o, line
        self._client = secrets.randbits(64) if o.client is None else o.client
        self._key = o.key if o.key is not None else client_key(o.secret or b"", o.quota, self._client)
        self._number = int(time.time() * 1000)
        self._first = True
        self._asked: dict[int, None] = {}
        self._newest = 0
        self._ended = False
        self._ours, self._theirs = socket.socketpair()
        self._theirs.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="headgate-pace telemetry", daemon=True)
        self._thread.start()

    def due(self) -> None:
        """A report may have become due."""
        try:
            self._theirs.send(b"x")
        except OSError:
            pass  # it is awake already, or over

    def close(self, patience: float) -> None:
        """Reports an empty queue, and ends the thread, which is waited for so many seconds."""
        self._ended = True
        self.due()
        if patience > 0 and threading.current_thread() is not self._thread:
            self._thread.join(patience)

    def _run(self) -> None:
        with self._ours, self._theirs, selectors.DefaultSelector() as ready:
            ready.register(self._ours, selectors.EVENT_READ)
            udp: socket.socket | None = None
            while True:
                ended = self._ended
                with self._line.lock:
                    now = self._line.o.now()
                    report = self._line.pacer.report(now) if self._line.pacer.next_report(now) <= now else None
                    after = self._line.pacer.next_report(now) - now
                    counts = (self._line.accepted, self._line.refused, report.waiting if report and not ended else 0)
                if report or ended:
                    if udp is None and (udp := self._dial()):
                        ready.register(udp, selectors.EVENT_READ)
                    if udp:
                        self._send(udp, bool(report and report.congested), *counts)
                if ended:
                    break
                for key, _ in ready.select(min(max(0.001, after), 3600.0)):
                    if key.fileobj is self._ours:
                        self._ours.recv(4096)
                    elif udp:
                        self._receive(udp)
            if udp:
                udp.close()

    def _dial(self) -> socket.socket | None:
        try:
            family, _, _, _, address = socket.getaddrinfo(*self._o.address, type=socket.SOCK_DGRAM)[0]
            udp = socket.socket(family, socket.SOCK_DGRAM)
            udp.setblocking(False)
            udp.connect(address)
            return udp
        except OSError:
            return None  # the next report tries again

    def _send(self, udp: socket.socket, congested: bool, accepted: int, refused: int, queue: int) -> None:
        self._number += 1
        self._asked[self._number] = None
        if len(self._asked) > _REMEMBERED:
            del self._asked[next(iter(self._asked))]
        message = encode(
            self._key, self._o.quota, self._client, self._number, self._first, congested, accepted + refused, accepted, refused, queue, int(time.time() * 1000),
        )
        try:
            udp.send(message)
            self._first = False
        except OSError:
            pass  # it tells of a report before, at best

    def _receive(self, udp: socket.socket) -> None:
        try:
            message = udp.recv(SIZE + 1)
        except OSError:
            return  # nobody listens there
        answer = decode(message, self._key, self._o.quota, self._client)
        if answer is None or answer[0] not in self._asked or answer[0] <= self._newest:
            return
        self._newest = answer[0]
        del self._asked[answer[0]]
        self._line.told(answer[1])
