"""The transports, at a real server of this process."""

import asyncio
import http.server
import io
import threading
import time
import unittest

import httpx
import requests

from headgate_pace import AP, Options, Throttled
from headgate_pace.httpx import AsyncTransport, Transport
from headgate_pace.requests import Adapter

QUICK = AP(first=0.02, min=0.01, max=0.05)


class Server:
    """Answers as ``handler`` says: a function of how many requests there were and of the request, to (status, fields)."""

    def __init__(self, handler):
        self.seen, self.lock = [], threading.Lock()
        seen, lock = self.seen, self.lock

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with lock:
                    seen.append((self.command, self.path, body, self.headers))
                    status, fields = handler(len(seen), self)
                self.send_response(status)
                for name, value in fields.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "4")
                self.end_headers()
                self.wfile.write(b"done" if status < 400 else b"nope")

            do_GET = do_POST = do_PUT = answer

            def log_message(self, *args):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self):
        self._server.shutdown()
        self._server.server_close()


class Httpx:
    def __init__(self, options):
        self.client = httpx.Client(transport=Transport(options))

    def send(self, method, url, **how):
        return self.client.request(method, url, **how)


class HttpxAsync:
    def __init__(self, options):
        self.options = options

    def send(self, method, url, **how):
        async def run():
            async with httpx.AsyncClient(transport=AsyncTransport(self.options)) as client:
                return await client.request(method, url, **how)

        return asyncio.run(run())


class Requests:
    def __init__(self, options):
        self.session = requests.Session()
        self.session.mount("http://", Adapter(options))

    def send(self, method, url, **how):
        if "content" in how:
            how["data"] = how.pop("content")
        return self.session.request(method, url, **how)


