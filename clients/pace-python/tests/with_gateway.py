"""At a real gateway, and with a real aggregator; eval/doors starts both."""

import asyncio
import concurrent.futures
import os
import time
import unittest

from headgate_pace import Options, Telemetry

GATEWAY = os.environ["GATEWAY"]
WAIT = Options(max_wait=60)


class GatewayTest(unittest.TestCase):
    """Forty requests at a limit of ten a second, each served in the end."""

    def check(self, codes, pace):
        self.assertEqual(codes, [200] * 40)
        (line,) = pace._lines.values()
        self.assertTrue(40 <= line.attempts < 240 and line.users == 0, vars(line))  # not as often as it may

    def test_httpx(self):
        # begin: httpx
        import httpx
        from headgate_pace.httpx import Transport

        client = httpx.Client(transport=Transport())
        # end: httpx
        client.close()
        transport = Transport(WAIT)
        with httpx.Client(transport=transport) as client, concurrent.futures.ThreadPoolExecutor(40) as threads:
            codes = list(threads.map(lambda i: client.get(f"{GATEWAY}/v1/items/{i}").status_code, range(40)))
            self.check(codes, transport._pace)

    def test_httpx_async(self):
        import httpx
        from headgate_pace.httpx import AsyncTransport

        async def run():
            transport = AsyncTransport(WAIT)
            async with httpx.AsyncClient(transport=transport, timeout=60) as client:
                answers = await asyncio.gather(*(client.post(f"{GATEWAY}/v1/items", json={"n": i}) for i in range(12)))
                self.assertEqual([(a.status_code, a.json()["n"]) for a in answers], [(201, i) for i in range(12)])
                answers = await asyncio.gather(*(client.get(f"{GATEWAY}/v1/items/{i}") for i in range(28)))
                self.check([200] * 12 + [a.status_code for a in answers], transport._pace)

        asyncio.run(run())

    def test_requests(self):
        # begin: requests
        import requests
        from headgate_pace.requests import Adapter

        session = requests.Session()
        session.mount("https://", Adapter())
        # end: requests
        adapter = Adapter(WAIT, pool_maxsize=40)
        session.mount("http://", adapter)
        with session, concurrent.futures.ThreadPoolExecutor(40) as threads:
            codes = list(threads.map(lambda i: session.get(f"{GATEWAY}/v1/items/{i}").status_code, range(40)))
            self.check(codes, adapter._pace)

    def test_the_aggregator_is_heard(self):
        import httpx
        from headgate_pace.httpx import Transport

        host, _, port = os.environ["TELEMETRY_UDP"].rpartition(":")
        transport = Transport(Options(telemetry=lambda key: Telemetry((host, int(port)), "api", secret=os.environ["SECRET"].encode())))
        with httpx.Client(transport=transport) as client:
            end = time.monotonic() + 60
            while True:
                self.assertEqual(client.get(f"{GATEWAY}/v1/free").status_code, 200)
                (line,) = transport._pace._lines.values()
                with line.lock:
                    if line.pacer._otherwise._latest.per_second > 1.3:
                        break
                self.assertLess(time.monotonic(), end, "no answer of the aggregator in a minute")


if __name__ == "__main__":
    unittest.main()
