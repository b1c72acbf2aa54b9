"""What needs a Headgate, at HEADGATE."""

import asyncio
import os
import unittest

import headgate

url = os.environ["HEADGATE"]  # eval/doors starts one


class ServiceTest(unittest.TestCase):
    def test_reserve_and_settle(self):
        # begin: client
        with headgate.Client(url) as client:
            decision = client.check("POST", "/v1/chat", "192.0.2.7", user=headgate.User("ann"), cost=500, reserve=60)
            if decision.allowed:
                client.settle(decision.reservation, 120)  # what it has cost in the end
            # end: client
            self.assertTrue(decision.allowed)
            self.assertEqual((decision.endpoint, decision.remaining), ("POST /v1/chat", 500))
            self.assertEqual(client.settle(decision.reservation, 7), {"status": "already_settled", "reserved": 500, "actual": 120})
            self.assertEqual(client.check("POST", "/v1/chat", "192.0.2.7", user=headgate.User("ann"), cost=80).remaining, 800)
            with self.assertRaisesRegex(headgate.Unavailable, "400: client is no address"):
                client.check("POST", "/v1/chat", "testclient")


class LoopsTest(unittest.TestCase):
    def test_each_loop_has_its_connections(self):
        """As tests of an application do, which make a loop for each request."""
        served = []

        async def app(scope, receive, send):
            served.append(scope["path"])

        middleware = headgate.ASGIMiddleware(app, url, user=lambda scope: headgate.User("loops"))
        for _ in range(3):
            scope = {"type": "http", "method": "POST", "path": "/v1/chat", "headers": [], "client": ("192.0.2.8", 1)}
            asyncio.run(middleware(scope, None, None))
        self.assertEqual(served, ["/v1/chat"] * 3)


class AsyncServiceTest(unittest.IsolatedAsyncioTestCase):
    async def test_nobody_there(self):
        async with headgate.AsyncClient("http://127.0.0.1:1") as client:
            with self.assertRaises(headgate.Unavailable):
                await client.check("GET", "/a", "192.0.2.7")
