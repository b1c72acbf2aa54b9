import { install } from "/dist/sw.js";

// begin: sw
install({
  match: (url) => url.pathname.startsWith("/v1/"),
  key: (request) => new URL(request.url).pathname.split("/")[2],
  maxRetryAfterMs: 7_200_000,
});
// end: sw
