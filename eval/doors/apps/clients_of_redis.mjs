// Asks by ioredis: one command alone, and a pipeline, on two connections.
import { createRequire } from "node:module";

const { Redis } = createRequire(process.env.MODULES + "/")("ioredis");
const list = (reply) => "[" + reply.join(", ") + "]";
for (const n of [1, 2]) {
  const client = new Redis({ port: Number(process.argv[2]), password: process.argv[3] });
  const command = ["CL.THROTTLE", "ioredis " + n, 2, 3, 3600];
  const replies = [list(await client.call(...command))];
  const pipeline = client.pipeline();
  for (let i = 0; i < 3; i++) pipeline.call(...command);
  for (const [error, reply] of await pipeline.exec()) replies.push(error ? error.message : list(reply));
  replies.push(await client.call("GET", "x").catch((error) => error.message));
  console.log(replies.join(" "));
  client.disconnect();
}
