/** A service worker that paces what the pages of an origin fetch: all tabs share its queues. */

import { Transport, type Options } from "./index.js";
import { realClock, Throttled, type Line } from "./line.js";

// What TypeScript's DOM library lacks, as that of workers contradicts it.
interface ExtendableEvent extends Event { waitUntil(p: Promise<unknown>): void }
interface FetchEvent extends ExtendableEvent { readonly request: Request; respondWith(r: Promise<Response>): void }
interface Scope {
  addEventListener(type: "install" | "activate", f: (e: ExtendableEvent) => void): void;
  addEventListener(type: "fetch", f: (e: FetchEvent) => void): void;
  addEventListener(type: "message", f: (e: ExtendableEvent & { data: unknown }) => void): void;
  skipWaiting(): Promise<void>;
  clients: { claim(): Promise<void> };
  registration: { unregister(): Promise<boolean> };
}

export interface WorkerOptions extends Options {
  /** Which requests are paced; the others, and all navigations, are left to the browser. Default: none are left. */
  match?: (url: URL, request: Request) => boolean;
  /** Default 60,000, at most 240,000: browsers end an event of a worker after five minutes. */
  maxWaitMs?: number;
  /** The name of the database in which pauses outlive the worker. Default "headgate-pace". */
  database?: string;
}

const longestWait = 240_000;

/** Paces from the worker's script. Call it while the script loads. */
export function install(options: WorkerOptions = {}): void {
  const scope = globalThis as unknown as Scope;
  const store = new Store(options.database ?? "headgate-pace");
  let stopped = false;
  const o = { ...options, maxWaitMs: Math.min(options.maxWaitMs ?? 60_000, longestWait) };
  const transport = new Transport(o, (line) => store.put(line));
  const restored = store.load(transport).catch(() => {}); // without a database, it begins anew

  scope.addEventListener("install", (e) => e.waitUntil(scope.skipWaiting()));
  scope.addEventListener("activate", (e) => e.waitUntil(scope.clients.claim()));
  scope.addEventListener("message", (e) => {
    if (e.data !== "headgate-pace: stop") return;
    stopped = true;
    e.waitUntil(scope.registration.unregister());
  });
  scope.addEventListener("fetch", (e) => {
    const url = new URL(e.request.url);
    if (stopped || e.request.mode === "navigate" || !/^https?:$/.test(url.protocol)) return;
    if (options.match && !options.match(url, e.request)) return;
    const answer = restored.then(() => transport.fetch(e.request)).catch((error: unknown) => {
      if (error instanceof Throttled) return refusal(error);
      throw error;
    });
    e.respondWith(answer);
    e.waitUntil(answer.then(() => store.settled, () => store.settled));
  });
}

/** What a page is answered whose request was never sent: it knows 429, and may know nothing of Throttled. */
function refusal(error: Throttled): Response {
  return new Response(JSON.stringify({ title: "Not sent", status: 429, detail: error.message }), {
    status: 429, statusText: "Too Many Requests",
    headers: { "Content-Type": "application/problem+json", "Retry-After": String(Math.max(1, Math.ceil(error.retryAfterMs / 1000))) },
  });
}

/** How many quotas are kept, about. */
const most = 1024;

interface Saved { key: string; at: number; pacer: Record<string, unknown> }

/** Keeps the state of quotas in IndexedDB: a worker that was ended must not begin as if nothing had been sent. */
class Store {
  settled: Promise<unknown> = Promise.resolve();
  private opened: Promise<IDBDatabase> | undefined;
  private readonly waiting = new Set<Line>();

  constructor(private readonly name: string) {}

  private open(): Promise<IDBDatabase> {
    return (this.opened ??= new Promise((resolve, reject) => {
      const request = indexedDB.open(this.name, 1);
      request.onupgradeneeded = () => request.result.createObjectStore("quotas", { keyPath: "key" });
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    }));
  }

  async load(into: Transport) {
    const db = await this.open();
    const all = await new Promise<Saved[]>((resolve, reject) => {
      const request = db.transaction("quotas").objectStore("quotas").getAll(undefined, most);
      request.onsuccess = () => resolve(request.result as Saved[]);
      request.onerror = () => reject(request.error);
    });
    for (const saved of all) {
      const elapsed = Math.max(0, (Date.now() - saved.at) / 1000); // a clock that went back shortens no pause
      into.line(saved.key)?.pacer.load(saved.pacer, realClock.now() - elapsed);
    }
  }

  /** Writes the state of a line soon, and not while another write is under way. */
  put(line: Line) {
    this.waiting.add(line);
    if (this.waiting.size === 1) this.settled = this.settled.then(() => this.write()).catch(() => {});
  }

  private async write() {
    const db = await this.open();
    const lines = [...this.waiting];
    this.waiting.clear();
    await new Promise<void>((resolve, reject) => {
      const change = db.transaction("quotas", "readwrite");
      const quotas = change.objectStore("quotas");
      const put = (line: Line) => quotas.put({ key: line.key, at: Date.now(), pacer: line.pacer.save(realClock.now()) } satisfies Saved);
      const counted = quotas.count();
      counted.onsuccess = () => {
        if (counted.result > most) quotas.clear(); // most of them are of no use any more
        lines.forEach(put);
      };
      change.oncomplete = () => resolve();
      change.onabort = () => reject(change.error);
    });
  }
}
