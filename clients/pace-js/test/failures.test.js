// What can go wrong around a client that paces itself, as in Go's pace/failures_test.go.
import assert from "node:assert/strict";
import test from "node:test";
import { start } from "../dist/algorithms.js";
import { createFetch, Throttled } from "../dist/index.js";
import { decode } from "../dist/telemetry.js";

const half = () => 0.5;
const hint = (h = {}) => ({ wait: 0, remaining: -1, slot: false, burst: 0, gap: 0, reserves: false, roundTrip: 0, ...h });
const aggregate = (a = {}) => ({ sent: 0, active: 1, refusals: 0, refused: 0, waiting: 0, lastRefusal: -1, perSecond: 2, partial: false, ...a });
const busy = (a = {}) => aggregate({ sent: 40, active: 4, refusals: 2, refused: 2, waiting: 10, lastRefusal: 1, ...a });
const pacer = (algorithm) => start(algorithm, 0, half);

/** A clock that stands still until it is advanced. */
class Stepped {
  time = 0;
  timers = new Set();
  now() { return this.time; }
  after(seconds, call) {
    const timer = { at: this.time + seconds, call };
    this.timers.add(timer);
    return () => this.timers.delete(timer);
  }
  advance(seconds) {
    this.time += seconds;
    for (const t of [...this.timers].sort((a, b) => a.at - b.at)) if (t.at <= this.time && this.timers.delete(t)) t.call();
  }
}
const settled = () => new Promise((resolve) => setImmediate(resolve));

test("an aggregator that falls silent leaves AP behind, and one that comes back is believed", () => {
  const p = pacer({ name: "xatb" });
  assert.equal(p.mode(0), "pause");
  p.queue(0, 3);
  assert.ok(p.report(0));
  p.told(0, busy());
  assert.deepEqual([p.mode(59), p.mode(61)], ["shared", "pause"]);
  p.refused(61, 1, hint());
  assert.equal(p.next(61) - 61, 30);
  p.told(62, aggregate());
  assert.ok(p.next(62) <= 62);
});

test("an aggregator that never answers keeps nobody waiting", async () => {
  const fetch = createFetch({
    algorithm: "auto", telemetry: () => ({ url: "http://aggregator.test/", quota: "api", secret: "s".repeat(32) }),
    fetch: (input) => (String(input).startsWith("http://aggregator.test") ? new Promise(() => {}) : Promise.resolve(new Response("served"))),
  });
  for (let i = 0; i < 3; i++) assert.equal((await fetch("http://api.test/")).status, 200);
  assert.equal(fetch.quotas()[0].mode, "pause");
});

test("what is no answer of the aggregator is none", async () => {
  const r = { quota: "api", client: 1n, number: 1n };
  for (const length of [0, 1, 127, 128, 129, 4096]) assert.equal(await decode(new Uint8Array(length).fill(0x48), new Uint8Array(32), r), undefined);
});

test("an aggregator that has just started knows of no refusals: that is not that there were none", () => {
  for (const partial of [true, false]) {
    const aatb = pacer({ name: "aatb", rate: 1 });
    aatb.report(30);
    aatb.told(30, aggregate({ partial }));
    assert.equal(aatb.rate() > 1, !partial);
    const xatb = pacer({ name: "xatb" });
    xatb.queue(0, 3);
    xatb.report(0);
    xatb.told(0, busy());
    xatb.sent(10);
    xatb.told(20, aggregate({ waiting: 1, partial }));
    assert.equal(xatb.rate() > 0, partial);
  }
});

test("whatever an aggregator claims, waits and shares stay within what may be", () => {
  for (const a of [
    { refusals: 2 ** 40, refused: 2 ** 30, active: 5, perSecond: 0.001, waiting: 2 ** 50 },
    { active: -4, sent: -1, waiting: -9, perSecond: 1e300 },
    { active: 2 ** 30, refused: 2 ** 53, refusals: 2 ** 53, sent: 2 ** 53, waiting: 2 ** 53, perSecond: NaN, lastRefusal: -1e300 },
  ]) {
    const aatb = pacer({ name: "aatb" });
    aatb.refused(0, 1, hint());
    aatb.told(0, aggregate(a));
    assert.ok(aatb.next(0) <= 100 && aatb.rate() >= 0.01, JSON.stringify(a));
    const xatb = pacer({ name: "xatb", quota: 1 });
    xatb.told(0, aggregate(a));
    xatb.queue(0, 1);
    xatb.refused(0, 1, hint());
    assert.ok(xatb.next(0) >= 0, JSON.stringify(a));
  }
  const p = pacer({ name: "xatb" });
  p.queue(0, 1);
  p.report(0);
  p.told(0, busy({ waiting: 2 ** 40 }));
  assert.ok(p.rate() >= 2 / 40);
});

