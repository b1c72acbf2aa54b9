// How a client paces itself: the algorithms of Go's package pace, held to the same vectors
// (pace/testdata/algorithms.json). Times are seconds of one monotonic clock, rates are per second.
/** Whether a pacer shares. */
export function isSharer(p) { return "told" in p; }
const longest = 100 * 365 * 24 * 3600;
const never = Infinity;
const answerWithin = 3;
const reportGap = 1;
const between = (random, low, high) => low + random() * (high - low);
/** Keeps its fields: those that `times` names as seconds from now, and pacers inside it likewise. */
class Kept {
    kept() { return []; }
    inner() { return []; }
    save(now) {
        const self = this;
        const saved = {};
        for (const name of this.times())
            saved[name] = self[name] - now;
        for (const name of this.kept())
            saved[name] = self[name];
        for (const name of this.inner())
            saved[name] = self[name].save(now);
        return saved;
    }
    load(saved, now) {
        const self = this;
        for (const name of this.times())
            if (typeof saved[name] === "number")
                self[name] = saved[name] + now;
        for (const name of this.kept())
            if (typeof saved[name] === typeof self[name])
                self[name] = saved[name];
        for (const name of this.inner()) {
            const inner = saved[name];
            if (inner !== null && typeof inner === "object")
                self[name].load(inner, now);
        }
    }
}
/** How many requests may be unanswered at once when so many were served since a refusal. */
const after = (served) => 1 + Math.floor(served / 8);
/** Pauses the whole queue after a refusal, and finds the length of the pause by trial. */
class AP extends Kept {
    random;
    min;
    max;
    pause;
    until = -longest;
    served = 0;
    most = 1;
    wasRefused = false;
    full = 0;
    constructor(o, random) {
        super();
        this.random = random;
        this.pause = o.first ?? 30;
        this.min = o.min ?? Math.min(4, this.pause);
        this.max = o.max ?? Math.max(90, this.pause);
    }
    times() { return ["until"]; }
    kept() { return ["pause", "served", "most", "wasRefused", "full"]; }
    next(_now) { return this.until; }
    sent(_now) { }
    accepted(_now, _hint) {
        this.served++;
        this.most = Math.max(this.most, this.served);
    }
    refused(now, _attempt, hint) {
        const full = hint.burst * hint.gap;
        if (full > 0)
            this.full = full;
        if (now < this.until)
            return; // one of several that were under way together: the pause has begun
        const enough = Math.min(16, Math.max(1, this.most / 2));
        if (this.wasRefused) {
            if (this.served === 0)
                this.pause = Math.min(this.max, 2 * this.pause);
            else if (this.served >= enough)
                this.pause = Math.max(this.min, (this.pause * 2) / 3);
        }
        if (this.full > 0 && (this.served > 0 || !this.wasRefused))
            this.pause = Math.min(this.pause, this.full);
        this.most = Math.max(1, 0.97 * this.most);
        this.wasRefused = true;
        this.served = 0;
        this.until = now + this.pause * (0.8 + 0.4 * this.random());
    }
    /** 1 after a pause, and one more for every eight that are served: the next refusal then meets few of those that wait. */
    concurrent() { return this.wasRefused ? after(this.served) : 0; }
    rate() { return 0; }
    mode(_now) { return "pause"; }
}
/** Exponential backoff with full jitter: the baseline of the paper. */
class UB extends Kept {
    random;
    longest;
    until = -longest;
    constructor(random) {
        super();
        this.random = random;
        this.longest = between(random, 30, 34);
    }
    times() { return ["until"]; }
    next(_now) { return this.until; }
    sent(_now) { }
    accepted(_now, _hint) { }
    refused(now, attempt, _hint) {
        this.until = now + between(this.random, 0.1, Math.min(this.longest, 2 ** Math.min(attempt, 6) - 1));
    }
    concurrent() { return 1; }
    rate() { return 0; }
    mode(_now) { return "backoff"; }
}
/** UB, and at most so many in any minute. */
class WB extends UB {
    profile;
    last = [];
    most;
    constructor(perMinute, profile, random) {
        super(random);
        this.profile = profile;
        this.most = Math.max(1, Math.floor(perMinute));
    }
    next(now) {
        const at = super.next(now);
        return this.last.length < this.most ? at : Math.max(at, this.last[0] + 60);
    }
    sent(now) { if (this.profile === "published")
        this.add(now); }
    accepted(now, _hint) { if (this.profile !== "published")
        this.add(now); }
    add(now) {
        this.last.push(now);
        if (this.last.length > this.most)
            this.last.shift();
    }
    save(now) { return { ...super.save(now), last: this.last.map((t) => t - now) }; }
    load(saved, now) {
        super.load(saved, now);
        if (Array.isArray(saved.last))
            this.last = saved.last.filter((t) => typeof t === "number").slice(-this.most).map((t) => t + now);
    }
}
const rounded = (rate) => Math.round(rate * 100) / 100;
function filled(o, alpha) {
    const rate = o.rate ?? 40 / 60;
    return {
        bucket: o.bucket ?? 40, rate, minRate: o.minRate ?? 0.01, step: o.step ?? 0.01, alpha: o.alpha ?? alpha, beta: o.beta ?? 1.2, maxRate: o.maxRate ?? 10 * rate,
    };
}
/** The paper's adaptive token bucket (Tables II and III). */
class ATB extends Kept {
    profile;
    random;
    o;
    tokens = 1;
    current;
    congested;
    last;
    constructor(o, profile, now, random) {
        super();
        this.profile = profile;
        this.random = random;
        this.o = filled(o, 1.2);
        this.current = this.o.rate;
        this.congested = o.congested ?? 5;
        this.last = now;
        if (profile === "reference") {
            this.congested *= 60; // the code reads the rate of congestion, which is given per minute, as one per second
            this.current = rounded(this.current);
        }
    }
    times() { return ["last"]; }
    kept() { return ["tokens", "current", "congested"]; }
    at(now) {
        let since = now - this.last;
        if (this.profile === "reference")
            since = rounded(now) - rounded(this.last); // its times have two decimals
        return Math.min(this.o.bucket, this.tokens + Math.max(0, since) * this.current);
    }
    next(now) {
        const tokens = this.at(now);
        return tokens >= 1 ? now : now + (1 - tokens) / this.current;
    }
    sent(now) {
        this.tokens = Math.max(0, this.at(now) - 1);
        this.last = now;
    }
    accepted(_now, _hint) {
        const growth = this.current < this.congested ? this.o.alpha : this.o.beta;
        this.set(Math.min(this.o.maxRate, Math.max(this.current + this.o.step, this.current * growth)));
    }
    refused(now, _attempt, _hint) {
        this.congested = this.current;
        this.tokens = 0;
        let least = this.o.minRate;
        if (this.profile === "corrected")
            this.last = now; // else the time on the network counts as saved up
        else if (this.profile === "published")
            least += (this.random() - 0.5) / 60; // line 24 of Table III
        this.set(Math.max(least, this.current / 2));
    }
    set(rate) { this.current = this.profile === "reference" ? rounded(rate) : rate; }
    concurrent() { return 1; }
    rate() { return this.current; }
    mode(_now) { return "rate"; }
}
function plausible(a) {
    const active = Math.max(1, a.active);
    return {
        ...a, active, sent: Math.max(0, a.sent), waiting: Math.max(0, a.waiting), refused: Math.min(Math.max(0, a.refused), active),
        refusals: Math.max(0, a.refusals), perSecond: a.perSecond > 0 && a.perSecond < 1e9 ? a.perSecond : 0,
    };
}
const nobody = { sent: 0, active: 0, refusals: 0, refused: 0, waiting: 0, lastRefusal: 0, perSecond: 0, partial: false };
const average = (a) => a.sent / Math.max(1, a.active);
/** The paper's assisted adaptive token bucket (Tables II and IV). */
class AATB extends Kept {
    profile;
    random;
    o;
    interval;
    perSecond;
    gate;
    tokens = 1;
    current = 0;
    last;
    notBefore = 0;
    under = false;
    turn; // of the request that waits: what is told later is for the one after it
    changed;
    lastRefused;
    routine;
    asked = never;
    lastTold;
    latest = nobody;
    counts = { sent: 0, accepted: 0, refused: 0 };
    archived = 0;
    waiting = 0;
    alarm = { due: false, open: false, decided: false, at: 0, rate: 0, jitter: 0 };
    constructor(o, profile, now, random) {
        super();
        this.profile = profile;
        this.random = random;
        this.o = filled(o, 1.4);
        this.interval = o.interval ?? 30;
        this.perSecond = o.quota ?? 0.25;
        this.gate = o.gate ?? false;
        this.last = this.lastTold = now;
        this.changed = this.lastRefused = now - longest;
        this.routine = now + this.interval;
        this.set(this.o.rate);
    }
    times() { return ["last", "notBefore", "changed", "lastRefused"]; }
    kept() { return ["tokens", "current"]; }
    at(now) { return Math.min(this.o.bucket, this.tokens + Math.max(0, now - this.last) * this.current); }
    next(now) {
        if (this.alarm.open && !this.alarm.decided) {
            const until = this.alarm.at + answerWithin;
            if (now < until)
                return until;
            this.decide(now, { ...nobody, active: 1 });
        }
        if (this.profile === "published" || this.waiting === 0 || this.under)
            return this.earliest(now);
        if (!this.turn) {
            this.turn = { at: this.earliest(now), tokens: this.at(now), obeyed: this.notBefore };
            this.notBefore = 0;
        }
        return this.turn.at;
    }
    /** When a request that comes now has its token, and may be sent. */
    earliest(now) {
        if (this.profile === "published")
            now = Math.max(now, this.notBefore);
        const tokens = this.at(now);
        return Math.max(tokens < 1 ? now + (1 - tokens) / this.current : now, this.notBefore);
    }
    sent(now) {
        // What could be saved up while it waited for its turn is lost.
        this.tokens = Math.max(0, (this.turn ? this.turn.tokens : this.at(now)) - 1);
        this.last = now;
        if (this.notBefore <= now && !this.turn)
            this.notBefore = 0;
        this.turn = undefined;
        this.under = true;
    }
    accepted(now, _hint) {
        this.under = false;
        this.counts.sent++;
        this.counts.accepted++;
        if (this.alone(now))
            this.set(Math.max(this.current + this.o.step, this.current * this.o.beta));
    }
    alone(now) { return this.profile === "corrected" && now - this.lastTold > 2 * this.interval; }
    refused(now, _attempt, _hint) {
        this.under = false;
        this.turn = undefined;
        this.counts.sent++;
        this.counts.refused++;
        this.lastRefused = now;
        this.alarm = { due: true, open: true, decided: false, at: now, rate: this.current, jitter: 0 };
        if (this.alone(now)) {
            this.alarm.decided = true;
            this.alarm.open = false;
            this.tokens = 0;
            this.last = this.changed = now;
            this.set(Math.max(this.o.minRate, this.current / 2));
        }
        else if (this.profile === "corrected") {
            this.alarm.jitter = this.random();
            this.decide(now, this.latest);
        }
    }
    decide(now, a) {
        const first = !this.alarm.decided;
        this.alarm.decided = true;
        let base = this.alarm.at;
        if (this.profile !== "corrected") { // it was blocked until now
            base = now;
            this.alarm.jitter = this.random();
            this.alarm.open = false;
        }
        let tokens = a.refusals + 1;
        if (this.profile === "published")
            tokens = a.refused;
        else if (this.profile === "corrected")
            tokens = Math.min(a.refusals, a.active) + 1;
        this.set(Math.max(this.o.minRate, this.alarm.rate / (this.load_() < 0.5 * average(a) ? 2 : 3)));
        if (first) {
            this.tokens = 1.1;
            this.last = base;
        }
        this.changed = base;
        let wait = tokens / (a.perSecond > 0 ? a.perSecond : this.perSecond) + this.alarm.jitter;
        if (this.profile === "corrected")
            wait = Math.min(wait, 60);
        this.notBefore = base + wait;
        this.turn = undefined;
    }
    /** What the client sent of late: as much as its last two reports. */
    load_() { return this.archived + this.counts.sent; }
    queue(_now, requests) {
        this.waiting = requests;
        if (requests > 0 || !this.turn)
            return;
        this.notBefore = Math.max(this.notBefore, this.turn.obeyed); // nobody waits for that turn any more
        this.turn = undefined;
    }
    nextReport(now) { return this.alarm.due ? now : this.routine; }
    report(now) {
        if (this.alarm.due) {
            this.alarm.due = false;
            return this.made(true);
        }
        if (now < this.routine)
            return undefined;
        while (this.routine <= now)
            this.routine += this.interval;
        if (now - this.lastRefused < this.interval)
            return undefined;
        this.asked = now;
        return this.made(false);
    }
    made(congested) {
        const r = { congested, ...this.counts, waiting: this.waiting };
        this.archived = this.counts.sent;
        this.counts = { sent: 0, accepted: 0, refused: 0 };
        return r;
    }
    told(now, aggregate) {
        const a = plausible(aggregate);
        this.lastTold = now;
        this.latest = a;
        if (this.alarm.open) {
            this.alarm.open = false;
            if (now - this.alarm.at <= answerWithin) {
                this.decide(now, a);
                return;
            }
            if (!this.alarm.decided)
                this.decide(this.alarm.at + answerWithin, { ...nobody, active: 1 });
        }
        if (this.asked === never || now - this.asked > answerWithin)
            return;
        if (this.profile === "corrected")
            now = this.asked; // else an answer that is quicker than the one before comes within the interval of it
        this.asked = never;
        const told = this.profile === "published" ? a.refused > 0 : a.refusals > 0;
        const believed = !this.gate || now - this.lastRefused <= 2 * this.interval; // else nothing that this client saw agrees
        if (told && believed) {
            this.notBefore = now + this.interval + between(this.random, -2, 2);
        }
        else if (a.partial && this.profile === "corrected") {
            // An aggregator that has just started knows of no refusals, whoever had some.
        }
        else if (now - this.changed >= this.interval) {
            const few = this.load_() < 0.75 * average(a) || (this.profile !== "published" && (a.active === 1 || a.sent === 0));
            this.set(Math.max(this.current + this.o.step, this.current * (few ? this.o.alpha : this.o.beta)));
            this.changed = now;
        }
    }
    set(rate) {
        rate = Math.min(rate, this.o.maxRate);
        this.current = this.profile === "reference" ? rounded(rate) : rate;
    }
    concurrent() { return 1; }
    rate() { return this.current; }
    mode(now) { return this.alone(now) ? "rate" : "shared"; }
}
/** Takes the part of a congested quota that its queue is of all queues. Without news it is AP. */
class XATB extends Kept {
    random;
    pause;
    interval;
    perSecond;
    factor;
    gate;
    due = never;
    reported = -longest;
    alarm = false;
    counts = { sent: 0, accepted: 0, refused: 0 };
    served = 0;
    requests = 0;
    named = 0;
    lastTold = -longest;
    latest = nobody;
    congested = false;
    lastRefused = -longest;
    since = 0;
    phase = 0;
    until = 0;
    constructor(pause, o, random) {
        super();
        this.random = random;
        this.pause = new AP(pause, random);
        this.interval = o.interval ?? 30;
        this.perSecond = o.quota ?? 0;
        this.factor = o.factor ?? 1;
        this.gate = o.gate ?? false;
    }
    times() { return ["until", "since", "lastRefused", "lastTold"]; }
    kept() { return ["congested", "phase", "named", "served"]; }
    inner() { return ["pause"]; }
    save(now) { return { ...super.save(now), latest: { ...this.latest } }; }
    load(saved, now) {
        super.load(saved, now);
        if (saved.latest !== null && typeof saved.latest === "object")
            this.latest = plausible({ ...nobody, ...saved.latest });
    }
    quota() { return this.latest.perSecond > 0 ? this.latest.perSecond : this.perSecond; }
    fresh(now) { return now - this.lastTold <= 2 * this.interval && this.quota() > 0; }
    rate() { return this.congested ? this.share() : 0; }
    /** At least a tenth of an equal share, whatever the others claim. */
    share() {
        const all = this.factor * this.quota();
        const own = Math.max(1, this.named); // as the others' queues: as long as it was said to be
        const others = Math.max(0, this.latest.waiting - this.named);
        return Math.min(all, Math.max((all * own) / (own + others), all / (10 * Math.max(1, this.latest.active))));
    }
    next(now) {
        if (!this.fresh(now))
            return this.pause.next(now);
        return this.congested ? Math.max(this.until, this.since + this.phase / this.share()) : this.until;
    }
    sent(now) {
        this.pause.sent(now);
        this.since = now;
        this.phase = 1;
    }
    accepted(now, hint) {
        this.counts.sent++;
        this.counts.accepted++;
        this.served++;
        this.pause.accepted(now, hint);
    }
    refused(now, attempt, hint) {
        this.counts.sent++;
        this.counts.refused++;
        this.lastRefused = this.due = now;
        this.served = 0;
        this.alarm = true;
        if (!this.fresh(now)) {
            this.congested = true;
            this.pause.refused(now, attempt, hint);
            return;
        }
        this.congest(now);
        this.until = this.since = now + (2 + 2 * this.random()) / this.quota(); // its turns go on from there
    }
    congest(now) {
        if (this.congested)
            return;
        this.congested = true;
        this.since = now;
        this.phase = this.random();
    }
    queue(now, requests) {
        if (this.requests === 0 && requests > 0)
            this.due = Math.min(this.due, Math.max(now, this.reported + reportGap));
        // The others may have its share.
        if (this.requests > 0 && requests === 0 && this.congested && this.named > 0)
            this.due = Math.min(this.due, now);
        this.requests = requests;
    }
    nextReport(_now) { return this.due; }
    report(now) {
        if (now < this.due)
            return undefined;
        this.due = never;
        if (this.requests === 0 && !this.alarm && this.named === 0)
            return undefined;
        if (this.requests > 0)
            this.due = now + this.interval;
        // While nothing is held back, all that there is will be gone when others hear of it.
        const r = { congested: this.alarm, ...this.counts, waiting: this.congested ? this.requests : 0 };
        this.counts = { sent: 0, accepted: 0, refused: 0 };
        this.alarm = false;
        this.named = r.waiting;
        this.reported = now;
        return r;
    }
    told(now, a) {
        this.lastTold = now;
        this.latest = plausible(a);
        const recent = a.lastRefusal >= 0 && a.lastRefusal <= 3 * this.interval;
        if (this.latest.waiting <= 1) {
            // Nobody else waits, as far as is known by an aggregator that has watched for a window. A client that was just
            // refused is not told so by its own report.
            if (!a.partial && now >= this.until)
                this.congested = false;
        }
        else if (recent && !(this.gate && now - this.lastRefused > 2 * this.interval))
            this.congest(now);
    }
    /** As with AP: to share is no reason to send all that waits at once. */
    concurrent() { return this.lastRefused > -longest / 2 ? after(this.served) : this.pause.concurrent(); }
    mode(now) { return this.fresh(now) ? "shared" : this.pause.mode(now); }
}
/** How long a request is believed to take to the limiter, at most: what is longer is the time of the server behind it. */
const slowest = 1;
/** Obeys the times that a server reserves or spaces; what else it says is a lower bound of another's pause. */
class HATB extends Kept {
    otherwise;
    random;
    until = -longest;
    most = 1; // until the server has said what it has left; 0 for any number
    marked = -longest;
    window = 0;
    held = false;
    jitter;
    distrust;
    constructor(otherwise, o, random) {
        super();
        this.otherwise = otherwise;
        this.random = random;
        this.jitter = Math.max(0, o.jitter ?? 0.05);
        this.distrust = o.distrust ?? false;
    }
    times() { return ["until", "marked"]; }
    kept() { return ["most", "window", "held"]; }
    inner() { return ["otherwise"]; }
    hinted(now) { return !this.held && now - this.marked <= 2 * (this.window || 60); }
    next(now) { return this.hinted(now) ? Math.max(now, this.until) : Math.max(this.until, this.otherwise.next(now)); }
    sent(now) { this.otherwise.sent(now); }
    relied(h) { return h.slot && h.wait > 0 && !this.distrust; }
    accepted(now, h) {
        this.otherwise.accepted(now, h);
        this.most = h.remaining >= 0 ? Math.max(1, h.remaining) : 0;
        if (h.remaining === 0 && h.wait > 0) {
            this.until = Math.max(this.until, this.keep(now, h));
            this.mark(now, h);
        }
    }
    refused(now, attempt, h) {
        if (this.relied(h)) {
            this.most = 1;
            this.until = Math.max(this.until, this.keep(now, h));
            this.mark(now, h);
            return;
        }
        this.held = true;
        this.otherwise.refused(now, attempt, h);
        if (h.wait > 0)
            this.until = Math.max(this.until, now + h.wait);
    }
    mark(now, h) {
        if (this.relied(h)) {
            this.marked = now;
            this.held = false;
        }
        const full = h.burst * h.gap;
        if (full > 0)
            this.window = Math.min(full, 3600);
    }
    /** When a time of the server begins: it counts from when the limiter decided, at the end of the round trip at the latest. Who comes early is refused. */
    keep(now, h) { return now - Math.max(0, h.roundTrip - slowest) + h.wait + between(this.random, 0, this.jitter); }
    concurrent() {
        const other = this.otherwise.concurrent();
        return this.most === 0 || other === 0 ? this.most + other : Math.min(this.most, other);
    }
    rate() { return this.otherwise.rate(); }
    mode(now) { return this.hinted(now) ? "hints" : this.otherwise.mode(now); }
}
/** HATB over XATB: what the aggregator says goes to the latter. */
class Auto extends HATB {
    shared;
    constructor(shared, o, random) {
        super(shared, o, random);
        this.shared = shared;
    }
    queue(now, requests) { this.shared.queue(now, requests); }
    nextReport(now) { return this.shared.nextReport(now); }
    report(now) { return this.shared.report(now); }
    told(now, a) { this.shared.told(now, a); }
}
/** Starts an algorithm at one quota. `random` returns numbers in [0, 1). */
export function start(a, now, random = Math.random) {
    switch (a.name) {
        case "auto": return new Auto(new XATB(a.pause ?? {}, a.share ?? {}, random), a, random);
        case "hatb": return new HATB(new AP(a.pause ?? {}, random), a, random);
        case "xatb": return new XATB(a.pause ?? {}, a, random);
        case "ap": return new AP(a, random);
        case "ub": return new UB(random);
        case "wb":
            if (!(a.perMinute >= 1))
                throw new RangeError(`perMinute is ${a.perMinute}, want 1 or more`);
            return new WB(a.perMinute, a.profile ?? "corrected", random);
        case "atb": return new ATB(a, a.profile ?? "corrected", now, random);
        case "aatb": return new AATB(a, a.profile ?? "corrected", now, random);
    }
    throw new RangeError(`algorithm is ${JSON.stringify(a.name)}, want auto, hatb, xatb, ap, ub, wb, atb or aatb`);
}
