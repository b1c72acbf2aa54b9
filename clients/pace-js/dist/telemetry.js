// Reports to `headgate telemetry` by HTTP, in the messages that Go's package pace/telemetry describes.
export const size = 128;
const signed = 112;
const utf8 = new TextEncoder();
async function hmac(key) {
    const imported = await crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
    return async (message) => new Uint8Array(await crypto.subtle.sign("HMAC", imported, message));
}
/** The key of one client at one quota. */
export async function clientKey(secret, quota, client) {
    const prefix = utf8.encode("headgate telemetry 1\0");
    const message = new Uint8Array(prefix.length + 8 + quota.length);
    message.set(prefix);
    new DataView(message.buffer).setBigUint64(prefix.length, client);
    message.set(utf8.encode(quota), prefix.length + 8);
    return (await hmac(secret))(message);
}
/** A report, signed by the client's key. */
export async function encode(r, key) {
    const message = new Uint8Array(size);
    const view = new DataView(message.buffer);
    message.set(utf8.encode("HGT1"));
    message[4] = 1;
    message[5] = (r.congested ? 1 : 0) | (r.first ? 2 : 0);
    message.set(utf8.encode(r.quota).subarray(0, 24), 8);
    view.setBigUint64(32, r.client);
    view.setBigUint64(40, r.number);
    [r.sent, r.accepted, r.refused, Math.min(Math.max(0, r.queue), 10_000)].forEach((n, i) => view.setUint32(48 + 4 * i, n % 2 ** 32));
    view.setBigUint64(64, BigInt(Math.floor(r.timeMs)));
    message.set((await (await hmac(key))(message.slice(0, signed))).subarray(0, size - signed), signed);
    return message;
}
/** The aggregate that answers report `number`, or undefined for anything else. */
export async function decode(message, key, r) {
    if (message.length !== size || String.fromCharCode(...message.subarray(0, 4)) !== "HGT1" || message[4] !== 2)
        return undefined;
    const mac = (await (await hmac(key))(message.slice(0, signed))).subarray(0, size - signed);
    let differs = 0;
    mac.forEach((b, i) => { differs |= b ^ message[signed + i]; });
    const view = new DataView(message.buffer, message.byteOffset, size);
    const quota = String.fromCharCode(...message.subarray(8, 32)).replace(/\0+$/, "");
    if (differs !== 0 || quota !== r.quota || view.getBigUint64(32) !== r.client || view.getBigUint64(40) !== r.number)
        return undefined;
    const since = view.getUint32(80);
    return {
        sent: view.getUint32(48), refusals: view.getUint32(56), waiting: view.getUint32(60), active: view.getUint32(72), refused: view.getUint32(76),
        lastRefusal: since === 2 ** 32 - 1 ? -1 : since / 1000, perSecond: Number(view.getBigUint64(84)) / 1e6, partial: (message[5] & 1) === 0,
    };
}
const fromBase64 = (text) => Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
/** Reports by HTTP, one report at a time; what fails is forgotten, since counters go on. */
export class HTTPReporter {
    o;
    fetch;
    heard;
    client;
    key;
    number = BigInt(Date.now());
    first = true;
    busy = false;
    latest;
    constructor(o, fetch) {
        this.o = o;
        this.fetch = fetch;
        if ((o.secret === undefined) === (o.key === undefined))
            throw new TypeError("telemetry: want secret, or key and client");
        if (o.key !== undefined) {
            this.client = BigInt(o.client ?? "");
            this.key = Promise.resolve(fromBase64(o.key));
        }
        else {
            this.client = crypto.getRandomValues(new BigUint64Array(1))[0];
            this.key = clientKey(utf8.encode(o.secret), o.quota, this.client);
        }
        this.key.catch(() => { }); // an insecure page has no crypto.subtle: each report then fails
    }
    report(state) {
        this.latest = this.latest ? { ...state, congested: state.congested || this.latest.congested } : state;
        if (!this.busy)
            void this.send();
    }
    async send() {
        this.busy = true;
        while (this.latest) {
            const state = this.latest;
            this.latest = undefined;
            try {
                await this.one(state);
            }
            catch {
                // Away, or not ours to reach: the next report says the same and more.
            }
        }
        this.busy = false;
    }
    async one(state) {
        const key = await this.key;
        const r = { ...state, quota: this.o.quota, client: this.client, number: ++this.number, first: this.first, timeMs: Date.now() };
        // text/plain, so that a browser asks no leave before; keepalive, so that the last one outlives its page.
        const response = await this.fetch(this.o.url, {
            method: "POST", body: await encode(r, key), headers: { "Content-Type": "text/plain" }, keepalive: true, credentials: "omit", signal: AbortSignal.timeout(10_000),
        });
        const body = new Uint8Array(await response.arrayBuffer());
        if (!response.ok)
            return;
        this.first = false;
        const a = await decode(body, key, r);
        if (a)
            this.heard?.(a);
    }
}
