// The fetch, at a real server of this process.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import test from "node:test";
import { createFetch, Throttled } from "../dist/index.js";

/** A server that answers as `handler` says, until the test ends. */
async function serve(t, handler) {
  const seen = [];
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (part) => (body += part)).on("end", () => {
      seen.push({ url: request.url, method: request.method, body, headers: request.headers });
      const { status = 200, headers = {}, text = "served" } = handler(seen.length, request, body) ?? {};
      response.writeHead(status, headers).end(text);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => { server.closeAllConnections(); server.close(); });
  return { url: `http://127.0.0.1:${server.address().port}`, seen };
}

const quick = { algorithm: { name: "ap", first: 0.02, min: 0.01, max: 0.05 } };
const refusal = (fields = {}) => ({ status: 429, headers: fields, text: "no" });

test("a refused request is sent again, with its body, and the final answer is the caller's", async (t) => {
  const { url, seen } = await serve(t, (n) => (n < 3 ? refusal() : { headers: { "X-Served": "yes" }, text: "done" }));
  const fetch = createFetch(quick);
  const response = await fetch(`${url}/a`, { method: "POST", body: JSON.stringify({ a: 1 }), headers: { "Content-Type": "application/json", "X-Mine": "1" } });
  assert.equal(response.status, 200);
  assert.equal(response.headers.get("X-Served"), "yes");
  assert.equal(await response.text(), "done");
  assert.deepEqual(seen.map((r) => [r.method, r.body, r.headers["x-mine"], r.headers["content-type"]]), Array(3).fill(["POST", '{"a":1}', "1", "application/json"]));
  assert.equal(fetch.quotas()[0].refused, 2);
});

test("bodies: a form, a Request, and a stream that is sent once", async (t) => {
  let refuse = true;
  const { url, seen } = await serve(t, () => ((refuse = !refuse) ? {} : refusal()));
  const fetch = createFetch(quick);
  const form = new FormData();
  form.set("name", "value");
  assert.equal((await fetch(url, { method: "POST", body: form })).status, 200);
  assert.match(seen[1].body, /name="name"[^]*value/);
  assert.match(seen[1].headers["content-type"], /boundary=/);
  assert.equal((await fetch(new Request(url, { method: "PUT", body: "text" }))).status, 200);
  assert.equal(seen[3].body, "text");
  const stream = new ReadableStream({ start(c) { c.enqueue(new TextEncoder().encode("once")); c.close(); } });
  const once = await fetch(url, { method: "POST", body: stream, duplex: "half" });
  assert.deepEqual([once.status, seen.length, seen[4].body], [429, 5, "once"]);
  refuse = true;
  const large = await createFetch({ ...quick, maxReplay: 10 })(url, { method: "POST", body: "x".repeat(11) });
  assert.deepEqual([large.status, seen.length, seen[5].body.length], [429, 6, 11]);
});

test("a request that is refused for ever is given its refusal, and keeps nobody back", async (t) => {
  const { url, seen } = await serve(t, (_, request) => (request.url === "/poison" ? refusal({ "X-Why": "poison" }) : {}));
  const fetch = createFetch({ ...quick, maxAttempts: 3 });
  const [poison, other] = await Promise.all([fetch(`${url}/poison`), fetch(`${url}/other`)]);
  assert.deepEqual([poison.status, poison.headers.get("X-Why"), await poison.text(), other.status], [429, "poison", "no", 200]);
  assert.equal(poison.url, `${url}/poison`);
  assert.equal(seen.filter((r) => r.url === "/poison").length, 3);
});

test("an absurd wait is not waited for", async (t) => {
  const { url, seen } = await serve(t, () => refusal({ "Retry-After": "86400" }));
  const response = await createFetch(quick)(url);
  assert.deepEqual([response.status, response.headers.get("Retry-After"), seen.length], [429, "86400", 1]);
});

test("a wait beyond maxWaitMs fails at once, for those behind as well, and says how long", async (t) => {
  const { url } = await serve(t, () => refusal({ "Retry-After": "30" }));
  const fetch = createFetch({ maxWaitMs: 5_000 });
  const began = performance.now();
  const all = await Promise.allSettled([fetch(url), fetch(url), fetch(url)]);
  assert.equal(all[0].value.status, 429);
  const late = await fetch(url).catch((error) => error);
  assert.ok(late instanceof Throttled && late.reason === "too late" && late.retryAfterMs > 20_000 && late.key === url, String(late));
  assert.ok(performance.now() - began < 25_000, "it was waited for");
});

