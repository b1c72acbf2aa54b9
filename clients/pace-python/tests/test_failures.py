"""What can go wrong around a client that paces itself, as in Go's pace/failures_test.go."""

import itertools
import socket
import struct
import threading
import time
import unittest

import httpx

from headgate_pace import AATB, AP, ATB, HATB, XATB, Auto, Hint, Options, Telemetry, Throttled
from headgate_pace.algorithms import Aggregate
from headgate_pace.httpx import Transport
from headgate_pace.telemetry import SIZE, decode


def half():
    return 0.5


def aggregate(**fields):
    return Aggregate(**{"active": 1, "last_refusal": -1, "per_second": 2, **fields})


def busy(**fields):
    return aggregate(**{"sent": 40, "active": 4, "refusals": 2, "refused": 2, "waiting": 10, "last_refusal": 1, **fields})


class Answers(httpx.BaseTransport):
    """Answers with what ``answer`` returns: a status and fields."""

    def __init__(self, answer):
        self.answer, self.attempts = answer, itertools.count(1)

    def handle_request(self, request):
        status, fields = self.answer(next(self.attempts))
        return httpx.Response(status, headers=fields)


class PacerTest(unittest.TestCase):
    def test_an_aggregator_that_falls_silent_leaves_ap_behind(self):
        p = XATB().start(0, half)
        p.queue(0, 3)
        self.assertIsNotNone(p.report(0))
        p.told(0, busy())
        self.assertEqual((p._fresh(59), p._fresh(61)), (True, False))
        p.refused(61, 1, Hint())
        self.assertEqual(p.next(61) - 61, 30)
        p.told(62, aggregate())
        self.assertLessEqual(p.next(62), 62)

    def test_an_aggregator_that_has_just_started_is_not_peace(self):
        for partial in (True, False):
            aatb = AATB(rate=1).start(0, half)
            aatb.report(30)
            aatb.told(30, aggregate(partial=partial))
            self.assertEqual(aatb.rate() > 1, not partial)
            xatb = XATB().start(0, half)
            xatb.queue(0, 3)
            xatb.report(0)
            xatb.told(0, busy())
            xatb.sent(10)
            xatb.told(20, aggregate(waiting=1, partial=partial))
            self.assertEqual(xatb.rate() > 0, partial)

    def test_whatever_an_aggregator_claims_waits_and_shares_stay_within_what_may_be(self):
        for a in (
            {"refusals": 2**40, "refused": 2**30, "active": 5, "per_second": 0.001, "waiting": 2**50},
            {"active": -4, "sent": -1, "waiting": -9, "per_second": 1e300},
            {"active": 2**30, "refused": 2**63, "refusals": 2**62, "sent": 2**62, "waiting": 2**62, "per_second": float("nan"), "last_refusal": -1e300},
        ):
            aatb = AATB().start(0, half)
            aatb.refused(0, 1, Hint())
            aatb.told(0, aggregate(**a))
            self.assertTrue(aatb.next(0) <= 100 and aatb.rate() >= 0.01, a)
            xatb = XATB(quota=1).start(0, half)
            xatb.told(0, aggregate(**a))
            xatb.queue(0, 1)
            xatb.refused(0, 1, Hint())
            self.assertGreaterEqual(xatb.next(0), 0, a)
        p = XATB().start(0, half)
        p.queue(0, 1)
        p.report(0)
        p.told(0, busy(waiting=2**40))
        self.assertGreaterEqual(p.rate(), 2 / 40)

    def test_with_the_gate_refusals_of_others_stop_nobody(self):
        for gate in (True, False):
            p = AATB(gate=gate, rate=1).start(0, half)
            p.report(90)
            p.told(90, busy())
            self.assertEqual(p.next(90) > 90, not gate)

    def test_hints_that_vanish_leave_ap_behind(self):
        p = HATB(jitter=0).start(0, half)
        p.refused(0, 1, Hint(wait=1, slot=True, burst=10, gap=1))
        self.assertEqual((p._hinted(20), p._hinted(21)), (True, False))
        p.refused(2, 1, Hint())
        self.assertEqual((p.next(2) - 2, p._hinted(2)), (30, False))
        distrusting = HATB(distrust=True).start(0, half)
        distrusting.refused(0, 1, Hint(wait=1, slot=True))
        self.assertEqual(distrusting.next(0), 30)

    def test_a_machine_that_slept_sends_one_request_and_finds_out(self):
        p = Auto().start(0, half)
        p.refused(0, 1, Hint(wait=1, slot=True))
        self.assertLessEqual(p.next(36_000), 36_000)
        self.assertEqual(p.concurrent(), 1)


class TransportTest(unittest.TestCase):
    def client(self, answer, **options):
        transport = Transport(Options(**options), base=Answers(answer))
        client = httpx.Client(transport=transport)
        self.addCleanup(client.close)
        return client, transport

    def test_a_server_that_fails_or_is_away_says_nothing_of_its_quota(self):
        def answer(n):
            if n % 2:
                raise httpx.ConnectError("no route")
            return 500, {}

        client, transport = self.client(answer, algorithm=ATB(rate=1e9, bucket=1000))
        for _ in range(5):
            with self.assertRaises(httpx.ConnectError):
                client.get("http://api.test/")
            self.assertEqual(client.get("http://api.test/").status_code, 500)
        (line,) = transport._pace._lines.values()
        self.assertEqual((line.pacer.rate(), line.refused, line.paused, line.attempts), (1e9, 0, False, 10))

    def test_absurd_times_fail_fast(self):
        for value in ("86400", "99999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"):
            client, _ = self.client(lambda n, value=value: (429, {"Retry-After": value}), max_wait=60)
            answer = client.get("http://api.test/")
            self.assertEqual((answer.status_code, answer.headers["Retry-After"]), (429, value))
            with self.assertRaises(Throttled) as caught:
                client.get("http://api.test/")
            self.assertTrue(0 < caught.exception.retry_after <= 120, value)
        for value in ("-5", "NaN", "soon", "1e9"):
            client, _ = self.client(lambda n, value=value: (429, {"Retry-After": value}) if n == 1 else (200, {}), algorithm=AP(first=0.02, min=0.01, max=0.05))
            self.assertEqual(client.get("http://api.test/").status_code, 200, value)

    def test_an_aggregator_that_never_answers_keeps_nobody_waiting_and_hears_the_end(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
            silent.bind(("127.0.0.1", 0))
            silent.settimeout(60)
            client, transport = self.client(
                lambda n: (200, {}), telemetry=lambda key: Telemetry(silent.getsockname(), "api", secret=b"s" * 32), max_wait=60,
            )
            began = time.monotonic()
            for _ in range(3):
                self.assertEqual(client.get("http://api.test/").status_code, 200)
            self.assertLess(time.monotonic() - began, 30)
            threading.Thread(target=transport.close).start()
            while struct.unpack(">I", silent.recv(SIZE)[60:64])[0] != 0:
                pass

    def test_what_is_no_answer_of_the_aggregator_is_none(self):
        for message in (b"", b"H", b"H" * (SIZE - 1), b"H" * SIZE, b"H" * (SIZE + 1), b"{}"):
            self.assertIsNone(decode(message, b"k" * 32, "api", 1))


if __name__ == "__main__":
    unittest.main()
