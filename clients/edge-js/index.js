// Limits requests by a module that `headgate edge build --plain` wrote: Limiter decides, worker() and viewerRequest() are
// the ways of Cloudflare Workers and of Lambda@Edge to ask it. What each instance counts, it counts alone.

const EXPOSED = "RateLimit, RateLimit-Policy, Retry-After";
const MOST_TIME = 2n ** 62n;

const problem = (status, title) => ({
  allowed: false,
  status,
  headers: [["content-type", "application/problem+json"], ["cache-control", "no-store"], ["x-content-type-options", "nosniff"]],
  body: JSON.stringify({ type: "about:blank", title, status }),
  wouldDeny: 0,
});

/** Decides about requests, each at once. Its buckets are full at the start, and its memory does not grow. */
export class Limiter {
  #wasm;
  #bytes;
  #now;
  #last = 0n;
  #encoder = new TextEncoder();
  #decoder = new TextDecoder();

  /** The field that holds an API key, in lower case; empty if the module knows none. */
  keyHeader;

  /** module is a WebAssembly.Module, or its bytes. now tells milliseconds; it may stand still or go back, which fills no bucket. */
  constructor(module, { now = () => performance.now() } = {}) {
    if (!(module instanceof WebAssembly.Module)) module = new WebAssembly.Module(module);
    const filter = WebAssembly.Module.imports(module).length > 0;
    this.#wasm = filter ? {} : new WebAssembly.Instance(module).exports;
    this.#now = now;
    if (this.#wasm.start?.(...crypto.getRandomValues(new BigUint64Array(2))) !== 1) {
      throw new TypeError("the module is not whole, or is a filter: want one that `headgate edge build --plain` wrote");
    }
    this.#bytes = new Uint8Array(this.#wasm.memory.buffer);
    this.keyHeader = this.#told(4);
  }

  #told(n) {
    const at = this.#wasm.told(n) >>> 0;
    return this.#decoder.decode(this.#bytes.subarray(at, at + (this.#wasm.length(n) >>> 0)));
  }

  #time() {
    const ms = this.#now();
    // Milliseconds and what is left of one apart: together they are more than a double holds exactly.
    const whole = Math.floor(ms);
    const ns = Number.isFinite(ms) && ms >= 0 ? BigInt(whole) * 1_000_000n + BigInt(Math.floor((ms - whole) * 1e6)) : 0n;
    if (ns > this.#last && ns < MOST_TIME) this.#last = ns;
    return this.#last;
  }

  /**
   * Decides about a request. target is path and query as they are forwarded; address is the client's, from whoever can
   * be believed; key is what stands in the field keyHeader; origin says whether a browser asks for a page.
   */
  decide({ method, target, address = "", key = "", origin = "" }) {
    const wasm = this.#wasm;
    const room = this.#bytes.subarray(wasm.room() >>> 0).subarray(0, wasm.most());
    const lengths = [];
    let at = 0;
    for (const text of [method, target, address, key ?? ""]) {
      const { read, written } = this.#encoder.encodeInto(text, room.subarray(at));
      if (read < text.length) return problem(414, "URI Too Long");
      lengths.push(written);
      at += written;
    }
    let status;
    try {
      status = wasm.decide(...lengths, this.#time());
    } catch (error) {
      if (!(error instanceof WebAssembly.RuntimeError)) throw error;
      return problem(503, "Service Unavailable"); // no fault of the module lets a request pass
    }
    const decision = { allowed: status === 0, status: status || 200, headers: [], body: "", wouldDeny: wasm.would_deny() };
    const add = (name, value) => value && decision.headers.push([name, value]);
    if (status) decision.headers.push(...problem(status, "").headers);
    const quotas = this.#told(0);
    add("ratelimit", quotas);
    add("ratelimit-policy", this.#told(1));
    if (quotas && origin) add("access-control-expose-headers", EXPOSED);
    if (status) {
      const wait = wasm.retry();
      if (wait) add("retry-after", String(wait));
      if (status === 405) decision.headers.push(["allow", this.#told(2)]);
      decision.body = this.#told(3);
    }
    return decision;
  }
}

// The target of a URL as it stands there, since what is limited is what is forwarded.
function targetOf(url) {
  const target = url.replace(/^[^:/?#]+:\/\/[^/?#]*/, "").replace(/#.*$/s, "");
  return target.startsWith("/") ? target : "/" + target;
}

/** The client's address where Cloudflare runs the worker. Anywhere else clients could write the field themselves. */
export const cloudflare = (request) => request.headers.get("cf-connecting-ip") ?? "";

/**
 * A fetch handler that answers what is over its limit, and has next answer the rest. address says whose request it is:
 * cloudflare, or a function of your own; without, worker throws.
 */
export function worker(module, next, { address, now } = {}) {
  if (typeof address !== "function") {
    throw new TypeError(`address is ${address}, want a function of the request, such as cloudflare`);
  }
  let limiter; // made at the first request: before one, Workers give no random numbers
  return async (request, ...rest) => {
    limiter ??= new Limiter(module, now ? { now } : {});
    const { headers } = request;
    const decision = limiter.decide({
      method: request.method,
      target: targetOf(request.url),
      address: (await address(request, ...rest)) ?? "",
      key: limiter.keyHeader && headers.get(limiter.keyHeader),
      origin: headers.get("origin"),
    });
    if (!decision.allowed) {
      return new Response(request.method === "HEAD" ? null : decision.body, decision);
    }
    const response = await next(request, ...rest);
    if (response.status === 101) return response; // a WebSocket
    const told = new Response(response.body, response);
    for (const [name, value] of decision.headers) told.headers.append(name, value);
    return told;
  };
}

/**
 * A handler of Lambda@Edge for viewer requests: it answers what is over its limit, and passes the rest on. CloudFront
 * itself says who the client is. What passes is told no RateLimit, since its response is another function's.
 */
export function viewerRequest(module, { now } = {}) {
  const limiter = new Limiter(module, now ? { now } : {});
  return async (event) => {
    const { request } = event.Records[0].cf;
    const field = (name) => request.headers[name]?.map(({ value }) => value).join(",") ?? "";
    const decision = limiter.decide({
      method: request.method,
      target: request.querystring ? `${request.uri}?${request.querystring}` : request.uri,
      address: request.clientIp,
      key: limiter.keyHeader && field(limiter.keyHeader),
      origin: field("origin"),
    });
    if (decision.allowed) return request;
    const headers = {};
    for (const [key, value] of decision.headers) headers[key] = [{ key, value }];
    const answer = { status: String(decision.status), headers };
    return request.method === "HEAD" ? answer : { ...answer, body: decision.body };
  };
}
