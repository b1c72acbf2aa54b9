import assert from "node:assert/strict";
import test from "node:test";

import decisions from "../index.js";
import { incomplete, mayPass, settled, several } from "./client.js";

const client = decisions({ baseUrl: process.env.HEADGATE });

test("one question, which is repeated", async () => {
  const got = [];
  for (const key of ["ts-a", "ts-a", "ts-b", "ts-c", "ts-d"]) got.push(await mayPass(client, "ts", key));
  assert.deepEqual(got.map((a) => [a.allowed, a.remaining]), [[true, 2], [true, 2], [true, 1], [true, 0], [false, 0]]);
  assert.equal(got[4].status, 429);
  assert.ok(got[4].retry_after > 0 && got[4].header["Retry-After"]);
  await assert.rejects(mayPass(client, "ts", ""), /no answer: .*Idempotency-Key/);
});

test("several questions", async () => assert.deepEqual(await several(client), [true, true, true, false]));

test("reserved and settled", async () => {
  assert.deepEqual(await settled(client), [{ status: "settled", reserved: 500, actual: 120 }, { status: "already_settled", reserved: 500, actual: 120 }]);
});

test("a question with a gap", async () => {
  const { error, response } = await incomplete(client);
  assert.equal(response.status, 400);
  assert.match(error.detail, /target is missing/);
});
