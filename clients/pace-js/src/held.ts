// The requests that a worker holds, in the order in which they came, so that the next worker takes them up where a
// killed one left them. Chromium hands a request whose worker ended to the next one, once, whatever its method and
// whether it was sent; other browsers fail it, and a page may ask for it again (page.ts). Either way the next worker
// sees a request that is like one on its list, of the same page.
//
// A request that may not be sent twice is on the list as sent, on disk, before it is.

import { repeatable } from "./hints.js";
import type { Course } from "./line.js";

/** What browsers keep of a request, with the key of a hash in the place of all that it says. */
export interface HeldRecord {
  id: string;
  print: string;
  key: string; // of its quota
  arrival: number;
  attempts: number; // that were refused
  latest: number; // when it is given up, in milliseconds since 1970
  once: boolean; // it may not be sent twice
  sent: boolean; // it may have been, and was not refused since
}

/** What a page asks a worker, when a request of its failed. */
export interface Question { "headgate-pace": "held"; method: string; url: string; once: string | undefined; body: ArrayBuffer | undefined }

/** What it is told: which worker this is, and whether the one before held the request and had not sent it. */
export interface Reply { run: string; unsent: boolean }

/** How long after its start a worker expects what the one before had sent: browsers hand it on at once. */
const handedOnWithin = 10_000;

/** How long a worker waits for all that the one before held, so that what came first goes first. */
const returnWithin = 500;

export class Held {
  readonly run = crypto.randomUUID();
  private readonly began = Date.now();
  private readonly mine = new Map<string, HeldRecord>();
  private left: HeldRecord[] = []; // by the worker before, and not taken up yet
  private returning = 0;
  private release: () => void = () => {};
  private key: Promise<CryptoKey> = newKey();

  /** `write` puts a record on disk, or with undefined takes it off; it resolves when that is done. */
  constructor(private readonly write: (id: string, record: HeldRecord | undefined) => Promise<void>) {}

  /** Takes over what the worker before left. Resolves when all that it held has come back, or will not. */
  async take(records: HeldRecord[], key: CryptoKey, queue: (key: string, arrival: number) => void): Promise<void> {
    this.key = Promise.resolve(key);
    for (const r of records) {
      queue(r.key, r.arrival);
      if (r.latest > this.began) this.left.push(r);
      else void this.write(r.id, undefined);
    }
    this.left.sort((a, b) => a.arrival - b.arrival);
    this.returning = this.left.length;
    if (this.returning === 0) return;
    await new Promise<void>((resolve) => {
      this.release = resolve;
      setTimeout(resolve, returnWithin);
    });
  }

  /** Says what a page asks after one of its requests failed. */
  async reply(client: string, q: Question): Promise<Reply> {
    const same = this.like(await this.print(client, q.method, q.url, q.once, q.body));
    return { run: this.run, unsent: same.length > 0 && same.every((r) => !r.sent) };
  }

  /** Lists a request, in its old position if the worker before had it; undefined if it may not be sent again. */
  async hold(client: string, request: Request, body: ArrayBuffer | undefined, key: string): Promise<HeldCourse | undefined> {
    const once = !repeatable(request);
    const print = await this.print(client, request.method, request.url, request.headers.get("Idempotency-Key") ?? undefined, once ? body : undefined);
    const same = this.like(print);
    const before = same[0];
    if (before) {
      this.left.splice(this.left.indexOf(before), 1);
      if (once && same.some((r) => r.sent)) { // which of those that are alike it is cannot be told
        for (const r of same) r.sent = true;
        void this.write(before.id, undefined);
        this.returned();
        return undefined;
      }
    }
    const record = before ?? { id: crypto.randomUUID(), print, key, arrival: 0, attempts: 0, latest: Infinity, once, sent: false };
    this.mine.set(record.id, record);
    return new HeldCourse(record, (r) => this.write(r.id, r), () => before && this.returned(), () => {
      if (this.mine.delete(record.id)) void this.write(record.id, undefined);
    });
  }

  private returned() {
    if (--this.returning <= 0) this.release();
  }

  private like(print: string): HeldRecord[] {
    if (Date.now() - this.began > handedOnWithin) {
      const late = this.left.filter((r) => r.once && r.sent);
      this.left = this.left.filter((r) => !late.includes(r));
      for (const r of late) void this.write(r.id, undefined);
    }
    return this.left.filter((r) => r.print === print);
  }

  /** A hash by which a request is known again. What it says may be secret, and stays out of the list. */
  private async print(client: string, method: string, url: string, once: string | undefined, body: ArrayBuffer | undefined): Promise<string> {
    const head = new TextEncoder().encode(JSON.stringify([client, method, url, once ?? null, body?.byteLength ?? null]));
    const all = new Uint8Array(head.length + (body?.byteLength ?? 0));
    all.set(head);
    if (body) all.set(new Uint8Array(body), head.length);
    const mac = new Uint8Array(await crypto.subtle.sign("HMAC", await this.key, all));
    return Array.from(mac.subarray(0, 16), (b) => b.toString(16).padStart(2, "0")).join("");
  }
}

/** A key that does not leave the browser. */
export function newKey(): Promise<CryptoKey> {
  return crypto.subtle.generateKey({ name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
}

/** The course of one request, as the list has it. */
export class HeldCourse implements Course {
  constructor(
    private readonly record: HeldRecord, private readonly write: (r: HeldRecord) => Promise<void>,
    private back: () => void, readonly ends: () => void,
  ) {}

  get arrival() { return this.record.arrival; }
  get attempts() { return this.record.attempts; }
  get leftMs() { return this.record.latest - Date.now(); }

  waits(arrival: number, attempts: number, leftMs: number) {
    Object.assign(this.record, { arrival, attempts, latest: Date.now() + leftMs, sent: false });
    void this.write(this.record);
    this.back();
    this.back = () => {};
  }

  goes(): Promise<void> | void {
    this.record.sent = true;
    const written = this.write(this.record);
    if (this.record.once) return written;
  }
}