test("with the gate, refusals that this client did not meet stop nobody", () => {
  for (const gate of [true, false]) {
    const p = pacer({ name: "aatb", gate, rate: 1 });
    p.report(90);
    p.told(90, busy());
    assert.equal(p.next(90) > 90, !gate);
  }
});

test("hints that vanish leave AP behind, and marks that are not trusted are lower bounds", () => {
  const p = pacer({ name: "hatb", jitter: 0 });
  p.refused(0, 1, hint({ wait: 1, slot: true, burst: 10, gap: 1 }));
  assert.deepEqual([p.mode(20), p.mode(21)], ["hints", "pause"]);
  p.refused(2, 1, hint());
  assert.deepEqual([p.next(2) - 2, p.mode(2)], [30, "pause"]);
  const distrusting = pacer({ name: "hatb", distrust: true });
  distrusting.refused(0, 1, hint({ wait: 1, slot: true }));
  assert.equal(distrusting.next(0), 30);
});

test("a machine that slept sends one request of those that waited, and finds out", async () => {
  const clock = new Stepped();
  const answers = [];
  const fetch = createFetch({ clock, random: half, maxWaitMs: 1e9, maxAttempts: 100, fetch: () => new Promise((resolve) => answers.push(resolve)) });
  const all = Array.from({ length: 20 }, (_, i) => fetch(`http://api.test/${i}`));
  await settled();
  assert.equal(answers.length, 1);
  answers[0](new Response("no", { status: 429, headers: { RateLimit: '"a";r=0;t=5;headgate-slot=5000' } }));
  await settled();
  await settled();
  assert.equal(answers.length, 1);
  clock.advance(36_000);
  await settled();
  assert.equal(answers.length, 2, "all that waited were sent together");
  for (let i = 1; i < 30; i++) {
    answers[i]?.(new Response("served"));
    await settled();
    await settled();
  }
  assert.deepEqual((await Promise.all(all)).map((r) => r.status), Array(20).fill(200));
});

test("a server that is away, or fails, says nothing of its quota", async () => {
  let answer = () => Promise.reject(new TypeError("no route"));
  const clock = new Stepped();
  const fetch = createFetch({ clock, algorithm: { name: "atb", rate: 1000, bucket: 1000 }, fetch: () => answer() });
  for (let i = 0; i < 5; i++, clock.advance(1)) await assert.rejects(fetch("http://api.test/"), /no route/);
  answer = () => Promise.resolve(new Response("", { status: 500 }));
  for (let i = 0; i < 5; i++, clock.advance(1)) assert.equal((await fetch("http://api.test/")).status, 500);
  const [state] = fetch.quotas();
  assert.deepEqual([state.rate, state.refused, state.pauseMs, state.attempts], [1000, 0, 0, 10]);
});

test("absurd times fail fast, with how long", async () => {
  for (const value of ["86400", "99999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"]) {
    const clock = new Stepped();
    const fetch = createFetch({ clock, fetch: async () => new Response("no", { status: 429, headers: { "Retry-After": value } }) });
    const first = await fetch("http://api.test/");
    assert.deepEqual([first.status, first.headers.get("Retry-After")], [429, value]);
    const late = await fetch("http://api.test/").catch((e) => e);
    assert.ok(late instanceof Throttled && late.retryAfterMs > 0 && late.retryAfterMs <= 120_000, String(late));
  }
  for (const value of ["-5", "NaN", "soon", "1e9"]) {
    let n = 0;
    const clock = new Stepped();
    const fetch = createFetch({ clock, random: half, fetch: async () => (n++ ? new Response("served") : new Response("no", { status: 429, headers: { "Retry-After": value } })) });
    const served = fetch("http://api.test/");
    for (let i = 0; i < 4; i++) await settled();
    clock.advance(30);
    assert.equal((await served).status, 200, value);
  }
});

test("who ends reports that nothing waits", async () => {
  const reports = [];
  const fetch = createFetch({
    algorithm: "xatb", telemetry: () => ({ url: "http://aggregator.test/", quota: "api", secret: "s".repeat(32) }),
    fetch: async (input, init) => {
      if (!String(input.url ?? input).startsWith("http://aggregator.test")) return new Response("", { status: 429 });
      reports.push(new DataView(init.body.buffer).getUint32(60));
      return new Response("");
    },
  });
  const said = async (queue) => {
    for (let i = 0; i < 1000 && reports.at(-1) !== queue; i++) await new Promise((resolve) => setTimeout(resolve, 10));
    assert.equal(reports.at(-1), queue, `reports of ${reports}`);
  };
  const ends = new AbortController();
  const all = [1, 2, 3].map(() => fetch("http://api.test/", { signal: ends.signal }).catch(() => {}));
  await said(3);
  fetch.close();
  await said(0);
  ends.abort();
  await Promise.all(all);
});
