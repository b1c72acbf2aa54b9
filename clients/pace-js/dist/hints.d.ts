/** What an answer says. `wait`, `gap` and `roundTrip` are seconds, 0 if unknown; `remaining` is -1 if unknown. */
export interface Hint {
    wait: number;
    remaining: number;
    slot: boolean;
    burst: number;
    gap: number;
    reserves: boolean;
    roundTrip: number;
}
/** The part of Headers that is read. */
export interface Fields {
    get(name: string): string | null;
}
/** Milliseconds of an HTTP date in any of its three forms (RFC 9110 section 5.6.7). */
export declare function httpDate(text: string): number | undefined;
/** Reads what an answer says of a quota. What cannot be understood counts as absent. `nowMs` is the wall clock. */
export declare function readHint(fields: Fields, nowMs?: number): Hint;
/** Whether an answer means that a limit was reached. */
export declare function isRefusal(status: number, fields: Fields): boolean;
/** Whether a request may be sent again though it may have been processed. */
export declare function repeatable(request: Request): boolean;
