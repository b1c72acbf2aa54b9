import type { Hint } from "./hints.js";
/** The reading of the paper (Farkiani, Liu and Crowley, IEEE CCNC 2026), where its text, listings and code differ. */
export type Profile = "corrected" | "published" | "reference";
/** What paces requests, by name, with options. All options have defaults, but `perMinute`. */
export type Algorithm = {
    name: "auto";
    pause?: PauseOptions;
    share?: ShareOptions;
    distrust?: boolean;
    jitter?: number;
} | {
    name: "hatb";
    pause?: PauseOptions;
    distrust?: boolean;
    jitter?: number;
} | ({
    name: "xatb";
    pause?: PauseOptions;
} & ShareOptions) | ({
    name: "ap";
} & PauseOptions) | {
    name: "ub";
} | {
    name: "wb";
    perMinute: number;
    profile?: Profile;
} | ({
    name: "atb";
    congested?: number;
    profile?: Profile;
} & BucketOptions) | ({
    name: "aatb";
    interval?: number;
    quota?: number;
    gate?: boolean;
    profile?: Profile;
} & BucketOptions);
/** Of AP: pauses in seconds. Defaults 30, 4 and 90, for quotas of about one request a second. */
export interface PauseOptions {
    first?: number;
    min?: number;
    max?: number;
}
/** Of XATB: seconds between reports (30), the quota's rate where nobody else knows it, the part of it to use (1). */
export interface ShareOptions {
    interval?: number;
    quota?: number;
    factor?: number;
    gate?: boolean;
}
/** Of ATB and AATB. `maxRate` is 10 times `rate` unless it is given; the paper has no such bound. */
export interface BucketOptions {
    bucket?: number;
    rate?: number;
    minRate?: number;
    step?: number;
    alpha?: number;
    beta?: number;
    maxRate?: number;
}
/** What one client tells the others; counts are since its last report. */
export interface Report {
    congested: boolean;
    sent: number;
    accepted: number;
    refused: number;
    waiting: number;
}
/** What an aggregator makes of the reports on a quota. `lastRefusal` is an age, negative if none is known. */
export interface Aggregate {
    sent: number;
    active: number;
    refusals: number;
    refused: number;
    waiting: number;
    lastRefusal: number;
    perSecond: number;
    partial: boolean;
}
/** The state of an algorithm at one quota. */
export interface Pacer {
    next(now: number): number;
    sent(now: number): void;
    accepted(now: number, hint: Hint): void;
    refused(now: number, attempt: number, hint: Hint): void;
    concurrent(): number;
    rate(): number;
    mode(now: number): string;
    /** What has to be kept to go on later, with times as seconds from now. */
    save(now: number): Record<string, unknown>;
    load(saved: Record<string, unknown>, now: number): void;
}
/** A pacer that shares a quota with others, by way of an aggregator. */
export interface Sharer extends Pacer {
    queue(now: number, requests: number): void;
    nextReport(now: number): number;
    report(now: number): Report | undefined;
    told(now: number, aggregate: Aggregate): void;
}
/** Whether a pacer shares. */
export declare function isSharer(p: Pacer): p is Sharer;
type Random = () => number;
/** Starts an algorithm at one quota. `random` returns numbers in [0, 1). */
export declare function start(a: Algorithm, now: number, random?: Random): Pacer;
export {};
