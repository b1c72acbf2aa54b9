/** A fetch that waits its turn: it paces requests to rate-limited APIs, and sends them again when they are refused. */

import { start, type Algorithm } from "./algorithms.js";
import { isRefusal, readHint, repeatable, type Hint } from "./hints.js";
import { Line, realClock, Throttled, type Clock, type Course, type Waiter } from "./line.js";
import { HTTPReporter, type TelemetryOptions } from "./telemetry.js";

export { Throttled } from "./line.js";
export { readHint, isRefusal, type Hint } from "./hints.js";
export type { Algorithm, PauseOptions, ShareOptions, BucketOptions, Profile } from "./algorithms.js";
export type { TelemetryOptions } from "./telemetry.js";

type Fetch = typeof globalThis.fetch;
type Name = "auto" | "hatb" | "xatb" | "ap" | "ub" | "atb" | "aatb";

/** All have defaults. */
export interface Options {
  /** What paces each quota. Default "auto": what the server says, else telemetry, else pauses found by trial. */
  algorithm?: Name | Algorithm;
  /** Names the quota of a request: those of one quota share a queue. Default: the origin. Not a secret, please. */
  key?: (request: Request) => string;
  /** Higher goes first, equal in the order of arrival. */
  priority?: (request: Request) => number;
  /** Requests that may wait for one quota; more fail at once. Default 1000. */
  maxQueue?: number;
  /** Quotas that are remembered. Default 1024. */
  maxQuotas?: number;
  /** How long a request may wait in all. What cannot be sent by then fails as soon as that is known. Default 60,000. */
  maxWaitMs?: number;
  /** The longest wait that a server can ask for; who is told to wait longer gets the refusal. Default 120,000. */
  maxRetryAfterMs?: number;
  /** How often one request is sent before its refusal is final. Default 8. */
  maxAttempts?: number;
  /** The largest body of a Request, in bytes, that is kept to be sent again. Default 65,536. */
  maxReplay?: number;
  /**
   * Whether a server that reserves is told how many requests wait (Headgate-Pending). Default: yes, but in a browser
   * to its own origin only, as another would have to allow the field.
   */
  pending?: boolean;
  telemetry?: (key: string) => TelemetryOptions | undefined;
  onAttempt?: (attempt: Attempt) => void;
  /** What sends. Default: the global fetch. */
  fetch?: Fetch;
  random?: () => number;
  clock?: Clock;
}

/** One request on the network, when it was answered. */
export interface Attempt {
  key: string; number: number; waitedMs: number; roundTripMs: number; status: number; refused: boolean; hint?: Hint; error?: unknown;
}

/** What is known of one quota. */
export type QuotaState = ReturnType<Line["state"]>;

export interface PacedFetch {
  (input: RequestInfo | URL, init?: RequestInit): Promise<Response>;
  quotas(): QuotaState[];
  /** Tells the other clients of each quota that nothing waits here: at the end, or when a page is hidden. */
  close(): void;
}

/** Returns a fetch that paces. Requests that were never sent reject with Throttled; all else is as with fetch. */
export function createFetch(options: Options = {}): PacedFetch {
  const transport = new Transport(options);
  return Object.assign((input: RequestInfo | URL, init?: RequestInit) => transport.fetch(input, init), {
    quotas: () => transport.quotas(), close: () => transport.close(),
  });
}

const maxRefusal = 65_536;

/** What was refused because of a limit was not processed, except perhaps where the server says that it is unavailable. */
function mayRepeat(request: Request, status: number): boolean {
  return status !== 503 || repeatable(request);
}

export class Transport {
  readonly lines = new Map<string, Line>();
  private readonly o;
  private readonly algorithm: Algorithm;
  private held = false;

  constructor(options: Options, private readonly changed: (line: Line) => void = () => {}) {
    const bounds = { maxQueue: 1000, maxQuotas: 1024, maxWaitMs: 60_000, maxRetryAfterMs: 120_000, maxAttempts: 8, maxReplay: 65_536 };
    const wrong: string[] = [];
    for (const name of Object.keys(bounds) as (keyof typeof bounds)[]) {
      const value = options[name];
      if (value === undefined) continue;
      if (typeof value !== "number" || !(value >= 0) || (value < 1 && name !== "maxWaitMs" && name !== "maxReplay")) wrong.push(`${name} is ${String(value)}, want a number above 0`);
      bounds[name] = value;
    }
    if (wrong.length > 0) throw new RangeError(wrong.join("; "));
    this.o = {
      key: (r: Request) => new URL(r.url).origin, priority: () => 0, random: Math.random, clock: realClock, ...options, ...bounds,
      fetch: options.fetch ?? ((input: RequestInfo | URL, init?: RequestInit) => globalThis.fetch(input, init)),
    };
    const a = options.algorithm ?? "auto";
    this.algorithm = typeof a === "string" ? ({ name: a } as Algorithm) : a;
    start(this.algorithm, 0, () => 0); // says what is wrong with it
  }

  quotas(): QuotaState[] { return [...this.lines.values()].map((l) => l.state()); }

  close() { for (const line of this.lines.values()) line.close(); }

