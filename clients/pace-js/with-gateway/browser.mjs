// The service worker in a real browser, at a real gateway; eval/doors starts it.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";

const { GATEWAY, ADMIN, CHROMIUM = "chromium" } = process.env;

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
    ], { stdio: ["ignore", "ignore", "pipe", "pipe", "pipe"] });
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
      if (m.method === "ServiceWorker.workerVersionUpdated") for (const v of m.params.versions) this.versions.set(v.versionId, v);
      const asked = this.#asked.get(m.id);
      this.#asked.delete(m.id);
      if (m.error) asked?.reject(new Error(m.error.message));
      else asked?.resolve(m.result);
    }
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
    this.process.kill("SIGKILL");
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
    await eventually("the pause is not kept", () => a.run(`new Promise((resolve) => {
      const opened = indexedDB.open("headgate-pace", 1);
      opened.onsuccess = () => {
        const asked = opened.result.transaction("quotas").objectStore("quotas").get("scarce");
        asked.onsuccess = () => { opened.result.close(); resolve(Boolean(asked.result)); };
      };
    })`));
    const before = await refusals();
    const pending = a.run(`fetch("/v1/scarce?pending").then((r) => r.status, () => "lost with the worker")`);
    await a.send("ServiceWorker.stopAllWorkers");
    await eventually("the worker runs on", () => [...browser.versions.values()].every((v) => v.runningStatus !== "running" && v.runningStatus !== "stopping"));
    await pending;
    const later = await b.run(`fetch("/v1/scarce").then(async (r) => [r.status, Number(r.headers.get("Retry-After")) > 60, (await r.json()).title])`);
    assert.deepEqual(later, [429, true, "Not sent"]);
    assert.equal(await refusals(), before, "the worker asked again, as if it had never been refused");
    // Another quota goes on.
    assert.deepEqual(await b.run(many(300, 3)), ["200 item 300", "200 item 301", "200 item 302"]);
  });

  await t.test("it can be switched off", async () => {
    await a.run(`navigator.serviceWorker.controller.postMessage("headgate-pace: stop")`);
    await eventually("it is registered", async () => !(await a.run("navigator.serviceWorker.getRegistration().then(Boolean)")));
    assert.equal(await a.run(`fetch("/v1/scarce").then(async (r) => (await r.json()).title)`), "Quota exceeded");
  });
});
