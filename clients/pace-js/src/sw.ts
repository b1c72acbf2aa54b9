/** A service worker that paces what the pages of an origin fetch: all tabs share its queues. */

import { Held, newKey, type HeldRecord, type Question } from "./held.js";
import { repeatable } from "./hints.js";
import { small, Transport, type Options } from "./index.js";
import { realClock, Throttled, type Line } from "./line.js";

// What TypeScript's DOM library lacks, as that of workers contradicts it.
interface ExtendableEvent extends Event { waitUntil(p: Promise<unknown>): void }
interface FetchEvent extends ExtendableEvent { readonly request: Request; readonly clientId: string; respondWith(r: Promise<Response>): void }
interface MessageToWorker extends ExtendableEvent { readonly data: unknown; readonly source: { id: string } | null; readonly ports: readonly MessagePort[] }
interface Scope {
  addEventListener(type: "install" | "activate", f: (e: ExtendableEvent) => void): void;
  addEventListener(type: "fetch", f: (e: FetchEvent) => void): void;
  addEventListener(type: "message", f: (e: MessageToWorker) => void): void;
  skipWaiting(): Promise<void>;
  clients: { claim(): Promise<void> };
  registration: { unregister(): Promise<boolean> };
}

export interface WorkerOptions extends Options {
  /** Which requests are paced; the others, and all navigations, are left to the browser. Default: none are left. */
  match?: (url: URL, request: Request) => boolean;
  /** Default 60,000, at most 240,000: browsers end an event of a worker after five minutes. */
  maxWaitMs?: number;
  /** The name of the database in which queues and pauses outlive the worker. Default "headgate-pace". */
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
  const held = new Held((id, record) => store.hold(id, record));
  transport.hold();
  const restored = restore(store, transport, held).catch(() => transport.release()); // without a database, it begins anew

  /** The answer for a page: nothing but an end of the worker, after which the next one goes on, keeps it from coming. */
  async function answer(client: string, request: Request): Promise<Response> {
    await restored;
    const body = repeatable(request) ? undefined : await small(request.clone(), o.maxReplay ?? 65_536);
    const course = await held.hold(client, request, body?.buffer, transport.quota(request));
    if (!course) return Response.error(); // it may have been processed already
    try {
      return await transport.fetch(request, undefined, course);
    } catch (error) {
      if (error instanceof Throttled) return refusal(error);
      throw error;
    } finally {
      course.ends();
    }
  }

  scope.addEventListener("install", (e) => e.waitUntil(scope.skipWaiting()));
  scope.addEventListener("activate", (e) => e.waitUntil(scope.clients.claim()));
  scope.addEventListener("message", (e) => {
    if (e.data === "headgate-pace: stop") {
      stopped = true;
      e.waitUntil(scope.registration.unregister());
    } else if (e.source && e.ports[0] && (e.data as Question | null)?.["headgate-pace"] === "held") {
      const { source: { id }, ports: [port] } = e as { source: { id: string }; ports: readonly MessagePort[] };
      e.waitUntil(restored.then(async () => port!.postMessage(await held.reply(id, e.data as Question))));
    }
  });
  scope.addEventListener("fetch", (e) => {
    const url = new URL(e.request.url);
    if (stopped || e.request.mode === "navigate" || !/^https?:$/.test(url.protocol)) return;
    if (options.match && !options.match(url, e.request)) return;
    const got = answer(e.clientId, e.request);
    e.respondWith(got);
    e.waitUntil(got.then(() => store.settled, () => store.settled));
  });
}

/** Goes on where the worker before ended: with its pauses, and with what it held. */
async function restore(store: Store, transport: Transport, held: Held) {
  const { quotas, requests, key } = await store.load();
  for (const saved of quotas) {
    const elapsed = Math.max(0, (Date.now() - saved.at) / 1000); // a clock that went back shortens no pause
    transport.line(saved.key)?.pacer.load(saved.pacer, realClock.now() - elapsed);
  }
  void held.take(requests, key, (quota, arrival) => transport.line(quota)?.after(arrival)).then(() => transport.release());
}

/** What a page is answered whose request was never sent: it knows 429, and may know nothing of Throttled. */
function refusal(error: Throttled): Response {
  return new Response(JSON.stringify({ title: "Not sent", status: 429, detail: error.message }), {
    status: 429, statusText: "Too Many Requests",
    headers: { "Content-Type": "application/problem+json", "Retry-After": String(Math.max(1, Math.ceil(error.retryAfterMs / 1000))) },
  });
}

/** How many quotas, and how many requests, are kept, about. */
const most = 4096;

interface Saved { key: string; at: number; pacer: Record<string, unknown> }

/** Keeps quotas and the requests that wait for them in IndexedDB: a worker can be ended at any time. */
class Store {
  settled: Promise<void> = Promise.resolve();
  private opened: Promise<IDBDatabase> | undefined;
  private due: Promise<void> | undefined;
  private lines = new Set<Line>();
  private requests = new Map<string, HeldRecord | undefined>();

  constructor(private readonly name: string) {}

  private open(): Promise<IDBDatabase> {
    return (this.opened ??= new Promise((resolve, reject) => {
      const request = indexedDB.open(this.name, 2);
      request.onupgradeneeded = () => {
        const db = request.result;
        if (!db.objectStoreNames.contains("quotas")) db.createObjectStore("quotas", { keyPath: "key" });
        db.createObjectStore("requests", { keyPath: "id" });
        db.createObjectStore("keys");
      };
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    }));
  }

  async load(): Promise<{ quotas: Saved[]; requests: HeldRecord[]; key: CryptoKey }> {
    const [db, fresh] = await Promise.all([this.open(), newKey()]);
    const change = db.transaction(["quotas", "requests", "keys"], "readwrite");
    const keys = change.objectStore("keys");
    const key = result<CryptoKey | undefined>(keys.get("print")).then((kept) => kept ?? (keys.put(fresh, "print"), fresh));
    const quotas = result<Saved[]>(change.objectStore("quotas").getAll(undefined, most));
    const requests = result<HeldRecord[]>(change.objectStore("requests").getAll(undefined, most));
    return { quotas: await quotas, requests: await requests, key: await key };
  }

  /** Writes the state of a line soon. */
  put(line: Line) {
    this.lines.add(line);
    void this.soon();
  }

  /** Writes what is known of a request, or that it is over. Resolves when it is written, or cannot be. */
  hold(id: string, record: HeldRecord | undefined): Promise<void> {
    this.requests.set(id, record);
    return this.soon();
  }

  /** One write at a time, with all that came up during the one before. */
  private soon(): Promise<void> {
    return (this.due ??= this.settled = this.settled.then(() => {
      this.due = undefined;
      return this.write();
    }).catch(() => {}));
  }

  private async write() {
    const db = await this.open();
    const [lines, requests] = [[...this.lines], [...this.requests]];
    this.lines.clear();
    this.requests.clear();
    await new Promise<void>((resolve, reject) => {
      const change = db.transaction(["quotas", "requests"], "readwrite");
      const quotas = change.objectStore("quotas");
      const held = change.objectStore("requests");
      for (const [id, record] of requests) record ? held.put(record) : held.delete(id);
      const counted = quotas.count();
      counted.onsuccess = () => {
        if (counted.result > most) quotas.clear(); // most of them are of no use any more
        for (const line of lines) quotas.put({ key: line.key, at: Date.now(), pacer: line.pacer.save(realClock.now()) } satisfies Saved);
      };
      change.oncomplete = () => resolve();
      change.onabort = () => reject(change.error);
    });
  }
}

function result<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
