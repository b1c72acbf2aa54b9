import { type Pacer } from "./algorithms.js";
import type { Hint } from "./hints.js";
import type { Reporter } from "./telemetry.js";
/** A request was not sent, because it could not have been in time. */
export declare class Throttled extends Error {
    readonly key: string;
    readonly retryAfterMs: number;
    readonly reason: "queue full" | "too late" | "too many quotas";
    name: string;
    /** The key of the quota, milliseconds until one of its requests can be sent as far as is known (0: unknown), and why. */
    constructor(key: string, retryAfterMs: number, reason: "queue full" | "too late" | "too many quotas");
}
/** The clock that a queue lives by: seconds, and one timer at a time. */
export interface Clock {
    now(): number;
    /** Calls back after so many seconds; returns what cancels it. What is in the background keeps no process alive. */
    after(seconds: number, call: () => void, background?: boolean): () => void;
}
export declare const realClock: Clock;
/** A request in the queue. */
export interface Waiter {
    priority: number;
    arrival: number;
    latest: number;
}
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
export declare class Line {
    readonly key: string;
    readonly pacer: Pacer;
    private readonly clock;
    private readonly maxQueue;
    private readonly reporter;
    private readonly changed;
    private readonly waiting;
    private arrivals;
    private unanswered;
    private users;
    private cancel;
    private cancelReport;
    private reserved;
    private attempts;
    private accepted;
    private refused;
    private held;
    constructor(key: string, pacer: Pacer, clock: Clock, maxQueue: number, reporter: Reporter | undefined, changed: (line: Line) => void);
    state(): {
        key: string;
        waiting: number;
        unanswered: number;
        attempts: number;
        refused: number;
        pauseMs: number;
        rate: number;
        mode: string;
    };
    get idle(): boolean;
    get paused(): boolean;
    enter(): void;
    leave(): void;
    /** Sends nothing until it is released. */
    hold(): void;
    release(): void;
    /** Whoever is new comes after a position that was given before. */
    after(arrival: number): void;
    /** How many more requests wait, for a server that reserves times; undefined for others. */
    pending(): number | undefined;
    /** Resolves when it is the waiter's turn. Who waits again, after a refusal, has the place that it had. */
    wait(waiter: Waiter, signal: AbortSignal | undefined): Promise<void>;
    private abandon;
    private throttled;
    /** Gives turns to those at the head of the queue, as many as may go now. */
    dispatch(now?: number): void;
    private wake;
    /** An attempt ended without an answer, or was never made. That says nothing of the quota. */
    unanswer(): void;
    answer(attempt: number, status: number, isRefused: boolean, hint: Hint): void;
    private queued;
    private report;
    /** Reports that nothing waits, whatever does: who is about to end takes no share. */
    close(): void;
    private told;
}
