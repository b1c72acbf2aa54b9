/** A service worker that paces what the pages of an origin fetch: all tabs share its queues. */
import { Transport } from "./index.js";
import { realClock, Throttled } from "./line.js";
const longestWait = 240_000;
/** Paces from the worker's script. Call it while the script loads. */
export function install(options = {}) {
    const scope = globalThis;
    const store = new Store(options.database ?? "headgate-pace");
    let stopped = false;
    const o = { ...options, maxWaitMs: Math.min(options.maxWaitMs ?? 60_000, longestWait) };
    const transport = new Transport(o, (line) => store.put(line));
    const restored = store.load(transport).catch(() => { }); // without a database, it begins anew
    scope.addEventListener("install", (e) => e.waitUntil(scope.skipWaiting()));
    scope.addEventListener("activate", (e) => e.waitUntil(scope.clients.claim()));
    scope.addEventListener("message", (e) => {
        if (e.data !== "headgate-pace: stop")
            return;
        stopped = true;
        e.waitUntil(scope.registration.unregister());
    });
    scope.addEventListener("fetch", (e) => {
        const url = new URL(e.request.url);
        if (stopped || e.request.mode === "navigate" || !/^https?:$/.test(url.protocol))
            return;
        if (options.match && !options.match(url, e.request))
            return;
        const answer = restored.then(() => transport.fetch(e.request)).catch((error) => {
            if (error instanceof Throttled)
                return refusal(error);
            throw error;
        });
        e.respondWith(answer);
        e.waitUntil(answer.then(() => store.settled, () => store.settled));
    });
}
/** What a page is answered whose request was never sent: it knows 429, and may know nothing of Throttled. */
function refusal(error) {
    return new Response(JSON.stringify({ title: "Not sent", status: 429, detail: error.message }), {
        status: 429, statusText: "Too Many Requests",
        headers: { "Content-Type": "application/problem+json", "Retry-After": String(Math.max(1, Math.ceil(error.retryAfterMs / 1000))) },
    });
}
/** How many quotas are kept, about. */
const most = 1024;
/** Keeps the state of quotas in IndexedDB: a worker that was ended must not begin as if nothing had been sent. */
class Store {
    name;
    settled = Promise.resolve();
    opened;
    waiting = new Set();
    constructor(name) {
        this.name = name;
    }
    open() {
        return (this.opened ??= new Promise((resolve, reject) => {
            const request = indexedDB.open(this.name, 1);
            request.onupgradeneeded = () => request.result.createObjectStore("quotas", { keyPath: "key" });
            request.onsuccess = () => resolve(request.result);
            request.onerror = () => reject(request.error);
        }));
    }
    async load(into) {
        const db = await this.open();
        const all = await new Promise((resolve, reject) => {
            const request = db.transaction("quotas").objectStore("quotas").getAll(undefined, most);
            request.onsuccess = () => resolve(request.result);
            request.onerror = () => reject(request.error);
        });
        for (const saved of all) {
            const elapsed = Math.max(0, (Date.now() - saved.at) / 1000); // a clock that went back shortens no pause
            into.line(saved.key)?.pacer.load(saved.pacer, realClock.now() - elapsed);
        }
    }
    /** Writes the state of a line soon, and not while another write is under way. */
    put(line) {
        this.waiting.add(line);
        if (this.waiting.size === 1)
            this.settled = this.settled.then(() => this.write()).catch(() => { });
    }
    async write() {
        const db = await this.open();
        const lines = [...this.waiting];
        this.waiting.clear();
        await new Promise((resolve, reject) => {
            const change = db.transaction("quotas", "readwrite");
            const quotas = change.objectStore("quotas");
            const put = (line) => quotas.put({ key: line.key, at: Date.now(), pacer: line.pacer.save(realClock.now()) });
            const counted = quotas.count();
            counted.onsuccess = () => {
                if (counted.result > most)
                    quotas.clear(); // most of them are of no use any more
                lines.forEach(put);
            };
            change.oncomplete = () => resolve();
            change.onabort = () => reject(change.error);
        });
    }
}
