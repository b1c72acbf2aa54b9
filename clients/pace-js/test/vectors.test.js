// Every algorithm and every header field, as Go's package pace has them.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { start } from "../dist/algorithms.js";
import { isRefusal, readHint } from "../dist/hints.js";
import { clientKey, decode, encode } from "../dist/telemetry.js";

const read = (name) => JSON.parse(readFileSync(new URL(`../../../pace/${name}`, import.meta.url), "utf8"));
const nothing = { wait: 0, remaining: -1, slot: false, burst: 0, gap: 0, reserves: false, roundTrip: 0 };
const unbounded = { maxRate: Infinity };

function near(got, want, what) {
  assert.ok(Math.abs(got - want) <= 1e-6 * Math.max(1, want), `${what} is ${got}, want ${want}`);
}

for (const v of read("testdata/algorithms.json")) {
  test(v.name, () => {
    const random = [...(v.random ?? [])];
    const p = start({ name: v.algorithm, profile: v.profile, ...v.options, ...(v.options.rate ? unbounded : {}) }, 0, () => {
      assert.ok(random.length > 0, "more random numbers are drawn than there are");
      return random.shift();
    });
    v.events.forEach((e, i) => {
      const where = `event ${i}, ${e.do} at ${e.at}: `;
      let report;
      switch (e.do) {
        case "sent": p.sent(e.at); break;
        case "accepted": p.accepted(e.at, { ...nothing, ...e.hint }); break;
        case "refused": p.refused(e.at, e.attempt, { ...nothing, ...e.hint }); break;
        case "queue": p.queue(e.at, e.requests ?? 0); break;
        case "report": report = p.report(e.at); break;
        case "told": p.told(e.at, { sent: 0, active: 0, refusals: 0, refused: 0, waiting: 0, lastRefusal: 0, perSecond: 0, partial: false, ...e.aggregate }); break;
        default: assert.fail(`no such thing as ${e.do}`);
      }
      near(Math.max(e.at, p.next(e.at)), e.next, where + "next");
      assert.equal(p.concurrent(), e.concurrent, where + "concurrent");
      near(p.rate(), e.rate, where + "rate");
      assert.deepEqual(report, e.report, where + "report");
      if (e.nextReport !== undefined) near(Math.max(e.at, p.nextReport(e.at)), Math.max(e.at, e.nextReport), where + "next report");
      else if ("told" in p) assert.equal(p.nextReport(e.at), Infinity, where + "next report");
    });
    assert.equal(random.length, 0, "random numbers are left over");
  });
}

// What is kept and loaded again goes on as if nothing had happened: a worker that was ended knows its pause.
for (const v of read("testdata/algorithms.json").filter((v) => !["reference", "published"].includes(v.profile) && !["xatb", "auto", "aatb"].includes(v.algorithm))) {
  test(`${v.name}, ended and begun again after each event`, () => {
    const random = [...(v.random ?? [])];
    const options = { name: v.algorithm, profile: v.profile, ...v.options, ...(v.options.rate ? unbounded : {}) };
    let p = start(options, 0, () => random.shift());
    const first = v.random?.[0];
    v.events.forEach((e, i) => {
      if (e.do === "sent") p.sent(e.at);
      if (e.do === "accepted") p.accepted(e.at, { ...nothing, ...e.hint });
      if (e.do === "refused") p.refused(e.at, e.attempt, { ...nothing, ...e.hint });
      const saved = structuredClone(p.save(e.at));
      p = start(options, 0, v.algorithm === "ub" || v.algorithm === "wb" ? (() => { let n = 0; return () => (n++ === 0 ? first : random.shift()); })() : () => random.shift());
      p.load(saved, e.at);
      near(Math.max(e.at, p.next(e.at)), e.next, `event ${i}, ${e.do} at ${e.at}: next`);
      assert.equal(p.concurrent(), e.concurrent);
    });
  });
}

test("header fields", () => {
  const v = read("testdata/headers.json");
  const now = Date.parse(v.now);
  for (const c of v.hints) {
    const got = readHint(new Headers(c.fields), now);
    const want = { ...nothing, ...c.hint };
    for (const [name, value] of Object.entries(want)) {
      if (typeof value === "number") near(got[name], value, `${c.name}: ${name}`);
      else assert.equal(got[name], value, `${c.name}: ${name}`);
    }
  }
  for (const c of v.refusals) assert.equal(isRefusal(c.status, new Headers(c.fields)), c.refusal, c.name);
  assert.ok(v.hints.length > 40 && v.refusals.length > 10);
});

test("any field content is a hint that can be waited for", () => {
  let state = 1;
  const random = (n) => (state = (state * 1103515245 + 12345) % 2 ** 31) % n;
  const pieces = ['"a"', "r=0", "t=5", "a=0", "w=5", ";", ",", "=", " ", "-1", "1e309", "9".repeat(30), ":AA==:", "?1", "headgate-slot=", "NaN", "limit=", "\\", '"', "reset", "2026-11-22T12:00:30Z", "6m0s"];
  for (let i = 0; i < 20_000; i++) {
    const text = () => Array.from({ length: random(8) }, () => pieces[random(pieces.length)]).join("");
    const h = readHint(new Headers([["ratelimit", text()], ["ratelimit-policy", text()], ["retry-after", text()], ["x-ratelimit-remaining", text()], ["x-ratelimit-reset", text()]]), 0);
    assert.ok(h.wait >= 0 && h.wait <= 3153600000 && h.remaining >= -1 && h.burst >= 0 && h.gap >= 0, JSON.stringify(h));
    assert.ok(!h.slot || h.remaining === 0, JSON.stringify(h));
  }
});

test("a field of a million characters takes no longer than it is", () => { // a pattern that goes back over it takes hours
  for (const text of ["1".repeat(1e6) + "x", `"a"${" ".repeat(1e6)}x`, "1.".repeat(5e5), '"a"' + ";b=1".repeat(2.5e5), '"' + "\\\\".repeat(5e5)]) {
    const h = readHint({ get: (name) => (/^(ratelimit|ratelimit-policy|retry-after|x-ratelimit-remaining|x-ratelimit-reset)$/.test(name) ? text : null) }, 0);
    assert.equal(h.wait, 0);
  }
});

test("messages of telemetry", async () => {
  const v = read("telemetry/testdata/messages.json");
  const bytes = (hex) => Uint8Array.from(hex.match(/../g), (b) => parseInt(b, 16));
  const client = BigInt(`0x${v.Client}`);
  const key = await clientKey(new TextEncoder().encode(v.Secret), v.Quota, client);
  assert.deepEqual(key, bytes(v.Key));
  const r = { quota: "api", client, number: 1795348800001n, first: true, congested: true, sent: 7, accepted: 5, refused: 2, queue: 31, timeMs: 1795348800123 };
  assert.deepEqual(await encode(r, key), bytes(v.Report));
  assert.deepEqual(await decode(bytes(v.Aggregate), key, r), {
    sent: 700, refusals: 200, waiting: 310, active: 12, refused: 3, lastRefusal: 0.25, perSecond: 1.333333, partial: false,
  });
  const forged = bytes(v.Aggregate);
  forged[50] ^= 1;
  assert.equal(await decode(forged, key, r), undefined);
  assert.equal(await decode(bytes(v.Aggregate), key, { ...r, number: 5n }), undefined);
});
