// eval/edge runs this, beside limits.wasm and filter.wasm, which know GET /a at 10/s with a burst of 20 by address, and
// examples/edge/lambda.mjs.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { Limiter, cloudflare, viewerRequest, worker } from "headgate-edge";
import { handler } from "./lambda.mjs";

const limits = readFileSync("limits.wasm");
const get = (target, more) => ({ method: "GET", target, address: "192.0.2.1", ...more });
const passed = (limiter, n) => Array.from({ length: n }, () => limiter.decide(get("/a"))).filter((d) => d.allowed).length;

test("a module that is not whole, or a filter, makes no limiter", () => {
  const broken = Uint8Array.from(limits);
  broken[broken.length - 100] ^= 1;
  assert.throws(() => new Limiter(broken), /not whole/);
  assert.throws(() => new Limiter(readFileSync("filter.wasm")), /is a filter/);
});

test("no clock fills a bucket but one that goes on", () => {
  for (const next of [(t) => t, (t) => t - 1000, () => NaN, () => Infinity, () => -1, () => -Infinity, () => 1e300]) {
    let t = 1_000_000;
    const limiter = new Limiter(limits, { now: () => (t = next(t)) });
    assert.equal(passed(limiter, 100), 20, String(next));
  }
  let t = 1_000_000.25;
  const limiter = new Limiter(limits, { now: () => t });
  assert.equal(passed(limiter, 100), 20);
  t += 500;
  assert.equal(passed(limiter, 100), 5);
  t -= 5000;
  assert.equal(passed(limiter, 100), 0);
});

test("what does not fit is refused, and what is no text is none", () => {
  const limiter = new Limiter(limits);
  assert.equal(limiter.keyHeader, "");
  assert.equal(limiter.decide(get("/a?" + "x".repeat(70_000))).status, 414);
  assert.equal(limiter.decide(get("/a", { key: "k".repeat(70_000) })).status, 414);
  assert.equal(limiter.decide(get("/" + "é".repeat(40_000))).status, 414);
  assert.equal(limiter.decide(get("/\ud800")).status, 400);
  assert.equal(limiter.decide(get("")).status, 400);
  assert.equal(limiter.decide({ ...get("/a"), method: "" }).status, 400);
  assert.equal(limiter.decide(get("/a", { key: null, origin: null })).allowed, true);
  for (let i = 0; i < 1000; i++) limiter.decide(get("/a" + "%41".repeat(i)));
  assert.equal(limiter.decide(get("/nowhere")).status, 404);
});

test("a worker passes on what may pass, with its fields, and answers the rest", async () => {
  const wasm = new WebAssembly.Module(limits);
  assert.throws(() => worker(wasm, () => {}), /address is undefined/);
  const seen = [];
  const fetch = worker(wasm, (request, env) => {
    seen.push(env);
    return new Response("served", { status: 201, headers: { ratelimit: '"theirs";r=1' } });
  }, { address: cloudflare, now: () => 1000 });
  const ask = (headers) => fetch(new Request("https://api.example/a?b#c", { headers }), "env");
  const first = await ask({ "cf-connecting-ip": "192.0.2.1", origin: "https://shop.example" });
  assert.equal(first.status, 201);
  assert.match(first.headers.get("ratelimit"), /^"theirs";r=1, ".*";r=19/);
  assert.equal(first.headers.get("access-control-expose-headers"), "RateLimit, RateLimit-Policy, Retry-After");
  let last;
  for (let i = 0; i < 20; i++) last = await ask({ "cf-connecting-ip": "192.0.2.1" });
  assert.equal(last.status, 429);
  assert.equal(last.headers.get("retry-after"), "1");
  assert.match(await last.text(), /Quota exceeded/);
  assert.equal((await ask({ "cf-connecting-ip": "192.0.2.2" })).status, 201);
  assert.deepEqual(seen, Array(21).fill("env"));
});

test("a fault of the module lets nothing pass", () => {
  const limiter = new Limiter(limits);
  const original = TextEncoder.prototype.encodeInto;
  TextEncoder.prototype.encodeInto = () => ({ read: 1e9, written: 2 ** 31 });
  try {
    assert.equal(limiter.decide(get("/a")).status, 503); // the module reads where it has no memory, and ends in a trap
  } finally {
    TextEncoder.prototype.encodeInto = original;
  }
  assert.equal(limiter.decide(get("/a")).allowed, true);
});

test("the example of Lambda@Edge", async () => {
  const event = (clientIp, uri = "/a") => ({ Records: [{ cf: { request: { method: "GET", uri, querystring: "b=c", clientIp, headers: {} } } }] });
  const answers = [];
  for (let i = 0; i < 40 || (i < 1000 && !answers.includes("429")); i++) {
    const asked = event("192.0.2.1");
    const answer = await handler(asked);
    answers.push(answer === asked.Records[0].cf.request ? "200" : answer.status);
    if (answers.at(-1) === "429") assert.deepEqual(answer.headers["content-type"], [{ key: "content-type", value: "application/problem+json" }]);
  }
  assert.ok(answers.slice(0, 20).every((s) => s === "200") && answers.includes("429"), String(answers));
  assert.equal((await handler(event("192.0.2.2", "/nowhere"))).status, "404");
  assert.throws(() => viewerRequest(new Uint8Array(8)), WebAssembly.CompileError);
});
