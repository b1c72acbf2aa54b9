/** What is asked about: target is path and query as they are forwarded, address the client's. */
export interface Question {
  method: string;
  target: string;
  /** With or without a port; all requests without an address share one budget. */
  address?: string;
  /** What stands in the field keyHeader. */
  key?: string | null;
  /** Of a browser, which is told which fields its scripts may read. */
  origin?: string | null;
}

/** What is decided about a request. */
export interface Decision {
  allowed: boolean;
  /** To answer with; 200 where the request may pass. */
  status: number;
  /** Of the answer, or of the response to what passes; names in lower case. */
  headers: [name: string, value: string][];
  /** Of the answer: problem details. */
  body: string;
  /** How many rules in shadow would have denied the request. */
  wouldDeny: number;
}

export interface Options {
  /** Milliseconds; default performance.now. */
  now?: () => number;
}

/** Decides about requests, each at once. Its buckets are full at the start, and its memory does not grow. */
export class Limiter {
  /** It throws a TypeError unless `headgate edge build --plain` wrote the module. */
  constructor(module: WebAssembly.Module | BufferSource, options?: Options);
  readonly keyHeader: string;
  decide(question: Question): Decision;
}

/** The client's address where Cloudflare runs the worker. Anywhere else clients could write the field themselves. */
export function cloudflare(request: Request): string;

/** A fetch handler that answers what is over its limit, and has next answer the rest. */
export function worker<Rest extends unknown[]>(
  module: WebAssembly.Module | BufferSource,
  next: (request: Request, ...rest: Rest) => Response | Promise<Response>,
  options: Options & { address: (request: Request, ...rest: Rest) => string | Promise<string> },
): (request: Request, ...rest: Rest) => Promise<Response>;

/** A handler of Lambda@Edge for viewer requests. */
export function viewerRequest(module: WebAssembly.Module | BufferSource, options?: Options): (event: unknown) => Promise<object>;