  /** Keeps every queue from sending until it is released, so that what comes meanwhile goes in its own order. */
  hold() { this.held = true; }

  release() {
    this.held = false;
    for (const line of this.lines.values()) line.release();
  }

  /** The key of a request's quota. */
  quota(request: Request): string { return this.o.key(request); }

  /** The queue of a quota; undefined if there is no room for another. */
  line(key: string): Line | undefined {
    let line = this.lines.get(key);
    if (line) return line;
    if (this.lines.size >= this.o.maxQuotas && !this.forget()) return undefined;
    const telemetry = this.o.telemetry?.(key);
    line = new Line(
      key, start(this.algorithm, this.o.clock.now(), this.o.random), this.o.clock, this.o.maxQueue,
      telemetry && new HTTPReporter(telemetry, this.o.fetch), this.changed,
    );
    if (this.held) line.hold();
    this.lines.set(key, line);
    return line;
  }

  private forget(): boolean {
    const idle = [...this.lines.values()].filter((l) => l.idle);
    const gone = idle.find((l) => !l.paused) ?? idle[0];
    return gone !== undefined && this.lines.delete(gone.key);
  }

  async fetch(input: RequestInfo | URL, init?: RequestInit, course?: Course): Promise<Response> {
    const request = new Request(input, init);
    const key = this.quota(request);
    const line = this.line(key);
    if (!line) throw new Throttled(key, 0, "too many quotas");
    line.enter();
    try {
      return await this.paced(line, request, await this.replay(request, init), course);
    } finally {
      line.leave();
    }
  }

  private async paced(line: Line, request: Request, again: () => Request | undefined, course?: Course): Promise<Response> {
    const longest = Math.min(this.o.maxWaitMs, course?.leftMs ?? Infinity);
    const waiter: Waiter = { priority: this.o.priority(request), arrival: course?.arrival ?? 0, latest: this.o.clock.now() + longest / 1000 };
    let next = again();
    let refusal: Response | undefined;
    for (let number = 1 + (course?.attempts ?? 0); ; number++) {
      const began = this.o.clock.now();
      try {
        const turn = line.wait(waiter, request.signal);
        course?.waits(waiter.arrival, number - 1, (waiter.latest - began) * 1000);
        await turn;
      } catch (error) {
        if (refusal && error instanceof Throttled) return refusal; // the server's own words say more
        throw error;
      }
      await course?.goes();
      const [response, refused, hint] = await this.attempt(line, next!, number, (this.o.clock.now() - began) * 1000);
      if (!refused || number >= this.o.maxAttempts || hint.wait * 1000 > this.o.maxRetryAfterMs || !mayRepeat(request, response.status)) return response;
      next = again();
      if (!next) return response;
      refusal = await kept(response);
    }
  }

  private async attempt(line: Line, request: Request, number: number, waitedMs: number): Promise<[Response, boolean, Hint]> {
    const pending = line.pending();
    if (pending !== undefined && (this.o.pending ?? ownOrigin(request))) request.headers.set("Headgate-Pending", String(Math.min(pending, 1000)));
    const sent = this.o.clock.now();
    const seen = { key: line.key, number, waitedMs };
    let response: Response;
    try {
      response = await this.o.fetch(request);
    } catch (error) {
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
  private async replay(request: Request, init: RequestInit | undefined): Promise<() => Request | undefined> {
    if (!request.body) {
      // Firefox has no Request.body: there the method says whether there may be one.
      if (request.body !== undefined || request.method === "GET" || request.method === "HEAD") return () => new Request(request);
    }
    const stream = typeof ReadableStream !== "undefined" && init?.body instanceof ReadableStream;
    const bytes = stream ? undefined : await small(request.clone(), this.o.maxReplay);
    if (bytes) return () => new Request(request, { body: bytes });
    let once: Request | undefined = request;
    return () => {
      const r = once;
      once = undefined;
      return r;
    };
  }
}

/** Whether a server can be told more without asking it before: outside of browsers, and at the page's own origin. */
function ownOrigin(request: Request): boolean {
  const here = (globalThis as { location?: { origin?: string } }).location?.origin;
  return here === undefined || new URL(request.url).origin === here;
}

/** The body of a request, or undefined if it is larger than most. */
export async function small(request: Request, most: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
  if (!request.body) {
    const all = new Uint8Array(await request.arrayBuffer());
    return all.length <= most ? all : undefined;
  }
  return read(request.body, most);
}

/** All of a body, or undefined if it is larger than most. */
async function read(body: ReadableStream<Uint8Array>, most: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
  const reader = body.getReader();
  const parts: Uint8Array[] = [];
  let length = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    length += value.length;
    if (length > most) {
      void reader.cancel().catch(() => {}); // the other half of it is sent
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
async function kept(response: Response): Promise<Response> {
  let body: Uint8Array<ArrayBuffer> | undefined;
  try {
    body = response.body ? await read(response.body, maxRefusal) : undefined;
  } catch {
    // It broke off: the status and the fields are what counts.
  }
  const copy = new Response(body?.length ? body : null, { status: response.status, statusText: response.statusText, headers: response.headers });
  Object.defineProperty(copy, "url", { value: response.url });
  return copy;
}
