import type { Client, ClientOptions } from "openapi-fetch";
import type { components, paths } from "./schema.js";

/** A client of the decision service at options.baseUrl, http://127.0.0.1:8082 if it is left out. */
export default function decisions(options?: ClientOptions): Client<paths>;

export type Question = components["schemas"]["Question"];
export type Questions = components["schemas"]["Questions"];
export type Answer = components["schemas"]["Answer"];
export type Answers = components["schemas"]["Answers"];
export type Spent = components["schemas"]["Spent"];
export type Spendings = components["schemas"]["Spendings"];
export type Settled = components["schemas"]["Settled"];
export type Settlements = components["schemas"]["Settlements"];
export type Problem = components["schemas"]["Problem"];
