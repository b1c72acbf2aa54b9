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
export interface State {
    sent: number;
    accepted: number;
    refused: number;
    queue: number;
    congested: boolean;
}
export interface Reporter {
    report(state: State): void;
    heard: ((a: Aggregate) => void) | undefined;
}
export declare const size = 128;
type Bytes = Uint8Array<ArrayBuffer>;
/** The key of one client at one quota. */
export declare function clientKey(secret: Bytes, quota: string, client: bigint): Promise<Bytes>;
export interface Report extends State {
    quota: string;
    client: bigint;
    number: bigint;
    first: boolean;
    timeMs: number;
}
/** A report, signed by the client's key. */
export declare function encode(r: Report, key: Bytes): Promise<Bytes>;
/** The aggregate that answers report `number`, or undefined for anything else. */
export declare function decode(message: Bytes, key: Bytes, r: {
    quota: string;
    client: bigint;
    number: bigint;
}): Promise<Aggregate | undefined>;
/** Reports by HTTP, one report at a time; what fails is forgotten, since counters go on. */
export declare class HTTPReporter implements Reporter {
    private readonly o;
    private readonly fetch;
    heard: ((a: Aggregate) => void) | undefined;
    private readonly client;
    private readonly key;
    private number;
    private first;
    private busy;
    private latest;
    constructor(o: TelemetryOptions, fetch: typeof globalThis.fetch);
    report(state: State): void;
    private send;
    private one;
}
export {};
