// Asks Headgate whether requests may pass: express() and fastify() make middleware, Client asks from anywhere. What is
// decided while Headgate cannot be asked is a fallback: deny, allow, or one that local() makes.
import { isIPv6 } from "node:net";

const DEFAULT_URL = "http://127.0.0.1:8082";
const DEFAULT_TIMEOUT = 250; // milliseconds

/** Headgate could not be asked, or did not decide; the message says why. */
export class Unavailable extends Error {}

/** Spares requests the wait for a service that is away: after three failures in a row it is asked once a second. */
class Breaker {
  #failures = 0;
  #again = 0;

  ask() {
    if (this.#failures < 3) return;
    const now = performance.now();
    if (now < this.#again) throw new Unavailable("Headgate has failed three times in a row, and is asked once a second");
    this.#again = now + 1000;
  }

  told(ok) {
    this.#failures = ok ? 0 : this.#failures + 1;
    if (!ok) this.#again = performance.now() + 1000;
  }
}

/** Asks the decision service. */
export class Client {
  #url;
  #timeout;
  #breaker = new Breaker();

  constructor({ url = DEFAULT_URL, timeout = DEFAULT_TIMEOUT } = {}) {
    this.#url = url.replace(/\/+$/, "");
    this.#timeout = timeout;
  }

  /** Whether a request may pass. It rejects with Unavailable if that is not known. */
  check(question) {
    return this.#post("/v1/check", question);
  }

  /** Says what a request has cost that was reserved for. Repeat it after Unavailable: it counts once. */
  settle(reservation, actual, { forgive = false } = {}) {
    return this.#post("/v1/settle", { reservation, actual, forgive });
  }

  async #post(path, body) {
    this.#breaker.ask();
    let response, text;
    try {
      response = await fetch(this.#url + path, {
        method: "POST",
        body: JSON.stringify(body),
        headers: { "content-type": "application/json" },
        redirect: "error",
        signal: AbortSignal.timeout(this.#timeout),
      });
      text = await response.text();
    } catch (error) {
      this.#breaker.told(false);
      throw new Unavailable(`Headgate did not answer: ${error.cause?.code ?? error.name}`);
    }
    let answer;
    try {
      answer = JSON.parse(text);
    } catch {
      answer = undefined;
    }
    // A question that is refused says nothing against the service.
    this.#breaker.told(answer !== undefined && response.status < 500);
    if (response.status !== 200 || answer === undefined) {
      throw new Unavailable(`Headgate answered ${response.status}: ${answer?.detail ?? "no JSON"}`);
    }
    return answer;
  }
}

// The body of a refusal: what a rule says itself, or problem details.
const bodyOf = (decided) => decided.body ?? JSON.stringify(decided.problem ?? {});

const refusal = (status, reason, title, detail, after) => ({
  allowed: false,
  status,
  reason,
  retry_after: after,
  header: { "Retry-After": String(after), "Content-Type": "application/problem+json", "Cache-Control": "no-store" },
  problem: { type: "about:blank", title, status, detail },
});

/** Nothing passes: 503, to be tried again in five seconds. */
export const deny = () => refusal(503, "unavailable", "Limits unavailable", "The limits cannot be checked at the moment.", 5);

/** Everything passes, without any limit. */
export const allow = () => ({ allowed: true, status: 200, reason: "unavailable", header: {} });

/**
 * A token bucket for each user or address, in this process: limit tokens come in per seconds, and burst of them are held.
 * It bounds an outage, and is not the limit: it knows no endpoints, and each process has its own.
 */
export function local({ limit, per = 1, burst = Math.max(1, limit), most = 10_000, now = () => performance.now() / 1000 }) {
  if (!(limit > 0 && per > 0 && burst >= 1 && most >= 1)) throw new RangeError("limit and per have to be above 0, burst and most 1 or more");
  const rate = limit / per;
  const fullAt = new Map(); // when each bucket is full again, the longest unused first
  return (question) => {
    const who = whoOf(question);
    const t = now();
    const full = Math.max(t, fullAt.get(who) ?? t) + 1 / rate;
    const wait = full - t - burst / rate;
    if (wait > 1e-9) return refusal(429, "over_limit", "Quota exceeded", "Limit while limits cannot be checked.", Math.max(1, Math.ceil(wait)));
    fullAt.delete(who);
    fullAt.set(who, full);
    if (fullAt.size > most) fullAt.delete(fullAt.keys().next().value);
    return allow();
  };
}

function whoOf({ user, client }) {
  if (user) return JSON.stringify([user.project ?? "", user.id]);
  const address = client.replace(/%.*$/, "").toLowerCase();
  if (!isIPv6(address)) return address;
  const mapped = address.match(/^::ffff:(\d+\.\d+\.\d+\.\d+)$/);
  if (mapped) return mapped[1];
  // One customer has a /64 at least: the first four groups, written out.
  const [before, after = ""] = address.split("::");
  const groups = before === "" ? [] : before.split(":");
  if (address.includes("::")) {
    const rest = after === "" ? [] : after.split(":");
    const width = rest.reduce((n, g) => n + (g.includes(".") ? 2 : 1), 0);
    while (groups.length + width < 8) groups.push("0");
    groups.push(...rest);
  }
  return groups.slice(0, 4).map((g) => parseInt(g, 16).toString(16)).join(":");
}

// The lines of all fields but cookies, as they came.
function fieldsOf(request) {
  const fields = Object.create(null);
  for (let i = 0; i < request.rawHeaders.length; i += 2) {
    const name = request.rawHeaders[i].toLowerCase();
    if (name !== "cookie" && name[0] !== ":") (fields[name] ??= []).push(request.rawHeaders[i + 1]);
  }
  return fields;
}

function deciderOf({ url, timeout, client = new Client({ url, timeout }), fallback = deny, user = () => undefined, cost = () => 0, identifier = () => "", log = console.warn }) {
  let told = -Infinity;
  return async (framework, raw, target) => {
    const who = await user(framework);
    const question = {
      method: raw.method,
      target,
      client: raw.socket.remoteAddress ?? "127.0.0.1",
      header: fieldsOf(raw),
      identifier: identifier(framework) ?? "",
      cost: cost(framework) ?? 0,
    };
    if (who != null) question.user = { id: String(who.id), project: who.project ?? "" };
    try {
      return await client.check(question);
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error;
      if (performance.now() - told >= 1000) { // an outage is no reason to fill a disk
        told = performance.now();
        log(error.message);
      }
      return fallback(question);
    }
  };
}

/**
 * Middleware for Express. It belongs behind what logs in, and before all else. user, cost and identifier are told the
 * request of Express.
 */
export function express(options = {}) {
  const decide = deciderOf(options);
  return (request, response, next) => {
    decide(request, request, request.originalUrl).then((decided) => {
      for (const [name, value] of Object.entries(decided.header ?? {})) response.setHeader(name, value);
      if (decided.allowed === true) return next();
      response.statusCode = decided.status;
      response.end(request.method === "HEAD" ? undefined : bodyOf(decided));
    }, next);
  };
}

/**
 * A hook for Fastify, for onRequest or, behind what logs in, preHandler. user, cost and identifier are told the request
 * of Fastify.
 */
export function fastify(options = {}) {
  const decide = deciderOf(options);
  return async (request, reply) => {
    const decided = await decide(request, request.raw, request.raw.url);
    for (const [name, value] of Object.entries(decided.header ?? {})) reply.header(name, value);
    if (decided.allowed === true) return undefined;
    return reply.code(decided.status).send(bodyOf(decided));
  };
}
