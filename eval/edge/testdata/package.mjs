// Asks the package for JavaScript about requests, one line of JSON each, in each of its ways: what Limiter decides, what
// worker() answers unless a Request cannot have such a method or target, and what viewerRequest() answers.
import { readFileSync, writeFileSync } from "node:fs";
import { Limiter, viewerRequest, worker } from "headgate-edge";

const [, , file, requests, answers] = process.argv;
const bytes = readFileSync(file);
let now = 0;
let address = "";
const clock = { now: () => now };
const limiter = new Limiter(bytes, clock);
const fetch = worker(new WebAssembly.Module(bytes), () => new Response("served"), { ...clock, address: () => address });
const lambda = viewerRequest(bytes, clock);

const fieldsOf = (pairs) => Object.fromEntries(pairs);

async function byWorker({ method, target, key, origin }) {
  if (target.includes("#")) return null; // of no request that comes over a network
  const headers = { "x-api-key": key };
  if (origin) headers.origin = origin;
  let request;
  try {
    request = new Request(`https://api.example${target}`, { method, headers });
  } catch {
    return null;
  }
  if (request.url !== `https://api.example${target}` || request.method !== method) return null;
  const response = await fetch(request);
  const fields = fieldsOf(response.headers);
  const body = await response.text();
  if (response.status === 200) delete fields["content-type"]; // of what was served
  return { status: response.status === 200 ? 0 : response.status, body: response.status === 200 ? "" : body, fields };
}

async function byLambda({ method, target, key, origin }) {
  const at = target.indexOf("?");
  const headers = { "x-api-key": [{ key: "X-Api-Key", value: key }] };
  if (origin) headers.origin = [{ key: "Origin", value: origin }];
  const request = {
    method, clientIp: address, headers,
    uri: at < 0 ? target : target.slice(0, at),
    querystring: at < 0 ? "" : target.slice(at + 1),
  };
  const answer = await lambda({ Records: [{ cf: { request } }] });
  if (answer === request) return { status: 0, body: "", fields: {} };
  const fields = Object.entries(answer.headers).map(([name, [{ key, value }]]) => {
    if (name !== key) throw new Error(`${name} is not ${key}`);
    return [name, value];
  });
  return { status: Number(answer.status), body: answer.body ?? "", fields: fieldsOf(fields) };
}

const out = [];
for (const line of readFileSync(requests, "utf8").split("\n").filter(Boolean)) {
  const asked = JSON.parse(line);
  now = asked.now;
  address = asked.address;
  const d = limiter.decide(asked);
  out.push(JSON.stringify([
    { status: d.allowed ? 0 : d.status, body: d.body, fields: fieldsOf(d.headers) },
    await byWorker(asked),
    await byLambda(asked),
  ]));
}
writeFileSync(answers, out.join("\n"));
