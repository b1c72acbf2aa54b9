"""What needs no server. Those with one are in eval/doors."""

import asyncio
import unittest

import headgate
from headgate import asgi, wsgi
from headgate.client import Breaker, Unavailable, question


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class LocalTest(unittest.TestCase):
    def test_burst_then_rate(self):
        clock = Clock()
        local = headgate.Local(2, per=10, burst=3, now=clock)
        q = question("GET", "/a", "192.0.2.1")
        self.assertEqual([local(q).allowed for _ in range(4)], [True, True, True, False])
        refused = local(q)
        self.assertEqual((refused.status, refused.header["Retry-After"]), (429, "5"))
        clock.now += 4.9
        self.assertFalse(local(q).allowed)
        clock.now += 0.1
        self.assertEqual([local(q).allowed for _ in range(2)], [True, False])
        clock.now += 1000  # it holds no more than its burst
        self.assertEqual([local(q).allowed for _ in range(4)], [True, True, True, False])

    def test_whose(self):
        local = headgate.Local(1, per=3600, now=Clock())
        for client, allowed in [
            ("192.0.2.1", True), ("192.0.2.2", True), ("192.0.2.1", False), ("::ffff:192.0.2.1", False),
            ("2001:db8::1", True), ("2001:db8::2", False), ("2001:db8:0:1::1", True), ("unix", True), ("nonsense", False),
        ]:
            self.assertEqual(local(question("GET", "/a", client)).allowed, allowed, client)
        for user, allowed in [(headgate.User("7"), True), (headgate.User("7", "acme"), True), (headgate.User("7"), False), (headgate.User("8"), True)]:
            self.assertEqual(local(question("GET", "/a", "192.0.2.9", user=user)).allowed, allowed, user)

    def test_bounded(self):
        local = headgate.Local(1, per=3600, most=10, now=Clock())
        for i in range(1000):
            local(question("GET", "/a", f"198.51.{i // 250}.{i % 250}"))
        self.assertEqual(len(local._full), 10)

    def test_nonsense(self):
        for args in [(0,), (1, 0), (1, 1, 0.5)]:
            with self.assertRaises(ValueError):
                headgate.Local(*args)


class BreakerTest(unittest.TestCase):
    def test_asked_once_a_second(self):
        clock = Clock()
        breaker = Breaker(clock)
        for _ in range(3):
            breaker.ask()
            breaker.told(False)
        with self.assertRaises(Unavailable):
            breaker.ask()
        clock.now += 1
        breaker.ask()
        with self.assertRaises(Unavailable):
            breaker.ask()
        breaker.told(True)
        breaker.ask()


class TargetTest(unittest.TestCase):
    def test_asgi(self):
        for scope, want in [
            ({"raw_path": b"/a%2Fb", "path": "/a/b", "query_string": b"x=%20"}, "/a%2Fb?x=%20"),
            ({"path": "/a b/\u00e9%2F?", "query_string": b""}, "/a%20b/%C3%A9%252F%3F"),
        ]:
            self.assertEqual(asgi._target(scope), want)

    def test_wsgi(self):
        for environ, want in [
            ({"RAW_URI": "/a%2Fb?x", "PATH_INFO": "/a/b"}, "/a%2Fb?x"),
            ({"REQUEST_URI": "/a%2Fb?x", "PATH_INFO": "/a/b"}, "/a%2Fb?x"),
            ({"RAW_URI": "http://h/a", "SCRIPT_NAME": "/s", "PATH_INFO": "/a\u00c3\u00a9%", "QUERY_STRING": "x"}, "/s/a%C3%A9%25?x"),
            ({}, "/"),
        ]:
            self.assertEqual(wsgi._target(environ), want)


class FaultTest(unittest.TestCase):
    def test_mistakes_of_the_application_are_its_own(self):
        async def app(scope, receive, send):
            raise AssertionError("served")

        def user(scope):
            raise KeyError("session")

        middleware = headgate.ASGIMiddleware(app, user=user)
        with self.assertRaises(KeyError):
            asyncio.run(middleware({"type": "http", "method": "GET", "path": "/", "headers": []}, None, None))


if __name__ == "__main__":
    unittest.main()
