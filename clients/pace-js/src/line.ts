// The queue of one quota.

import { isSharer, type Aggregate, type Pacer } from "./algorithms.js";
import type { Hint } from "./hints.js";
import type { Reporter } from "./telemetry.js";

/** A request was not sent, because it could not have been in time. */
export class Throttled extends Error {
  override name = "Throttled";
  /** The key of the quota, milliseconds until one of its requests can be sent as far as is known (0: unknown), and why. */
  constructor(readonly key: string, readonly retryAfterMs: number, readonly reason: "queue full" | "too late" | "too many quotas") {
    super(`not sent, quota ${JSON.stringify(key)}: ${reason}${retryAfterMs > 0 ? `, retry after ${(retryAfterMs / 1000).toFixed(3)} s` : ""}`);
  }
}

/** The clock that a queue lives by: seconds, and one timer at a time. */
export interface Clock {
  now(): number;
  /** Calls back after so many seconds; returns what cancels it. What is in the background keeps no process alive. */
  after(seconds: number, call: () => void, background?: boolean): () => void;
}

const longestTimer = 2 ** 31 / 1000 - 1;

export const realClock: Clock = {
  now: () => performance.now() / 1000,
  after(seconds, call, background = false) {
    const id: unknown = setTimeout(call, Math.ceil(Math.min(Math.max(0, seconds), longestTimer) * 1000));
    if (background) (id as { unref?: () => void }).unref?.(); // Node's timers are objects
    return () => clearTimeout(id as number);
  },
};

/** A request in the queue. */
export interface Waiter { priority: number; arrival: number; latest: number }

/** How far a request has come, where that is to outlive what sends it. */
export interface Course {
  /** Its position, and how often it was refused: 0 for one that is new. */
  readonly arrival: number;
  readonly attempts: number;
  /** How long it may still wait, in milliseconds. */
  readonly leftMs: number;
  /** It is in the queue: it was not sent, or whatever was sent was refused. */
  waits(arrival: number, attempts: number, leftMs: number): void;
  /** It is about to be sent, once that is noted. Does not reject. */
  goes(): Promise<void> | void;
}

interface Turn { waiter: Waiter; send: () => void; fail: (error: unknown) => void }

export class Line {
  private readonly waiting: Turn[] = []; // in the order of their turns
  private arrivals = 0;
  private unanswered = 0;
  private users = 0;
  private cancel: (() => void) | undefined;
  private cancelReport: (() => void) | undefined;
  private reserved = -Infinity;
  private attempts = 0;
  private accepted = 0;
  private refused = 0;
  private held = false;

  constructor(
    readonly key: string, readonly pacer: Pacer, private readonly clock: Clock, private readonly maxQueue: number,
    private readonly reporter: Reporter | undefined, private readonly changed: (line: Line) => void,
  ) {
    if (reporter) reporter.heard = (a) => this.told(a);
  }

  state() {
    const now = this.clock.now();
    return {
      key: this.key, waiting: this.waiting.length, unanswered: this.unanswered, attempts: this.attempts, refused: this.refused,
      pauseMs: Math.max(0, this.pacer.next(now) - now) * 1000, rate: this.pacer.rate(), mode: this.pacer.mode(now),
    };
  }

  get idle() { return this.users === 0; }
  get paused() { return this.pacer.next(this.clock.now()) > this.clock.now(); }

  enter() {
    this.users++;
    this.queued();
  }

  leave() {
    this.users--;
    this.queued();
  }

  /** Sends nothing until it is released. */
  hold() { this.held = true; }

  release() {
    this.held = false;
    this.dispatch();
  }

  /** Whoever is new comes after a position that was given before. */
  after(arrival: number) { this.arrivals = Math.max(this.arrivals, arrival); }

  /** How many more requests wait, for a server that reserves times; undefined for others. */
  pending(): number | undefined { return this.clock.now() - this.reserved > 600 ? undefined : this.waiting.length; }

