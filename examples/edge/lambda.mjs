// A function of Lambda@Edge for viewer requests. limits.wasm, which `headgate edge build --plain -o limits.wasm` wrote,
// is beside it in the package.
// begin: lambda
import { readFileSync } from "node:fs";
import { viewerRequest } from "headgate-edge";

export const handler = viewerRequest(readFileSync(new URL("limits.wasm", import.meta.url)));
// end: lambda
