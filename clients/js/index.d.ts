import type { IncomingMessage, ServerResponse } from "node:http";

/** Who the application has logged in; Headgate believes it. */
export interface User {
  id: string | number;
  project?: string;
}

/** A request: target as it stood in the request line, client the address of the connection. */
export interface Question {
  method: string;
  target: string;
  client: string;
  header?: Record<string, string | string[]>;
  user?: { id: string; project?: string };
  identifier?: string;
  /** In tokens; 0 is what the endpoint costs. */
  cost?: number;
  /** Seconds within which the cost is settled. */
  reserve?: number;
}

/** What is decided about a request. */
export interface Decision {
  allowed: boolean;
  /** To answer the client with; 200 where the request may pass. */
  status: number;
  reason: string;
  header?: Record<string, string>;
  problem?: Record<string, unknown>;
  /** In place of problem: the body that a rule has itself, of the type that header says. */
  body?: string;
  endpoint?: string;
  rule?: string;
  remaining?: number;
  /** Seconds. */
  retry_after?: number;
  reset_after?: number;
  /** What settle asks for. */
  reservation?: string;
  expires?: string;
}

export interface Settled {
  status: "settled" | "already_settled" | "reservation_expired" | "no_reservation" | "nothing_reserved";
  reserved: number;
  actual: number;
  uncharged?: number;
}

/** Headgate could not be asked, or did not decide; the message says why. */
export class Unavailable extends Error {}

export interface ClientOptions {
  /** Default http://127.0.0.1:8082. */
  url?: string;
  /** Milliseconds. Default 250. */
  timeout?: number;
}

export class Client {
  constructor(options?: ClientOptions);
  check(question: Question): Promise<Decision>;
  settle(reservation: string, actual: number, options?: { forgive?: boolean }): Promise<Settled>;
}

export type Fallback = (question: Question) => Decision;
export const deny: Fallback;
export const allow: Fallback;
export function local(options: { limit: number; per?: number; burst?: number; most?: number; now?: () => number }): Fallback;

export interface Options<Request> extends ClientOptions {
  client?: Client;
  /** Decides while Headgate cannot be asked. Default deny. */
  fallback?: Fallback;
  user?: (request: Request) => User | null | undefined | Promise<User | null | undefined>;
  cost?: (request: Request) => number | undefined;
  identifier?: (request: Request) => string | undefined;
  log?: (message: string) => void;
}

export function express<Request extends IncomingMessage = IncomingMessage>(
  options?: Options<Request>,
): (request: Request, response: ServerResponse, next: (error?: unknown) => void) => void;

export function fastify<Request = any>(options?: Options<Request>): (request: Request, reply: any) => Promise<unknown>;
