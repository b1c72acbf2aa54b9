"""The generated client at a Headgate, at HEADGATE: eval/doors starts one."""

import asyncio
import os
import unittest

# begin: client
from headgate_decisions import Client
from headgate_decisions.api.decisions import check, settle
from headgate_decisions.models import Answer, Problem, Question, Questions, Settled, Spent, User


def may_pass(client: Client, user: str, key: str) -> Answer:
    """Asks about one request of a user. Whoever repeats the question under the same key pays once."""
    question = Question(method="GET", target="/v1/items/7", client="192.0.2.7", user=User(id=user))
    answer = check.sync(client=client, body=question, idempotency_key=key)
    if isinstance(answer, Problem):
        raise RuntimeError(f"no answer: {answer.title}: {answer.detail}")
    return answer
# end: client


class GeneratedTest(unittest.TestCase):
    def setUp(self):
        self.client = Client(base_url=os.environ["HEADGATE"])

    def test_one(self):
        got = [may_pass(self.client, "py", key) for key in ("py-a", "py-a", "py-b", "py-c", "py-d")]
        self.assertEqual([(a.allowed, a.remaining) for a in got], [(True, 2), (True, 2), (True, 1), (True, 0), (False, 0)])
        refused = got[-1]
        self.assertEqual((refused.status, refused.reason, refused.endpoint), (429, "over_limit", "GET /v1/items/{id}"))
        self.assertGreater(refused.retry_after, 0)
        self.assertIn("Retry-After", refused.header.additional_properties)
        with self.assertRaisesRegex(RuntimeError, "no answer: .*Idempotency-Key"):
            may_pass(self.client, "py", "")

    def test_several(self):
        one = Question(method="GET", target="/v1/items/8", client="192.0.2.18")
        answers = check.sync(client=self.client, body=Questions(requests=[one] * 4))
        self.assertEqual([a.allowed for a in answers.decisions], [True, True, True, False])

    def test_header(self):
        from headgate_decisions.models import QuestionHeader

        header = QuestionHeader.from_dict({"Accept": "*/*", "X-A": ["b", "c"]})
        answer = check.sync(client=self.client, body=Question(method="GET", target="/v1/nothing", client="192.0.2.19", header=header))
        self.assertEqual((answer.allowed, answer.status, answer.endpoint), (False, 404, "UNKNOWN"))

    def test_reserve_and_settle(self):
        async def session():
            question = Question(method="POST", target="/v1/chat", client="192.0.2.20", cost=500, reserve=60)
            held = await check.asyncio(client=self.client, body=question)
            return [await settle.asyncio(client=self.client, body=Spent(reservation=held.reservation, actual=120)) for _ in range(2)]

        for settled, want in zip(asyncio.run(session()), ("settled", "already_settled")):
            self.assertIsInstance(settled, Settled)
            self.assertEqual((str(settled.status), settled.reserved, settled.actual), (want, 500, 120))

    def test_fault(self):
        answer = check.sync(client=self.client, body=Question(method="GET", target="/a", client="nobody"))
        self.assertIsInstance(answer, Problem)
        self.assertEqual(answer.status, 400)
        self.assertIn("client is no address", answer.detail)
