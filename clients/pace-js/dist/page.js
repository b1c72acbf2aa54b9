/** A fetch for pages whose requests a service worker paces: it goes on when the browser ends the worker. */
import { repeatable } from "./hints.js";
/** How often one request is taken up again. */
const mostTimes = 8;
/** How long a worker is given to say what it knows. */
const replyWithin = 10_000;
/** The largest body by which a request is known again: maxReplay of the worker, where nothing else is said. */
const mostKnown = 65_536;
/** How much of an answer is kept, to go on with it when it breaks off. */
const mostKept = 1 << 20;
/**
 * Returns a fetch that survives the end of the page's service worker (headgate-pace/sw). A request that the worker held
 * is taken up by the next one, in its place in the queue, unless it may have been sent and may not be sent twice: then
 * it fails, as it would have. An answer that broke off with the worker is asked for again, and goes on after what was
 * read of it if that is as before. Where no worker is in charge it is the browser's fetch.
 */
export function resumingFetch(native = globalThis.fetch.bind(globalThis)) {
    let run; // the worker that is in charge, as far as is known
    /** Whether the worker that was in charge then was ended, and a request that was made of it may be made again. */
    async function again(request, then) {
        const reply = ask(request, true);
        run = reply.then((r) => r?.run);
        const got = await reply;
        return got !== undefined && got.run !== (await then) && (repeatable(request) || got.unsent);
    }
    async function held(request) {
        for (let times = 0;; times++) {
            const then = run;
            try {
                return { response: await native(request.clone()), again: async () => ((await again(request, then)) ? held(request) : undefined) };
            }
            catch (error) {
                if (request.signal.aborted || times === mostTimes || !(await again(request, then)))
                    throw error;
            }
        }
    }
    return async (input, init) => {
        const streams = typeof ReadableStream !== "undefined" && init?.body instanceof ReadableStream;
        if (!navigator.serviceWorker?.controller || streams)
            return native(input, init);
        const request = new Request(input, init);
        run ??= ask(request, false).then((r) => r?.run);
        const answer = await held(request);
        return repeatable(request) ? whole(answer, request) : answer.response;
    };
}
/** What the worker says: who it is, and of a request that failed whether it may be made again. */
async function ask(request, failed) {
    const worker = navigator.serviceWorker.controller;
    if (!worker)
        return undefined;
    const repeats = repeatable(request);
    const question = {
        "headgate-pace": "held", method: request.method, url: request.url, once: request.headers.get("Idempotency-Key") ?? undefined,
        body: repeats || !failed ? undefined : await little(request),
    };
    const { port1, port2 } = new MessageChannel();
    return new Promise((resolve) => {
        const late = setTimeout(() => done(undefined), replyWithin);
        const done = (reply) => {
            clearTimeout(late);
            port1.close();
            resolve(reply);
        };
        port1.onmessage = (e) => done(e.data);
        worker.postMessage(question, [port2]);
    });
}
/** The body, unless it is larger than what a worker knows requests by. */
async function little(request) {
    const body = await request.clone().arrayBuffer();
    return body.byteLength <= mostKnown ? body : undefined;
}
/** The answer, which goes on when its body breaks off. */
function whole({ response: first, again }, request) {
    if (!first.body || first.type === "opaque" || first.type === "opaqueredirect")
        return first;
    let reader = first.body.getReader();
    let kept = []; // what was read, while it is little
    let length = 0;
    let times = 0;
    let pending;
    /** The answer once more, read as far as it was before, if that says the same. */
    async function resume() {
        while (kept && !request.signal.aborted && times++ < mostTimes) {
            const next = await again();
            if (!next?.response.body || next.response.status !== first.status)
                return false;
            again = next.again;
            const body = next.response.body.getReader();
            try {
                const rest = await behind(body, kept);
                if (!rest)
                    return false;
                reader = body;
                if (rest.length > 0)
                    pending = rest;
                return true;
            }
            catch {
                // It broke off again.
            }
        }
        return false;
    }
    const body = new ReadableStream({
        async pull(controller) {
            for (;;) {
                try {
                    const part = pending ?? (await reader.read()).value;
                    pending = undefined;
                    if (!part)
                        return controller.close();
                    length += part.length;
                    if (length > mostKept)
                        kept = undefined;
                    kept?.push(part.slice());
                    return controller.enqueue(part);
                }
                catch (error) {
                    if (!(await resume().catch(() => false)))
                        throw error;
                }
            }
        },
        cancel: (reason) => reader.cancel(reason),
    }, { highWaterMark: 0 });
    const answer = new Response(body, { status: first.status, statusText: first.statusText, headers: first.headers });
    for (const name of ["url", "redirected", "type"])
        Object.defineProperty(answer, name, { value: first[name] });
    return answer;
}
/** Reads what is expected, and returns what came with its end; undefined if it is something else. */
async function behind(body, expected) {
    let rest = new Uint8Array();
    for (const part of expected) {
        for (let at = 0; at < part.length;) {
            if (rest.length === 0) {
                const { value } = await body.read();
                if (!value)
                    return undefined;
                rest = new Uint8Array(value);
            }
            const n = Math.min(rest.length, part.length - at);
            for (let i = 0; i < n; i++)
                if (rest[i] !== part[at + i])
                    return undefined;
            at += n;
            rest = rest.subarray(n);
        }
    }
    return rest;
}
