// An application for Express or Fastify that asks Headgate. A field stands for its session.
import { createRequire } from "node:module";
import * as headgate from "../../../clients/js/index.js";

const require = createRequire(process.env.MODULES + "/");
const port = Number(process.env.PORT);
const url = process.env.HEADGATE;
const timeout = 1000 * Number(process.env.TIMEOUT); // milliseconds
const fallback = { deny: headgate.deny, allow: headgate.allow, local: headgate.local({ limit: 2, per: 3600 }) }[process.env.FALLBACK];
const who = (request) => (request.headers.session ? { id: request.headers.session } : undefined);

if (process.env.KIND === "express") {
  const express = require("express");
  // begin: express
  const app = express();
  app.use(headgate.express({ url, user: who, fallback, timeout }));
  // end: express
  app.get("/v1/items/:id", (request, response) => response.send("served " + request.params.id));
  app.listen(port, "127.0.0.1");
} else {
  const fastify = require("fastify");
  // begin: fastify
  const app = fastify();
  app.addHook("onRequest", headgate.fastify({ url, user: who, fallback, timeout }));
  // end: fastify
  app.get("/v1/items/:id", async (request) => "served " + request.params.id);
  await app.listen({ port, host: "127.0.0.1" });
}
