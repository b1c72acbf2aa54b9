// What needs no server. Those with one are in eval/doors.
import assert from "node:assert/strict";
import test from "node:test";
import * as headgate from "../index.js";

test("a bucket holds its burst, and fills at its rate", () => {
  let now = 1000;
  const local = headgate.local({ limit: 2, per: 10, burst: 3, now: () => now });
  const q = { method: "GET", target: "/a", client: "192.0.2.1" };
  const take = (n) => Array.from({ length: n }, () => local(q).allowed);
  assert.deepEqual(take(4), [true, true, true, false]);
  assert.equal(local(q).header["Retry-After"], "5");
  now += 4.9;
  assert.deepEqual(take(1), [false]);
  now += 0.1;
  assert.deepEqual(take(2), [true, false]);
  now += 1000;
  assert.deepEqual(take(4), [true, true, true, false]);
});

test("whose bucket it is", () => {
  const local = headgate.local({ limit: 1, per: 3600, now: () => 0 });
  for (const [client, allowed] of [
    ["192.0.2.1", true], ["192.0.2.2", true], ["192.0.2.1", false], ["::ffff:192.0.2.1", false],
    ["2001:db8::1", true], ["2001:DB8:0:0:1::5", false], ["2001:db8:0:1::1", true], ["64:ff9b::192.0.2.1", true], ["fe80::1%eth0", true],
  ]) {
    assert.equal(local({ client }).allowed, allowed, client);
  }
  for (const [user, allowed] of [[{ id: "7" }, true], [{ id: "7", project: "acme" }, true], [{ id: "7" }, false], [{ id: "8" }, true]]) {
    assert.equal(local({ client: "192.0.2.9", user }).allowed, allowed, JSON.stringify(user));
  }
});

test("buckets are bounded", () => {
  const local = headgate.local({ limit: 1, per: 3600, most: 10, now: () => 0 });
  for (let i = 0; i < 1000; i++) local({ client: `198.51.${Math.floor(i / 250)}.${i % 250}` });
  assert.equal(local({ client: "198.51.3.249" }).allowed, false);
  assert.equal(local({ client: "198.51.0.0" }).allowed, true);
});

test("nonsense", () => {
  for (const options of [{ limit: 0 }, { limit: 1, per: 0 }, { limit: 1, burst: 0.5 }]) assert.throws(() => headgate.local(options), RangeError);
});

test("after three failures it is asked once a second", async () => {
  const client = new headgate.Client({ url: "http://127.0.0.1:1" });
  const question = { method: "GET", target: "/a", client: "192.0.2.1" };
  for (let i = 0; i < 3; i++) await assert.rejects(client.check(question), { message: /did not answer/ });
  // A second may have passed by then, on a machine that is busy with others.
  let said = "did not answer";
  for (let i = 0; i < 20 && /did not answer/.test(said); i++) said = await client.check(question).catch((error) => error.message);
  assert.match(said, /three times in a row/);
});
