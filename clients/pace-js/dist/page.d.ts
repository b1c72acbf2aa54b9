/** A fetch for pages whose requests a service worker paces: it goes on when the browser ends the worker. */
type Fetch = typeof globalThis.fetch;
/**
 * Returns a fetch that survives the end of the page's service worker (headgate-pace/sw). A request that the worker held
 * is taken up by the next one, in its place in the queue, unless it may have been sent and may not be sent twice: then
 * it fails, as it would have. An answer that broke off with the worker is asked for again, and goes on after what was
 * read of it if that is as before. Where no worker is in charge it is the browser's fetch.
 */
export declare function resumingFetch(native?: Fetch): Fetch;
export {};
