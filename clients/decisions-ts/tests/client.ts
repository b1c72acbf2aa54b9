// begin: client
import decisions, { type Answer } from "../index.js";

/** Asks about one request of a user. Whoever repeats the question under the same key pays once. */
export async function mayPass(client: ReturnType<typeof decisions>, user: string, key: string): Promise<Answer> {
  const { data, error } = await client.POST("/v1/check", {
    params: { header: { "Idempotency-Key": key } },
    body: { method: "GET", target: "/v1/items/7", client: "192.0.2.7", user: { id: user } },
  });
  if (error) throw new Error(`no answer: ${error.title}: ${error.detail}`);
  return data as Answer; // of one question
}
// end: client

export async function several(client: ReturnType<typeof decisions>) {
  const one = { method: "GET", target: "/v1/items/8", client: "192.0.2.38" };
  const { data } = await client.POST("/v1/check", { body: { requests: [one, one, one, one] } });
  return data && "decisions" in data ? data.decisions.map((d) => d.allowed) : [];
}

export async function settled(client: ReturnType<typeof decisions>) {
  const { data } = await client.POST("/v1/check", {
    body: { method: "POST", target: "/v1/chat", client: "192.0.2.39", cost: 500, reserve: 60 },
  });
  const reservation = data && "allowed" in data ? data.reservation : undefined;
  if (reservation === undefined) throw new Error("nothing is reserved");
  const all = [];
  for (let i = 0; i < 2; i++) all.push((await client.POST("/v1/settle", { body: { reservation, actual: 120 } })).data);
  return all;
}

// @ts-expect-error: a question has a target
export const incomplete = (client: ReturnType<typeof decisions>) => client.POST("/v1/check", { body: { method: "GET", client: "192.0.2.7" } });
