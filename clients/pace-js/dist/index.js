/** A fetch that waits its turn: it paces requests to rate-limited APIs, and sends them again when they are refused. */
import { start } from "./algorithms.js";
import { isRefusal, readHint, repeatable } from "./hints.js";
import { Line, realClock, Throttled } from "./line.js";
import { HTTPReporter } from "./telemetry.js";
export { Throttled } from "./line.js";
export { readHint, isRefusal } from "./hints.js";
/** Returns a fetch that paces. Requests that were never sent reject with Throttled; all else is as with fetch. */
export function createFetch(options = {}) {
    const transport = new Transport(options);
    return Object.assign((input, init) => transport.fetch(input, init), {
        quotas: () => transport.quotas(), close: () => transport.close(),
    });
}
const maxRefusal = 65_536;
/** What was refused because of a limit was not processed, except perhaps where the server says that it is unavailable. */
function mayRepeat(request, status) {
    return status !== 503 || repeatable(request);
}
export class Transport {
    changed;
    lines = new Map();
    o;
    algorithm;
    held = false;
    constructor(options, changed = () => { }) {
        this.changed = changed;
        const bounds = { maxQueue: 1000, maxQuotas: 1024, maxWaitMs: 60_000, maxRetryAfterMs: 120_000, maxAttempts: 8, maxReplay: 65_536 };
        const wrong = [];
        for (const name of Object.keys(bounds)) {
            const value = options[name];
            if (value === undefined)
                continue;
            if (typeof value !== "number" || !(value >= 0) || (value < 1 && name !== "maxWaitMs" && name !== "maxReplay"))
                wrong.push(`${name} is ${String(value)}, want a number above 0`);
            bounds[name] = value;
        }
        if (wrong.length > 0)
            throw new RangeError(wrong.join("; "));
        this.o = {
            key: (r) => new URL(r.url).origin, priority: () => 0, random: Math.random, clock: realClock, ...options, ...bounds,
            fetch: options.fetch ?? ((input, init) => globalThis.fetch(input, init)),
        };
        const a = options.algorithm ?? "auto";
        this.algorithm = typeof a === "string" ? { name: a } : a;
        start(this.algorithm, 0, () => 0); // says what is wrong with it
    }
    quotas() { return [...this.lines.values()].map((l) => l.state()); }
    close() { for (const line of this.lines.values())
        line.close(); }
    /** Keeps every queue from sending until it is released, so that what comes meanwhile goes in its own order. */
    hold() { this.held = true; }
    release() {
        this.held = false;
        for (const line of this.lines.values())
            line.release();
    }
    /** The key of a request's quota. */
    quota(request) { return this.o.key(request); }
    /** The queue of a quota; undefined if there is no room for another. */
    line(key) {
        let line = this.lines.get(key);
        if (line)
            return line;
        if (this.lines.size >= this.o.maxQuotas && !this.forget())
            return undefined;
        const telemetry = this.o.telemetry?.(key);
        line = new Line(key, start(this.algorithm, this.o.clock.now(), this.o.random), this.o.clock, this.o.maxQueue, telemetry && new HTTPReporter(telemetry, this.o.fetch), this.changed);
        if (this.held)
            line.hold();
        this.lines.set(key, line);
        return line;
    }
    forget() {
        const idle = [...this.lines.values()].filter((l) => l.idle);
        const gone = idle.find((l) => !l.paused) ?? idle[0];
        return gone !== undefined && this.lines.delete(gone.key);
    }
    async fetch(input, init, course) {
        const request = new Request(input, init);
        const key = this.quota(request);
        const line = this.line(key);
        if (!line)
            throw new Throttled(key, 0, "too many quotas");
        line.enter();
        try {
            return await this.paced(line, request, await this.replay(request, init), course);
        }
        finally {
            line.leave();
        }
    }
    async paced(line, request, again, course) {
        const longest = Math.min(this.o.maxWaitMs, course?.leftMs ?? Infinity);
        const waiter = { priority: this.o.priority(request), arrival: course?.arrival ?? 0, latest: this.o.clock.now() + longest / 1000 };
        let next = again();
        let refusal;
        for (let number = 1 + (course?.attempts ?? 0);; number++) {
            const began = this.o.clock.now();
            try {
                const turn = line.wait(waiter, request.signal);
                course?.waits(waiter.arrival, number - 1, (waiter.latest - began) * 1000);
                await turn;
            }
            catch (error) {
                if (refusal && error instanceof Throttled)
                    return refusal; // the server's own words say more
                throw error;
            }
            await course?.goes();
            const [response, refused, hint] = await this.attempt(line, next, number, (this.o.clock.now() - began) * 1000);
            if (!refused || number >= this.o.maxAttempts || hint.wait * 1000 > this.o.maxRetryAfterMs || !mayRepeat(request, response.status))
                return response;
            next = again();
            if (!next)
                return response;
            refusal = await kept(response);
        }
    }
    async attempt(line, request, number, waitedMs) {
        const pending = line.pending();
        if (pending !== undefined && (this.o.pending ?? ownOrigin(request)))
            request.headers.set("Headgate-Pending", String(Math.min(pending, 1000)));
        const sent = this.o.clock.now();
        const seen = { key: line.key, number, waitedMs };
        let response;
        try {
            response = await this.o.fetch(request);
        }
        catch (error) {
            line.unanswer();
            this.o.onAttempt?.({ ...seen, roundTripMs: (this.o.clock.now() - sent) * 1000, status: 0, refused: false, error });
            throw error;
        }
        const hint = readHint(response.headers);
        hint.roundTrip = this.o.clock.now() - sent;
        const refused = isRefusal(response.status, response.headers);
        line.answer(number, response.status, refused, { ...hint, wait: Math.min(hint.wait, this.o.maxRetryAfterMs / 1000) });
        this.o.onAttempt?.({ ...seen, roundTripMs: hint.roundTrip * 1000, status: response.status, refused, hint });
        return [response, refused, hint];
    }
    /** Returns what makes the request, as often as it is sent: undefined once its body cannot be sent again. */
    async replay(request, init) {
        if (!request.body) {
            // Firefox has no Request.body: there the method says whether there may be one.
            if (request.body !== undefined || request.method === "GET" || request.method === "HEAD")
                return () => new Request(request);
        }
        const stream = typeof ReadableStream !== "undefined" && init?.body instanceof ReadableStream;
        const bytes = stream ? undefined : await small(request.clone(), this.o.maxReplay);
        if (bytes)
            return () => new Request(request, { body: bytes });
        let once = request;
        return () => {
            const r = once;
            once = undefined;
            return r;
        };
    }
}
/** Whether a server can be told more without asking it before: outside of browsers, and at the page's own origin. */
function ownOrigin(request) {
    const here = globalThis.location?.origin;
    return here === undefined || new URL(request.url).origin === here;
}
/** The body of a request, or undefined if it is larger than most. */
export async function small(request, most) {
    if (!request.body) {
        const all = new Uint8Array(await request.arrayBuffer());
        return all.length <= most ? all : undefined;
    }
    return read(request.body, most);
}
/** All of a body, or undefined if it is larger than most. */
async function read(body, most) {
    const reader = body.getReader();
    const parts = [];
    let length = 0;
    for (;;) {
        const { done, value } = await reader.read();
        if (done)
            break;
        length += value.length;
        if (length > most) {
            void reader.cancel().catch(() => { }); // the other half of it is sent
            return undefined;
        }
        parts.push(value);
    }
    const all = new Uint8Array(length);
    let at = 0;
    for (const part of parts) {
        all.set(part, at);
        at += part.length;
    }
    return all;
}
/** A refusal whose body was read, so that its connection is free while the request waits. */
async function kept(response) {
    let body;
    try {
        body = response.body ? await read(response.body, maxRefusal) : undefined;
    }
    catch {
        // It broke off: the status and the fields are what counts.
    }
    const copy = new Response(body?.length ? body : null, { status: response.status, statusText: response.statusText, headers: response.headers });
    Object.defineProperty(copy, "url", { value: response.url });
    return copy;
}
