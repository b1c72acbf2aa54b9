import type { Course } from "./line.js";
/** What browsers keep of a request, with the key of a hash in the place of all that it says. */
export interface HeldRecord {
    id: string;
    print: string;
    key: string;
    arrival: number;
    attempts: number;
    latest: number;
    once: boolean;
    sent: boolean;
}
/** What a page asks a worker, when a request of its failed. */
export interface Question {
    "headgate-pace": "held";
    method: string;
    url: string;
    once: string | undefined;
    body: ArrayBuffer | undefined;
}
/** What it is told: which worker this is, and whether the one before held the request and had not sent it. */
export interface Reply {
    run: string;
    unsent: boolean;
}
export declare class Held {
    private readonly write;
    readonly run: `${string}-${string}-${string}-${string}-${string}`;
    private readonly began;
    private readonly mine;
    private left;
    private returning;
    private release;
    private key;
    /** `write` puts a record on disk, or with undefined takes it off; it resolves when that is done. */
    constructor(write: (id: string, record: HeldRecord | undefined) => Promise<void>);
    /** Takes over what the worker before left. Resolves when all that it held has come back, or will not. */
    take(records: HeldRecord[], key: CryptoKey, queue: (key: string, arrival: number) => void): Promise<void>;
    /** Says what a page asks after one of its requests failed. */
    reply(client: string, q: Question): Promise<Reply>;
    /** Lists a request, in its old position if the worker before had it; undefined if it may not be sent again. */
    hold(client: string, request: Request, body: ArrayBuffer | undefined, key: string): Promise<HeldCourse | undefined>;
    private returned;
    private like;
    /** A hash by which a request is known again. What it says may be secret, and stays out of the list. */
    private print;
}
/** A key that does not leave the browser. */
export declare function newKey(): Promise<CryptoKey>;
/** The course of one request, as the list has it. */
export declare class HeldCourse implements Course {
    private readonly record;
    private readonly write;
    private back;
    readonly ends: () => void;
    constructor(record: HeldRecord, write: (r: HeldRecord) => Promise<void>, back: () => void, ends: () => void);
    get arrival(): number;
    get attempts(): number;
    get leftMs(): number;
    waits(arrival: number, attempts: number, leftMs: number): void;
    goes(): Promise<void> | void;
}