test("a full queue, and an abort while waiting", async (t) => {
  const { url, seen } = await serve(t, (n) => (n === 1 ? refusal() : {}));
  const fetch = createFetch({ algorithm: { name: "ap", first: 20, min: 20 }, maxQueue: 2, maxWaitMs: 60_000 });
  const stop = new AbortController();
  const first = fetch(url, { signal: stop.signal });
  while (fetch.quotas()[0].refused < 1 || fetch.quotas()[0].waiting < 1) await new Promise((r) => setTimeout(r, 5));
  const second = fetch(url, { signal: stop.signal });
  await new Promise((r) => setTimeout(r, 20));
  await assert.rejects(fetch(url), (e) => e instanceof Throttled && e.reason === "queue full");
  stop.abort(new Error("enough"));
  await assert.rejects(first, /enough/);
  await assert.rejects(second, /enough/);
  assert.deepEqual([seen.length, fetch.quotas()[0].waiting], [1, 0]);
});

test("503 is sent again only where that is safe; other errors are the caller's", async (t) => {
  let status = 503;
  const { url, seen } = await serve(t, (n, request) => ({ status: n % 2 ? status : 200, headers: { "Retry-After": "0" } }));
  const fetch = createFetch(quick);
  assert.equal((await fetch(url)).status, 200);
  assert.equal((await fetch(url, { method: "POST", body: "a" })).status, 503);
  status = 500;
  seen.length = 0;
  assert.equal((await fetch(url)).status, 500);
  await assert.rejects(fetch("http://127.0.0.1:1/"), TypeError);
});

test("higher priority goes first, equal in order", async (t) => {
  // The first request that comes when all wait is refused too: nothing is under way when the rest is served.
  let all = false, open = 0;
  const { url, seen } = await serve(t, (n) => {
    if (open) return {};
    if (all) open = n;
    return refusal();
  });
  const fetch = createFetch({ algorithm: { name: "ap", first: 0.3, min: 0.3, max: 0.3 }, maxAttempts: 100, priority: (r) => Number(r.headers.get("Rank") ?? 0) });
  const first = fetch(`${url}/0`);
  while (!(fetch.quotas()[0]?.refused > 0)) await new Promise((r) => setTimeout(r, 2));
  const others = [...["1", "2"].map((n) => fetch(`${url}/${n}`)), fetch(`${url}/high`, { headers: { Rank: "1" } })];
  while (fetch.quotas()[0].waiting < 4) await new Promise((r) => setTimeout(r, 2));
  all = true;
  await Promise.all([first, ...others]);
  const served = seen.slice(open).map((r) => r.url);
  assert.deepEqual([...served].sort(), ["/0", "/1", "/2", "/high"]);
  assert.equal(served[0], "/high");
});

test("a server that reserves is told how many wait, and its times are kept", async (t) => {
  const { url, seen } = await serve(t, (n) => ({
    status: n === 1 ? 429 : 200,
    headers: { RateLimit: n === 1 ? '"a";r=0;t=1;headgate-slot=150' : '"a";r=5', "RateLimit-Policy": '"a";q=10;w=1;headgate-reserves' },
  }));
  const fetch = createFetch();
  const began = performance.now();
  await Promise.all([fetch(url), fetch(url)]);
  assert.ok(performance.now() - began > 100, "the reserved time was not waited for");
  assert.equal(seen[0].headers["headgate-pending"], undefined);
  assert.match(seen.at(-1).headers["headgate-pending"], /^[0-9]+$/);
  seen.length = 0;
  await createFetch({ pending: false })(url);
  assert.equal(seen[0].headers["headgate-pending"], undefined);
});

test("nonsense is said, all of it", () => {
  assert.throws(() => createFetch({ maxQueue: -1, maxWaitMs: NaN }), /maxQueue is -1.*maxWaitMs is NaN/);
  assert.throws(() => createFetch({ algorithm: "fast" }), /algorithm is "fast", want auto, hatb/);
  assert.throws(() => createFetch({ algorithm: { name: "wb" } }), /perMinute is undefined, want 1 or more/);
});

test("telemetry keeps no program alive, and one that is away keeps nobody waiting", async (t) => {
  const { url } = await serve(t, () => ({}));
  const script = `
    import { createFetch } from ${JSON.stringify(new URL("../dist/index.js", import.meta.url).href)};
    const fetch = createFetch({ algorithm: "aatb", telemetry: () => ({ url: "http://127.0.0.1:1/", quota: "api", secret: "s".repeat(32) }) });
    console.log((await fetch(${JSON.stringify(url)}, { headers: { Connection: "close" } })).status);`;
  const child = spawn(process.execPath, process.versions.deno ? ["eval", script] : ["--input-type=module", "-e", script]);
  let out = "";
  child.stdout.on("data", (d) => (out += d));
  const [code] = await once(child, "exit");
  assert.deepEqual([code, out], [0, "200\n"]);
});
