"""Every algorithm, every header field and every message, as Go's package pace has them."""

import json
import pathlib
import random
import unittest

from headgate_pace import algorithms, hints, telemetry

ROOT = pathlib.Path(__file__).parents[3] / "pace"
CLASSES = {"ub": algorithms.UB, "wb": algorithms.WB, "atb": algorithms.ATB, "aatb": algorithms.AATB, "ap": algorithms.AP, "hatb": algorithms.HATB, "xatb": algorithms.XATB, "auto": algorithms.Auto}
NAMES = {"perMinute": "per_minute", "roundTrip": "round_trip", "lastRefusal": "last_refusal", "perSecond": "per_second"}


def named(values):
    return {NAMES.get(name, name): value for name, value in (values or {}).items()}


class VectorsTest(unittest.TestCase):
    def near(self, got, want, what):
        self.assertLessEqual(abs(got - want), 1e-6 * max(1, want), f"{what} is {got}, want {want}")

    def test_algorithms(self):
        vectors = json.loads((ROOT / "testdata/algorithms.json").read_text())
        self.assertGreater(len(vectors), 25)
        for v in vectors:
            with self.subTest(v["name"]):
                self.live(v)

    def live(self, v):
        options = named(v["options"])
        if v["algorithm"] in ("wb", "atb", "aatb"):
            options["profile"] = v["profile"]
        if "rate" in options:
            options["max_rate"] = float("inf")
        numbers = list(v["random"] or [])
        p = CLASSES[v["algorithm"]](**options).start(0, lambda: numbers.pop(0))
        for i, e in enumerate(v["events"]):
            at, do, report = e["at"], e["do"], None
            where = f"event {i}, {do} at {at}: "
            if do == "sent":
                p.sent(at)
            elif do == "accepted":
                p.accepted(at, hints.Hint(**named(e["hint"])))
            elif do == "refused":
                p.refused(at, e["attempt"], hints.Hint(**named(e["hint"])))
            elif do == "queue":
                p.queue(at, e.get("requests", 0))
            elif do == "report":
                report = p.report(at)
            elif do == "told":
                p.told(at, algorithms.Aggregate(**named(e["aggregate"])))
            else:
                self.fail(f"no such thing as {do}")
            self.near(max(at, p.next(at)), e["next"], where + "next")
            self.assertEqual(p.concurrent(), e["concurrent"], where + "concurrent")
            self.near(p.rate(), e["rate"], where + "rate")
            self.assertEqual(report and vars(report), e.get("report"), where + "report")
            if "nextReport" in e:
                self.near(max(at, p.next_report(at)), max(at, e["nextReport"]), where + "next report")
            elif p.shares:
                self.assertEqual(p.next_report(at), float("inf"), where + "next report")
        self.assertEqual(numbers, [], "random numbers are left over")

    def test_header_fields(self):
        from datetime import datetime

        v = json.loads((ROOT / "testdata/headers.json").read_text())
        now = datetime.fromisoformat(v["now"].replace("Z", "+00:00")).timestamp()
        self.assertGreater(len(v["hints"]), 40)
        for c in v["hints"]:
            with self.subTest(c["name"]):
                got, want = hints.read_hint(fields(c["fields"]), now), hints.Hint(**named(c["hint"]))
                for name, value in vars(want).items():
                    if isinstance(value, bool):
                        self.assertEqual(getattr(got, name), value, name)
                    else:
                        self.near(getattr(got, name), value, name)
        for c in v["refusals"]:
            self.assertEqual(hints.is_refusal(c["status"], fields(c["fields"])), c["refusal"], c["name"])

    def test_any_field_content_is_a_hint_that_can_be_waited_for(self):
        chance = random.Random(15)
        pieces = ['"a"', "r=0", "t=5", "a=0", "w=5", ";", ",", "=", " ", "-1", "1e309", "9" * 30, ":AA==:", "?1", "headgate-slot=", "NaN", "limit=", "\\", '"', "reset", "2026-11-22T12:00:30Z", "9999-99-99T99:99:99Z", "6m0s", "٣", "é"]
        names = ["ratelimit", "ratelimit-policy", "retry-after", "date", "x-ratelimit-remaining", "x-ratelimit-reset"]
        for _ in range(20_000):
            h = hints.read_hint({n: "".join(chance.choices(pieces, k=chance.randrange(8))) for n in names}.get, 0)
            self.assertTrue(0 <= h.wait <= hints.LONGEST and h.remaining >= -1 and h.burst >= 0 and h.gap >= 0 and (not h.slot or h.remaining == 0), h)

    def test_messages_of_telemetry(self):
        v = json.loads((ROOT / "telemetry/testdata/messages.json").read_text())
        client = int(v["Client"], 16)
        key = telemetry.client_key(v["Secret"].encode(), v["Quota"], client)
        self.assertEqual(key.hex(), v["Key"])
        self.assertEqual(telemetry.encode(key, "api", client, 1795348800001, True, True, 7, 5, 2, 31, 1795348800123).hex(), v["Report"])
        answer = bytes.fromhex(v["Aggregate"])
        self.assertEqual(telemetry.decode(answer, key, "api", client), (1795348800001, algorithms.Aggregate(700, 12, 200, 3, 310, 0.25, 1.333333, False)))
        self.assertIsNone(telemetry.decode(answer[:50] + b"\xff" + answer[51:], key, "api", client))
        self.assertIsNone(telemetry.decode(answer, key, "api", client + 1))


def fields(pairs):
    got = {}
    for name, value in pairs:
        name = name.lower()
        got[name] = f"{got[name]}, {value}" if name in got else value
    return got.get


if __name__ == "__main__":
    unittest.main()