class TransportTest(unittest.TestCase):
    def serve(self, handler):
        server = Server(handler)
        self.addCleanup(server.close)
        return server

    def each(self):
        for kind in (Httpx, HttpxAsync, Requests):
            with self.subTest(kind.__name__):
                yield kind

    def test_a_refused_request_is_sent_again_with_its_body(self):
        for kind in self.each():
            server = self.serve(lambda n, _: (429, {}) if n < 3 else (200, {"X-Served": "yes"}))
            attempts = []
            answer = kind(Options(algorithm=QUICK, on_attempt=attempts.append)).send("POST", server.url + "/a", json={"a": 1}, headers={"X-Mine": "1"})
            self.assertEqual((answer.status_code, answer.headers["X-Served"], answer.text), (200, "yes", "done"))
            self.assertEqual([(m, b.replace(b" ", b""), h["X-Mine"]) for m, _, b, h in server.seen], [("POST", b'{"a":1}', "1")] * 3)
            self.assertEqual([(a.number, a.status, a.refused) for a in attempts], [(1, 429, True), (2, 429, True), (3, 200, False)])

    def test_a_stream_is_sent_once(self):
        for kind in self.each():
            server = self.serve(lambda n, _: (429, {}))
            body = io.BytesIO(b"once") if kind is Requests else async_stream() if kind is HttpxAsync else iter([b"once"])
            self.assertEqual(kind(Options(algorithm=QUICK)).send("POST", server.url, content=body, headers={"Content-Length": "4"}).status_code, 429)
            self.assertEqual([b for _, _, b, _ in server.seen], [b"once"])

    def test_a_request_that_is_refused_for_ever_is_given_its_refusal(self):
        for kind in self.each():
            server = self.serve(lambda n, _: (429, {"X-Why": "poison"}))
            answer = kind(Options(algorithm=QUICK, max_attempts=3)).send("GET", server.url)
            self.assertEqual((answer.status_code, answer.headers["X-Why"], answer.text, len(server.seen)), (429, "poison", "nope", 3))

    def test_an_absurd_wait_is_not_waited_for(self):
        for kind in self.each():
            server = self.serve(lambda n, _: (429, {"Retry-After": "86400"}))
            began = time.monotonic()
            answer = kind(Options()).send("GET", server.url)
            self.assertEqual((answer.status_code, len(server.seen)), (429, 1))
            self.assertLess(time.monotonic() - began, 60)

    def test_a_wait_that_is_too_long_fails_at_once(self):
        for kind in (Httpx, Requests):
            server = self.serve(lambda n, _: (429, {"Retry-After": "30"}))
            client = kind(Options(max_wait=5))
            began = time.monotonic()
            answer = client.send("GET", server.url)
            self.assertEqual((answer.status_code, answer.text), (429, "nope"))
            with self.assertRaises(Throttled) as caught:
                client.send("GET", server.url)
            self.assertEqual((caught.exception.reason, caught.exception.key, caught.exception.retry_after > 20), ("too late", server.url, True))
            self.assertLess(time.monotonic() - began, 25)

    def test_503_is_sent_again_only_where_that_is_safe(self):
        for kind in self.each():
            server = self.serve(lambda n, _: (503, {"Retry-After": "0"}) if n % 2 else (200, {}))
            client = kind(Options(algorithm=QUICK))
            self.assertEqual([client.send("GET", server.url).status_code, client.send("POST", server.url, content=b"a").status_code], [200, 503])

    def test_a_server_that_is_away_is_no_congestion(self):
        for kind, error in ((Httpx, httpx.ConnectError), (HttpxAsync, httpx.ConnectError), (Requests, requests.ConnectionError)):
            attempts = []
            with self.assertRaises(error):
                kind(Options(on_attempt=attempts.append)).send("GET", "http://127.0.0.1:1/")
            self.assertEqual([(a.status, a.refused) for a in attempts], [(0, False)])

    def test_a_full_queue_and_an_order(self):
        refuse = threading.Event()
        refuse.set()
        server = self.serve(lambda n, _: (429, {}) if refuse.is_set() else (200, {}))
        refused = threading.Event()
        options = Options(
            algorithm=AP(first=2, min=2, max=2), max_queue=3, on_attempt=lambda a: refused.set() if a.refused else None,
            priority=lambda request: int(request.headers.get("Rank", 0)),
        )
        transport = Transport(options)
        client = httpx.Client(transport=transport)
        threads = [threading.Thread(target=client.get, args=(server.url + path,), kwargs={"headers": {"Rank": rank}}) for path, rank in (("/0", "0"), ("/1", "0"), ("/high", "1"))]
        threads[0].start()
        self.assertTrue(refused.wait(60))
        for t in threads[1:]:
            t.start()
        (line,) = transport._pace._lines.values()
        end = time.monotonic() + 60
        while len(line._waiting) < 3:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.001)
        with self.assertRaises(Throttled) as caught:
            client.get(server.url)
        self.assertEqual(caught.exception.reason, "queue full")
        refused.clear()  # nothing is under way just after a refusal, which a server might have seen before or after what follows
        self.assertTrue(refused.wait(60))
        with server.lock:
            refuse.clear()
            seen = len(server.seen)
        for t in threads:
            t.join(60)
        order = [path for _, path, _, _ in server.seen[seen:]]
        self.assertEqual((order[0], sorted(order)), ("/high", ["/0", "/1", "/high"]))

    def test_a_task_that_is_cancelled_leaves_the_queue(self):
        server = self.serve(lambda n, _: (429, {}))

        async def run():
            transport = AsyncTransport(Options(algorithm=AP(first=30)))
            async with httpx.AsyncClient(transport=transport) as client:
                task = asyncio.create_task(client.get(server.url))
                while not server.seen or not transport._pace._lines[server.url]._waiting:
                    await asyncio.sleep(0.005)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                line = transport._pace._lines[server.url]
                self.assertEqual((line._waiting, line.users, line._unanswered), ([], 0, 0))

        asyncio.run(run())

    def test_a_server_that_reserves_is_told_how_many_wait(self):
        for kind in (Httpx, Requests):
            server = self.serve(lambda n, _: (
                429 if n == 1 else 200,
                {"RateLimit": '"a";r=0;t=1;headgate-slot=150' if n == 1 else '"a";r=5', "RateLimit-Policy": '"a";q=10;w=1;headgate-reserves'},
            ))
            began = time.monotonic()
            self.assertEqual(kind(Options()).send("GET", server.url).status_code, 200)
            self.assertGreater(time.monotonic() - began, 0.1)
            self.assertEqual([h.get("Headgate-Pending") for _, _, _, h in server.seen], [None, "0"])

    def test_nonsense_is_said_all_of_it(self):
        with self.assertRaisesRegex(ValueError, "max_queue is -1.*max_wait is 0"):
            Options(max_queue=-1, max_wait=0)


async def async_stream():
    yield b"once"


if __name__ == "__main__":
    unittest.main()
