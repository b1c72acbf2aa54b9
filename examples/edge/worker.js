// A Cloudflare Worker before an API. limits.wasm is what `headgate edge build --plain -o limits.wasm` wrote; wrangler
// bundles it as a WebAssembly.Module, and worker.capnp does that for workerd.
// begin: worker
import { cloudflare, worker } from "headgate-edge";
import limits from "./limits.wasm";

const api = (request) => new Response(`served ${new URL(request.url).pathname}\n`);

export default { fetch: worker(limits, api, { address: cloudflare }) };
// end: worker