  /** Resolves when it is the waiter's turn. Who waits again, after a refusal, has the place that it had. */
  wait(waiter: Waiter, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const now = this.clock.now();
      if (waiter.arrival === 0) {
        if (this.waiting.length >= this.maxQueue) return reject(this.throttled("queue full", this.pacer.next(now), now));
        waiter.arrival = ++this.arrivals;
      }
      let over = () => {};
      const settle = (done: () => void) => {
        signal?.removeEventListener("abort", aborted);
        over();
        done();
      };
      const turn: Turn = { waiter, send: () => settle(resolve), fail: (error) => settle(() => reject(error)) };
      const aborted = () => this.abandon(turn, signal!.reason);
      signal?.addEventListener("abort", aborted);
      over = this.clock.after(waiter.latest - now, () => this.abandon(turn, this.throttled("too late", this.pacer.next(this.clock.now()), this.clock.now())));
      const at = this.waiting.findIndex((o) => o.waiter.priority < waiter.priority || (o.waiter.priority === waiter.priority && o.waiter.arrival > waiter.arrival));
      this.waiting.splice(at < 0 ? this.waiting.length : at, 0, turn);
      this.dispatch(now);
    });
  }

  private abandon(turn: Turn, error: unknown) {
    const at = this.waiting.indexOf(turn);
    if (at < 0) return;
    this.waiting.splice(at, 1);
    if (this.waiting.length === 0) this.cancel?.();
    turn.fail(error);
  }

  private throttled(reason: Throttled["reason"], at: number, now: number) { return new Throttled(this.key, Math.max(0, at - now) * 1000, reason); }

  /** Gives turns to those at the head of the queue, as many as may go now. */
  dispatch(now = this.clock.now()) {
    while (!this.held && this.waiting.length > 0) {
      const at = this.pacer.next(now);
      if (at > now) {
        for (const late of this.waiting.filter((t) => t.waiter.latest < at)) this.abandon(late, this.throttled("too late", at, now));
        if (this.waiting.length > 0) this.wake(at - now);
        return;
      }
      const most = this.pacer.concurrent();
      if (most > 0 && this.unanswered >= most) return; // the next answer dispatches
      const turn = this.waiting.shift()!;
      this.pacer.sent(now);
      this.unanswered++;
      turn.send();
    }
  }

  private wake(after: number) {
    this.cancel?.();
    this.cancel = this.clock.after(after, () => this.dispatch());
  }

  /** An attempt ended without an answer, or was never made. That says nothing of the quota. */
  unanswer() {
    this.attempts++;
    this.unanswered--;
    this.dispatch();
  }

  answer(attempt: number, status: number, isRefused: boolean, hint: Hint) {
    const now = this.clock.now();
    this.attempts++;
    this.unanswered--;
    if (hint.reserves || hint.slot) this.reserved = now;
    if (isRefused) {
      this.refused++;
      this.pacer.refused(now, attempt, hint);
    } else if (status < 500) { // a server that fails says nothing of its quota
      this.accepted++;
      this.pacer.accepted(now, hint);
    }
    this.changed(this);
    this.dispatch(now);
    this.queued();
  }

  private queued() {
    if (!this.reporter || !isSharer(this.pacer)) return;
    const now = this.clock.now();
    this.pacer.queue(now, this.users);
    this.report(now);
  }

  private report(now: number) {
    if (!this.reporter || !isSharer(this.pacer)) return;
    if (this.pacer.nextReport(now) <= now) {
      const r = this.pacer.report(now);
      if (r) this.reporter.report({ sent: this.accepted + this.refused, accepted: this.accepted, refused: this.refused, queue: r.waiting, congested: r.congested });
    }
    const next = this.pacer.nextReport(now);
    this.cancelReport?.();
    this.cancelReport = next === Infinity ? undefined : this.clock.after(Math.max(0.001, next - now), () => this.report(this.clock.now()), true);
  }

  /** Reports that nothing waits, whatever does: who is about to end takes no share. */
  close() { this.reporter?.report({ sent: this.accepted + this.refused, accepted: this.accepted, refused: this.refused, queue: 0, congested: false }); }

  private told(a: Aggregate) {
    if (!isSharer(this.pacer)) return;
    const now = this.clock.now();
    this.pacer.told(now, a);
    this.dispatch(now);
  }
}
