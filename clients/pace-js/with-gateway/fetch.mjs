// At a real gateway, and with a real aggregator; eval/doors starts both.
import assert from "node:assert/strict";
import test from "node:test";
// begin: fetch
import { createFetch } from "headgate-pace";

const fetch = createFetch({ maxWaitMs: 60_000 });
// end: fetch
const { GATEWAY, TELEMETRY, SECRET } = process.env;

test("forty requests at a limit of ten a second, each served in the end", async () => {
  const all = await Promise.all(Array.from({ length: 40 }, (_, i) => fetch(`${GATEWAY}/v1/items/${i}`)));
  assert.deepEqual(all.map((r) => r.status), Array(40).fill(200));
  const [quota] = fetch.quotas();
  assert.ok(quota.attempts >= 40 && quota.attempts < 240, JSON.stringify(quota)); // not as often as it may
});

test("what the aggregator says is heard", async () => {
  const shared = createFetch({ telemetry: () => ({ url: TELEMETRY, quota: "api", secret: SECRET }), maxWaitMs: 60_000 });
  await Promise.all(Array.from({ length: 5 }, () => shared(`${GATEWAY}/v1/free`)));
  for (let waited = 0; shared.quotas()[0].mode !== "shared"; waited += 20) {
    assert.ok(waited < 60_000, "no answer of the aggregator in a minute");
    await shared(`${GATEWAY}/v1/free`);
    await new Promise((r) => setTimeout(r, 20));
  }
});
