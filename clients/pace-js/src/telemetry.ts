// Reports to `headgate telemetry` by HTTP, in the messages that Go's package pace/telemetry describes.

import type { Aggregate } from "./algorithms.js";

/** Where to report, and as whom. A browser gets the key of one client, never the secret. */
export interface TelemetryOptions {
  /** Of the aggregator, such as https://telemetry.example.com/v1/telemetry. */
  url: string;
  quota: string;
  /** The secret of the aggregator, for programs on servers. Each then draws a number of its own. */
  secret?: string;
  /** In its place: what `headgate telemetry key` prints for a client, and the client's number. */
  key?: string;
  client?: string;
}

export interface State { sent: number; accepted: number; refused: number; queue: number; congested: boolean }

export interface Reporter { report(state: State): void; heard: ((a: Aggregate) => void) | undefined }

export const size = 128;
const signed = 112;
const utf8 = new TextEncoder();

type Bytes = Uint8Array<ArrayBuffer>;

async function hmac(key: Bytes): Promise<(message: Bytes) => Promise<Bytes>> {
  const imported = await crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return async (message) => new Uint8Array(await crypto.subtle.sign("HMAC", imported, message));
}

/** The key of one client at one quota. */
export async function clientKey(secret: Bytes, quota: string, client: bigint): Promise<Bytes> {
  const prefix = utf8.encode("headgate telemetry 1\0");
  const message = new Uint8Array(prefix.length + 8 + quota.length);
  message.set(prefix);
  new DataView(message.buffer).setBigUint64(prefix.length, client);
  message.set(utf8.encode(quota), prefix.length + 8);
  return (await hmac(secret))(message);
}

export interface Report extends State { quota: string; client: bigint; number: bigint; first: boolean; timeMs: number }

/** A report, signed by the client's key. */
export async function encode(r: Report, key: Bytes): Promise<Bytes> {
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
export async function decode(message: Bytes, key: Bytes, r: { quota: string; client: bigint; number: bigint }): Promise<Aggregate | undefined> {
  if (message.length !== size || String.fromCharCode(...message.subarray(0, 4)) !== "HGT1" || message[4] !== 2) return undefined;
  const mac = (await (await hmac(key))(message.slice(0, signed))).subarray(0, size - signed);
  let differs = 0;
  mac.forEach((b, i) => { differs |= b ^ message[signed + i]!; });
  const view = new DataView(message.buffer, message.byteOffset, size);
  const quota = String.fromCharCode(...message.subarray(8, 32)).replace(/\0+$/, "");
  if (differs !== 0 || quota !== r.quota || view.getBigUint64(32) !== r.client || view.getBigUint64(40) !== r.number) return undefined;
  const since = view.getUint32(80);
  return {
    sent: view.getUint32(48), refusals: view.getUint32(56), waiting: view.getUint32(60), active: view.getUint32(72), refused: view.getUint32(76),
    lastRefusal: since === 2 ** 32 - 1 ? -1 : since / 1000, perSecond: Number(view.getBigUint64(84)) / 1e6, partial: (message[5]! & 1) === 0,
  };
}

const fromBase64 = (text: string) => Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));

/** Reports by HTTP, one report at a time; what fails is forgotten, since counters go on. */
export class HTTPReporter implements Reporter {
  heard: ((a: Aggregate) => void) | undefined;
  private readonly client: bigint;
  private readonly key: Promise<Bytes>;
  private number = BigInt(Date.now());
  private first = true;
  private busy = false;
  private latest: State | undefined;

  constructor(private readonly o: TelemetryOptions, private readonly fetch: typeof globalThis.fetch) {
    if ((o.secret === undefined) === (o.key === undefined)) throw new TypeError("telemetry: want secret, or key and client");
    if (o.key !== undefined) {
      this.client = BigInt(o.client ?? "");
      this.key = Promise.resolve(fromBase64(o.key));
    } else {
      this.client = crypto.getRandomValues(new BigUint64Array(1))[0]!;
      this.key = clientKey(utf8.encode(o.secret), o.quota, this.client);
    }
    this.key.catch(() => {}); // an insecure page has no crypto.subtle: each report then fails
  }

  report(state: State) {
    this.latest = this.latest ? { ...state, congested: state.congested || this.latest.congested } : state;
    if (!this.busy) void this.send();
  }

  private async send() {
    this.busy = true;
    while (this.latest) {
      const state = this.latest;
      this.latest = undefined;
      try {
        await this.one(state);
      } catch {
        // Away, or not ours to reach: the next report says the same and more.
      }
    }
    this.busy = false;
  }

  private async one(state: State) {
    const key = await this.key;
    const r = { ...state, quota: this.o.quota, client: this.client, number: ++this.number, first: this.first, timeMs: Date.now() };
    // text/plain, so that a browser asks no leave before; keepalive, so that the last one outlives its page.
    const response = await this.fetch(this.o.url, {
      method: "POST", body: await encode(r, key), headers: { "Content-Type": "text/plain" }, keepalive: true, credentials: "omit", signal: AbortSignal.timeout(10_000),
    });
    const body = new Uint8Array(await response.arrayBuffer());
    if (!response.ok) return;
    this.first = false;
    const a = await decode(body, key, r);
    if (a) this.heard?.(a);
  }
}
