// The service worker in a real browser, at a real gateway; eval/doors starts it.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";

const { GATEWAY, ADMIN, API, CHROMIUM = "chromium" } = process.env;

/** A browser without a window, by the DevTools protocol over pipes. */
class Browser {
  #next = 0;
  #asked = new Map();
  #rest = "";
  versions = new Map();

  constructor() {
    this.dir = mkdtempSync(join(tmpdir(), "headgate-pace-"));
    this.process = spawn(CHROMIUM, [
      "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
      "--disable-background-timer-throttling", "--disable-renderer-backgrounding", `--user-data-dir=${this.dir}`, "--remote-debugging-pipe", "about:blank",
    ], { stdio: ["ignore", "ignore", "pipe", "pipe", "pipe"], detached: true });
    this.errors = "";
    this.process.stderr.on("data", (d) => (this.errors = (this.errors + d).slice(-4000)));
    this.process.stdio[4].setEncoding("utf8").on("data", (d) => this.#read(d));
    this.process.on("exit", () => { for (const { reject } of this.#asked.values()) reject(new Error(`the browser ended: ${this.errors}`)); });
  }

  #read(data) {
    const parts = (this.#rest + data).split("\0");
    this.#rest = parts.pop();
    for (const part of parts) {
      const m = JSON.parse(part);
      if (m.method === "ServiceWorker.workerVersionUpdated") for (const v of m.params.versions) this.#changed(v);
      const asked = this.#asked.get(m.id);
      this.#asked.delete(m.id);
      if (m.error) asked?.reject(new Error(m.error.message));
      else asked?.resolve(m.result);
    }
  }

  #changed(version) {
    const before = this.versions.get(version.versionId);
    const starts = version.runningStatus === "running" && before?.runningStatus !== "running";
    this.versions.set(version.versionId, { ...version, runs: (before?.runs ?? 0) + (starts ? 1 : 0) });
  }

  send(method, params = {}, sessionId) {
    const id = ++this.#next;
    this.process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    return new Promise((resolve, reject) => this.#asked.set(id, { resolve, reject }));
  }

  /** Opens a tab and waits until its page is controlled by the worker. */
  async tab(url) {
    const { targetId } = await this.send("Target.createTarget", { url });
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
    const tab = {
      send: (method, params) => this.send(method, params, sessionId),
      run: async (expression) => {
        const { result, exceptionDetails } = await this.send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true }, sessionId);
        if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
        return result.value;
      },
    };
    await eventually("the page has no worker", () => tab.run("Boolean(window.ready && navigator.serviceWorker.controller)").catch(() => false));
    return tab;
  }

  async close() {
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    process.kill(-this.process.pid, "SIGKILL"); // its processes as well, which write into its directory
    await ended;
    rmSync(this.dir, { recursive: true, force: true, maxRetries: 20 });
  }
}

async function eventually(what, ok) {
  for (const end = Date.now() + 60_000; !(await ok()); await new Promise((r) => setTimeout(r, 50))) {
    assert.ok(Date.now() < end, `after a minute: ${what}`);
  }
}

const many = (from, n) => `Promise.all(Array.from({ length: ${n} }, (_, i) => fetch("/v1/items/" + (${from} + i)).then(async (r) => r.status + " " + await r.text())))`;

/** How many requests the gateway has refused. */
async function refusals() {
  const text = await (await fetch(`${ADMIN}/metrics`)).text();
  return [...text.matchAll(/^headgate_denied_total\{.*\} (\d+)$/gm)].reduce((sum, m) => sum + Number(m[1]), 0);
}

/** What the API was asked that has a text in it. */
const seen = async (text) => (await (await fetch(`${API}/seen?${text}`)).text()).split("\n").filter(Boolean);

/** What the worker keeps: an expression over all that a store answers. */
const kept = (store, asks, of) => `new Promise((resolve) => {
  const opened = indexedDB.open("headgate-pace");
  opened.onsuccess = () => {
    const asked = opened.result.transaction("${store}").objectStore("${store}").${asks};
    asked.onsuccess = () => { const all = asked.result; opened.result.close(); resolve(${of}); };
  };
})`;

test("a service worker in a browser", async (t) => {
  const browser = new Browser();
  t.after(() => browser.close());
  const a = await browser.tab(GATEWAY);
  const b = await browser.tab(GATEWAY);

  await t.test("two tabs: every request is served in the end, and its answer reaches its page", async () => {
    const [first, second] = await Promise.all([a.run(many(100, 15)), b.run(many(200, 15))]);
    assert.deepEqual(first, Array.from({ length: 15 }, (_, i) => `200 item ${100 + i}`));
    assert.deepEqual(second, Array.from({ length: 15 }, (_, i) => `200 item ${200 + i}`));
    assert.ok((await refusals()) < 30, `${await refusals()} refusals for 30 requests`);
  });

  await t.test("a body is sent again, status and fields are those of the final answer", async () => {
    const got = await a.run(`Promise.all(Array.from({ length: 12 }, (_, i) => fetch("/v1/items", { method: "POST", body: "body " + i }).then(async (r) => [r.status, r.headers.get("X-Item"), await r.text()])))`);
    assert.deepEqual(got, Array.from({ length: 12 }, (_, i) => [201, "made", `body ${i}`]));
  });

  await t.test("a worker that is killed resumes: it knows its pause", async () => {
    await a.send("ServiceWorker.enable");
    // Two an hour is used up: the worker waits for what will not come soon, and tells the page so.
    const scarce = await a.run(`Promise.all([1, 2, 3].map((i) => fetch("/v1/scarce").then((r) => r.status)))`);
    assert.deepEqual(scarce.sort(), [200, 200, 429]);
    await eventually("the pause is not kept", () => a.run(kept("quotas", 'get("scarce")', "Boolean(all)")));
    const before = await refusals();
    const pending = a.run(`fetch("/v1/scarce?pending").then((r) => r.status)`);
    await kill(a);
    assert.equal(await pending, 429); // by the next worker, to which it was handed on
    const later = await b.run(`fetch("/v1/scarce").then(async (r) => [r.status, Number(r.headers.get("Retry-After")) > 60, (await r.json()).title])`);
    assert.deepEqual(later, [429, true, "Not sent"]);
    assert.equal(await refusals(), before, "the worker asked again, as if it had never been refused");
    // Another quota goes on.
    assert.deepEqual(await b.run(many(300, 3)), ["200 item 300", "200 item 301", "200 item 302"]);
  });

  /** Ends the worker at once, whatever it holds. */
  async function kill(tab) {
    const before = new Set([...browser.versions.values()].map((v) => v.runs));
    await tab.send("ServiceWorker.stopAllWorkers");
    await eventually("the worker runs on", () => [...browser.versions.values()].every((v) => v.runningStatus !== "running" || !before.has(v.runs)));
  }
  const text = (url, init = {}) => `.fetch(${JSON.stringify(url)}, ${JSON.stringify(init)}).then(async (r) => r.status + " " + await r.text(), String)`;
  const post = (body) => ({ method: "POST", body });

  for (const [how, kills] of [["window", 1], ["{ fetch: window.resuming }", 3]]) {
    await t.test(`killed ${kills} times in the middle of a wait: all goes on in its order, and nothing is sent twice, by ${how}`, async () => {
      const name = `wait${kills}`;
      await a.run(`window.all = Promise.all(Array.from({ length: 4 }, (_, i) => (${how})${text(`/v1/queue/${name}`, post("at")).replace('"at"', '"at " + i')})); 0`);
      for (let n = 1; n <= kills; n++) {
        await eventually("the queue does not move", async () => (await seen(name)).length >= n);
        await eventually("nothing waits, or something is under way", () => a.run(kept("requests", "getAll()", `all.some((r) => r.key === "queue") && all.every((r) => !r.sent)`)));
        await kill(a);
      }
      const later = b.run(`window${text(`/v1/queue/${name}`, post("late"))}`);
      const all = await a.run("window.all");
      const sent = await seen(name);
      assert.deepEqual(all, Array(4).fill(`200 turn ${name}`));
      assert.deepEqual(sent.slice(0, 4), [0, 1, 2, 3].map((i) => `POST /v1/queue/${name} at ${i}`));
      assert.equal(await later, `200 turn ${name}`);
      assert.equal((await seen(name)).length, 5);
    });
  }

  await t.test("killed after a POST was sent: it is not sent twice, and its page is told that it failed", async () => {
    for (const how of ["window", "{ fetch: window.resuming }"]) {
      const url = `/v1/held/${how === "window" ? "plain" : "resuming"}`;
      await a.run(`window.one = (${how})${text(url, post("pay"))}; 0`);
      await eventually("it is not sent", async () => (await seen(url)).length === 1);
      await kill(a);
      assert.equal(await a.run("window.one"), "TypeError: Failed to fetch");
      assert.deepEqual(await seen(url), [`POST ${url} pay`]);
      assert.equal(await a.run(`(${how})${text(url, post("pay"))}`), `200 ${url.slice(4).replace("/", " ")}`); // as the user says
    }
  });

  await t.test("killed while a GET is under way: it is sent again", async () => {
    await a.run(`window.one = window${text("/v1/held/get")}; 0`);
    await eventually("it is not sent", async () => (await seen("held/get")).length === 1);
    await kill(a);
    assert.equal(await a.run("window.one"), "200 held get");
  });

  await t.test("killed in the middle of an answer: it goes on, or fails if it is another", async () => {
    for (const kind of ["same", "changed"]) {
      await a.run(`window.heads = 0; window.one = window.resuming("/v1/halves/${kind}").then(async (r) => {
        window.heads++;
        return r.status + " " + await r.text();
      }).catch(String); 0`);
      await eventually("no answer begins", () => a.run("window.heads === 1"));
      await kill(a);
      const got = await a.run("window.one");
      if (kind === "same") assert.equal(got, "200 " + "x".repeat(80_000));
      else assert.match(got, /^TypeError/);
      assert.equal((await seen(`halves/${kind}`)).length, 2);
    }
  });

  await t.test("what fails on the network, with the worker alive, fails", async () => {
    assert.match(await a.run(`window.resuming("http://127.0.0.1:1/v1/none").catch(String)`), /^TypeError/);
    assert.deepEqual(await a.run(`window.resuming("/v1/items/7").then(async (r) => [r.status, new URL(r.url).pathname, r.redirected, await r.text()])`), [200, "/v1/items/7", false, "item 7"]);
  });

  await t.test("it can be switched off", async () => {
    await a.run(`navigator.serviceWorker.controller.postMessage("headgate-pace: stop")`);
    await eventually("it is registered", async () => !(await a.run("navigator.serviceWorker.getRegistration().then(Boolean)")));
    assert.equal(await a.run(`fetch("/v1/scarce").then(async (r) => (await r.json()).title)`), "Quota exceeded");
  });
});
