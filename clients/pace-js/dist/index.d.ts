/** A fetch that waits its turn: it paces requests to rate-limited APIs, and sends them again when they are refused. */
import { type Algorithm } from "./algorithms.js";
import { type Hint } from "./hints.js";
import { Line, type Clock, type Course } from "./line.js";
import { type TelemetryOptions } from "./telemetry.js";
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
    key: string;
    number: number;
    waitedMs: number;
    roundTripMs: number;
    status: number;
    refused: boolean;
    hint?: Hint;
    error?: unknown;
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
export declare function createFetch(options?: Options): PacedFetch;
export declare class Transport {
    private readonly changed;
    readonly lines: Map<string, Line>;
    private readonly o;
    private readonly algorithm;
    private held;
    constructor(options: Options, changed?: (line: Line) => void);
    quotas(): QuotaState[];
    close(): void;
    /** Keeps every queue from sending until it is released, so that what comes meanwhile goes in its own order. */
    hold(): void;
    release(): void;
    /** The key of a request's quota. */
    quota(request: Request): string;
    /** The queue of a quota; undefined if there is no room for another. */
    line(key: string): Line | undefined;
    private forget;
    fetch(input: RequestInfo | URL, init?: RequestInit, course?: Course): Promise<Response>;
    private paced;
    private attempt;
    /** Returns what makes the request, as often as it is sent: undefined once its body cannot be sent again. */
    private replay;
}
/** The body of a request, or undefined if it is larger than most. */
export declare function small(request: Request, most: number): Promise<Uint8Array<ArrayBuffer> | undefined>;
