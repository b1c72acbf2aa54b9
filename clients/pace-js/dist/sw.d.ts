/** A service worker that paces what the pages of an origin fetch: all tabs share its queues. */
import { type Options } from "./index.js";
export interface WorkerOptions extends Options {
    /** Which requests are paced; the others, and all navigations, are left to the browser. Default: none are left. */
    match?: (url: URL, request: Request) => boolean;
    /** Default 60,000, at most 240,000: browsers end an event of a worker after five minutes. */
    maxWaitMs?: number;
    /** The name of the database in which queues and pauses outlive the worker. Default "headgate-pace". */
    database?: string;
}
/** Paces from the worker's script. Call it while the script loads. */
export declare function install(options?: WorkerOptions): void;
