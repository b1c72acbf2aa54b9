// What an answer says of a quota, in all dialects that Go's package pace reads (pace/testdata/headers.json).
const longest = 100 * 365 * 24 * 3600;
const seconds = (s) => Math.min(Math.max(0, s), longest);
/** What is longer is no number: patterns take time that grows with the square of a length. */
const longestNumber = 400;
/** A decimal number that is not negative: no signs, exponents, NaN or Infinity. */
function number(text) {
    return text !== null && text.length <= longestNumber && /^(\d+\.?\d*|\.\d+)$/.test(text) ? finite(Number(text)) : undefined;
}
const finite = (n) => (Number.isFinite(n) ? n : undefined);
/** A whole number; what follows a comma or semicolon is dropped: "10, 10;w=1" is 10. */
function count(text) {
    const first = (text ?? "").split(/[,;]/, 1)[0].trim();
    return /^\+?\d{1,18}$/.test(first) ? Number(first) : undefined;
}
const months = "JanFebMarAprMayJunJulAugSepOctNovDec";
/** Milliseconds of an HTTP date in any of its three forms (RFC 9110 section 5.6.7). */
export function httpDate(text) {
    let m = /^\w{3}, (\d\d) (\w{3}) (\d{4}) (\d\d):(\d\d):(\d\d) GMT$/.exec(text);
    let parts = m && [m[3], m[2], m[1], m[4], m[5], m[6]];
    if (!parts && (m = /^\w{6,9}, (\d\d)-(\w{3})-(\d\d) (\d\d):(\d\d):(\d\d) GMT$/.exec(text))) {
        parts = [String(Number(m[3]) + (Number(m[3]) < 69 ? 2000 : 1900)), m[2], m[1], m[4], m[5], m[6]];
    }
    if (!parts && (m = /^\w{3} (\w{3}) ([ \d]\d) (\d\d):(\d\d):(\d\d) (\d{4})$/.exec(text))) {
        parts = [m[6], m[1], m[2], m[3], m[4], m[5]];
    }
    if (!parts)
        return undefined;
    const month = months.indexOf(parts[1]) / 3;
    const [year, , day, hour, minute, second] = parts.map(Number);
    if (!Number.isInteger(month) || month < 0 || day > 31 || hour > 23 || minute > 59 || second > 60)
        return undefined;
    return Date.UTC(year, month, day, hour, minute, second);
}
const units = { ns: 1e-9, us: 1e-6, "µs": 1e-6, ms: 1e-3, s: 1, m: 60, h: 3600 };
/** A duration such as 6m0s, in seconds. */
function duration(text) {
    if (text.length > 100 || !/^\+?((\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h))+$/.test(text))
        return undefined;
    let sum = 0;
    for (const m of text.matchAll(/(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)/g))
        sum += Number(m[1]) * units[m[2]];
    return sum;
}
const rfc3339 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/;
/** A reset in any dialect: seconds from now, a Unix time, a time of RFC 3339, or a duration. */
function until(text, nowMs) {
    const value = (text ?? "").trim();
    const n = number(value);
    if (n !== undefined) {
        if (n >= 1e12)
            return seconds(n / 1000 - nowMs / 1000);
        return n >= 1e9 ? seconds(n - nowMs / 1000) : seconds(n);
    }
    if (rfc3339.test(value)) {
        const at = Date.parse(value);
        return Number.isNaN(at) ? 0 : seconds((at - nowMs) / 1000);
    }
    return seconds(duration(value) ?? 0);
}
const maxItems = 64;
/** A List of RFC 9651 whose members are Strings or Tokens, or undefined. */
function parseList(field) {
    let end = field.length;
    while (end > 0 && field[end - 1] === " ")
        end--;
    let rest = field.slice(0, end).replace(/^ +/, "");
    const match = (pattern) => {
        const m = pattern.exec(rest);
        if (m)
            rest = rest.slice(m[0].length);
        return m ?? undefined;
    };
    const text = () => match(/^"((?:[ !#-[\]-~]|\\["\\])*)"/)?.[1]?.replace(/\\(["\\])/g, "$1");
    const token = () => match(/^[A-Za-z*][A-Za-z0-9!#$%&'*+\-.^_`|~:/]*/)?.[0];
    const value = () => {
        if (rest.startsWith('"')) {
            const t = text();
            return t === undefined ? undefined : { kind: "text", text: t };
        }
        const n = match(/^-?(\d{1,15})(?:\.(\d{1,3}))?(?![\d.])/);
        if (n) {
            if (n[2] !== undefined)
                return n[1].length <= 12 ? { kind: "other" } : undefined;
            return { kind: "integer", integer: Number(n[0]) };
        }
        if (match(/^\?1/))
            return { kind: "true" };
        if (match(/^\?0/) || match(/^:[A-Za-z0-9+/=]*:/) || match(/^@-?\d{1,15}(?![\d.])/) || match(/^%"((?:[ !#-[\]-~]|\\["\\])*)"/))
            return { kind: "other" };
        return token() === undefined ? undefined : { kind: "other" };
    };
    const items = [];
    while (items.length < maxItems) {
        const name = rest.startsWith('"') ? text() : token();
        if (name === undefined)
            return undefined;
        const params = new Map();
        while (match(/^;/)) {
            match(/^ +/);
            const key = match(/^[a-z*][a-z0-9_\-.*]*/)?.[0];
            if (key === undefined)
                return undefined;
            const v = match(/^=/) ? value() : { kind: "true" };
            if (v === undefined)
                return undefined;
            params.set(key, v);
        }
        items.push({ name, params });
        match(/^[ \t]+/);
        if (rest === "")
            return items;
        if (!match(/^,/))
            return undefined;
        match(/^[ \t]+/);
    }
    return undefined;
}
const integer = (item, key) => {
    const v = item?.params.get(key);
    return v?.kind === "integer" ? v.integer : undefined;
};
/** A number of seconds; a Unix time in its place is a fault of the server. */
const delay = (s) => (s >= 1e9 ? 0 : seconds(s));
const legacy = [
    ["ratelimit-remaining", "ratelimit-reset"],
    ["x-ratelimit-remaining", "x-ratelimit-reset"],
    ["x-rate-limit-remaining", "x-rate-limit-reset"],
    ["x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"],
    ["x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"],
    ["anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"],
    ["anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"],
    ["anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"],
    ["anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"],
];
class Reading {
    wait = 0;
    remaining = -1;
    slot = false;
    burst = 0;
    gap = 0;
    reserves = false;
    roundTrip = 0;
    /** Takes in one quota. The longest wait counts, of those that have nothing left. */
    note(left, wait) {
        if (this.remaining < 0 || left < this.remaining)
            this.remaining = left;
        if (left === 0)
            this.wait = Math.max(this.wait, wait);
    }
    rateLimit(field, policies) {
        const items = parseList(field);
        if (!items) {
            this.dictionary(field);
            return;
        }
        this.reserves = policies.some((p) => p.params.get("headgate-reserves")?.kind === "true");
        let least = -1;
        for (const item of items) {
            const renamed = item.params.has("a"); // as the working group proposes (its pull request 166)
            const left = integer(item, renamed ? "a" : "r");
            if (left === undefined || left < 0)
                continue;
            const policy = policies.find((p) => p.name === item.name);
            const unit = policy?.params.get("qu");
            if (unit?.kind === "text" && unit.text !== "" && unit.text !== "requests" && left > 0)
                continue; // so many bytes, or at once
            this.note(left, delay(Math.max(0, integer(item, renamed ? "w" : "t") ?? 0)));
            const slot = integer(item, "headgate-slot");
            if (slot !== undefined && slot >= 0 && left === 0) {
                this.slot = true;
                this.wait = seconds(slot / 1000);
            }
            if (least < 0 || left < least) {
                least = left;
                this.burst = this.gap = 0;
            }
            if (left === least)
                this.describe(policy);
        }
    }
    /** Takes in the policy of a quota that has least left: of several, the one that takes longest to fill. */
    describe(policy) {
        const quota = integer(policy, "q") ?? 0;
        const window = integer(policy, "w") ?? 0;
        if (quota <= 0 || window <= 0)
            return;
        const own = integer(policy, "headgate-burst") ?? 0;
        const burst = own > 0 ? own : quota;
        const gap = window / quota;
        if (burst * gap > this.burst * this.gap) {
            this.burst = burst;
            this.gap = gap;
        }
    }
    /** RateLimit of draft-07: limit=100, remaining=50, reset=5. */
    dictionary(field) {
        let left;
        let wait = 0;
        for (const part of field.split(",")) {
            const at = part.indexOf("=");
            const n = at < 0 ? undefined : count(part.slice(at + 1));
            const name = part.slice(0, Math.max(0, at)).trim();
            if (n === undefined)
                continue;
            if (name === "remaining")
                left = n;
            else if (name === "reset")
                wait = delay(n);
        }
        if (left !== undefined)
            this.note(left, wait);
    }
}
function retryAfter(fields, nowMs) {
    for (const name of ["retry-after-ms", "x-ms-retry-after-ms"]) {
        const ms = number(fields.get(name));
        if (ms !== undefined)
            return seconds(ms / 1000);
    }
    const value = (fields.get("retry-after") ?? "").trim();
    const s = number(value);
    if (s !== undefined)
        return seconds(s);
    const at = httpDate(value);
    return at === undefined ? undefined : seconds((at - nowMs) / 1000);
}
/** Reads what an answer says of a quota. What cannot be understood counts as absent. `nowMs` is the wall clock. */
export function readHint(fields, nowMs = Date.now()) {
    nowMs = httpDate(fields.get("date") ?? "") ?? nowMs; // times of day are by the server's clock
    const h = new Reading();
    h.rateLimit(fields.get("ratelimit") ?? "", parseList(fields.get("ratelimit-policy") ?? "") ?? []);
    for (const [remaining, reset] of legacy) {
        const left = count(fields.get(remaining));
        if (left !== undefined)
            h.note(left, until(fields.get(reset), nowMs));
    }
    const calls = /^(.*?)\/(.*)$/.exec(fields.get("x-shopify-shop-api-call-limit") ?? "");
    const used = count(calls?.[1] ?? null);
    const all = count(calls?.[2] ?? null);
    if (used !== undefined && all !== undefined)
        h.note(Math.max(0, all - used), 0);
    const wait = retryAfter(fields, nowMs);
    if (wait !== undefined && !h.slot)
        h.wait = wait;
    h.wait = Math.min(h.wait, longest);
    return h;
}
const throttling = new Set([
    "ThrottlingException", "Throttling", "ThrottledException", "RequestThrottledException", "TooManyRequestsException",
    "ProvisionedThroughputExceededException", "RequestLimitExceeded",
]);
/** Whether an answer means that a limit was reached. */
export function isRefusal(status, fields) {
    switch (status) {
        case 429: return true;
        case 503: return fields.get("retry-after") !== null;
        case 403: return fields.get("retry-after") !== null || count(fields.get("x-ratelimit-remaining")) === 0;
        case 400: return throttling.has((fields.get("x-amzn-errortype") ?? "").split(":", 1)[0]);
    }
    return false;
}
const idempotent = new Set(["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"]);
/** Whether a request may be sent again though it may have been processed. */
export function repeatable(request) {
    return idempotent.has(request.method) || request.headers.has("Idempotency-Key");
}
