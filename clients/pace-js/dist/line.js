// The queue of one quota.
import { isSharer } from "./algorithms.js";
/** A request was not sent, because it could not have been in time. */
export class Throttled extends Error {
    key;
    retryAfterMs;
    reason;
    name = "Throttled";
    /** The key of the quota, milliseconds until one of its requests can be sent as far as is known (0: unknown), and why. */
    constructor(key, retryAfterMs, reason) {
        super(`not sent, quota ${JSON.stringify(key)}: ${reason}${retryAfterMs > 0 ? `, retry after ${(retryAfterMs / 1000).toFixed(3)} s` : ""}`);
        this.key = key;
        this.retryAfterMs = retryAfterMs;
        this.reason = reason;
    }
}
const longestTimer = 2 ** 31 / 1000 - 1;
export const realClock = {
    now: () => performance.now() / 1000,
    after(seconds, call, background = false) {
        const id = setTimeout(call, Math.ceil(Math.min(Math.max(0, seconds), longestTimer) * 1000));
        if (background)
            id.unref?.(); // Node's timers are objects
        return () => clearTimeout(id);
    },
};
export class Line {
    key;
    pacer;
    clock;
    maxQueue;
    reporter;
    changed;
    waiting = []; // in the order of their turns
    arrivals = 0;
    unanswered = 0;
    users = 0;
    cancel;
    cancelReport;
    reserved = -Infinity;
    attempts = 0;
    accepted = 0;
    refused = 0;
    held = false;
    constructor(key, pacer, clock, maxQueue, reporter, changed) {
        this.key = key;
        this.pacer = pacer;
        this.clock = clock;
        this.maxQueue = maxQueue;
        this.reporter = reporter;
        this.changed = changed;
        if (reporter)
            reporter.heard = (a) => this.told(a);
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
    after(arrival) { this.arrivals = Math.max(this.arrivals, arrival); }
    /** How many more requests wait, for a server that reserves times; undefined for others. */
    pending() { return this.clock.now() - this.reserved > 600 ? undefined : this.waiting.length; }
    /** Resolves when it is the waiter's turn. Who waits again, after a refusal, has the place that it had. */
    wait(waiter, signal) {
        return new Promise((resolve, reject) => {
            if (signal?.aborted)
                return reject(signal.reason);
            const now = this.clock.now();
            if (waiter.arrival === 0) {
                if (this.waiting.length >= this.maxQueue)
                    return reject(this.throttled("queue full", this.pacer.next(now), now));
                waiter.arrival = ++this.arrivals;
            }
            let over = () => { };
            const settle = (done) => {
                signal?.removeEventListener("abort", aborted);
                over();
                done();
            };
            const turn = { waiter, send: () => settle(resolve), fail: (error) => settle(() => reject(error)) };
            const aborted = () => this.abandon(turn, signal.reason);
            signal?.addEventListener("abort", aborted);
            over = this.clock.after(waiter.latest - now, () => this.abandon(turn, this.throttled("too late", this.pacer.next(this.clock.now()), this.clock.now())));
            const at = this.waiting.findIndex((o) => o.waiter.priority < waiter.priority || (o.waiter.priority === waiter.priority && o.waiter.arrival > waiter.arrival));
            this.waiting.splice(at < 0 ? this.waiting.length : at, 0, turn);
            this.dispatch(now);
        });
    }
    abandon(turn, error) {
        const at = this.waiting.indexOf(turn);
        if (at < 0)
            return;
        this.waiting.splice(at, 1);
        if (this.waiting.length === 0)
            this.cancel?.();
        turn.fail(error);
    }
    throttled(reason, at, now) { return new Throttled(this.key, Math.max(0, at - now) * 1000, reason); }
    /** Gives turns to those at the head of the queue, as many as may go now. */
    dispatch(now = this.clock.now()) {
        while (!this.held && this.waiting.length > 0) {
            const at = this.pacer.next(now);
            if (at > now) {
                for (const late of this.waiting.filter((t) => t.waiter.latest < at))
                    this.abandon(late, this.throttled("too late", at, now));
                if (this.waiting.length > 0)
                    this.wake(at - now);
                return;
            }
            const most = this.pacer.concurrent();
            if (most > 0 && this.unanswered >= most)
                return; // the next answer dispatches
            const turn = this.waiting.shift();
            this.pacer.sent(now);
            this.unanswered++;
            turn.send();
        }
    }
    wake(after) {
        this.cancel?.();
        this.cancel = this.clock.after(after, () => this.dispatch());
    }
    /** An attempt ended without an answer, or was never made. That says nothing of the quota. */
    unanswer() {
        this.attempts++;
        this.unanswered--;
        this.dispatch();
    }
    answer(attempt, status, isRefused, hint) {
        const now = this.clock.now();
        this.attempts++;
        this.unanswered--;
        if (hint.reserves || hint.slot)
            this.reserved = now;
        if (isRefused) {
            this.refused++;
            this.pacer.refused(now, attempt, hint);
        }
        else if (status < 500) { // a server that fails says nothing of its quota
            this.accepted++;
            this.pacer.accepted(now, hint);
        }
        this.changed(this);
        this.dispatch(now);
        this.queued();
    }
    queued() {
        if (!this.reporter || !isSharer(this.pacer))
            return;
        const now = this.clock.now();
        this.pacer.queue(now, this.users);
        this.report(now);
    }
    report(now) {
        if (!this.reporter || !isSharer(this.pacer))
            return;
        if (this.pacer.nextReport(now) <= now) {
            const r = this.pacer.report(now);
            if (r)
                this.reporter.report({ sent: this.accepted + this.refused, accepted: this.accepted, refused: this.refused, queue: r.waiting, congested: r.congested });
        }
        const next = this.pacer.nextReport(now);
        this.cancelReport?.();
        this.cancelReport = next === Infinity ? undefined : this.clock.after(Math.max(0.001, next - now), () => this.report(this.clock.now()), true);
    }
    /** Reports that nothing waits, whatever does: who is about to end takes no share. */
    close() { this.reporter?.report({ sent: this.accepted + this.refused, accepted: this.accepted, refused: this.refused, queue: 0, congested: false }); }
    told(a) {
        if (!isSharer(this.pacer))
            return;
        const now = this.clock.now();
        this.pacer.told(now, a);
        this.dispatch(now);
    }
}
