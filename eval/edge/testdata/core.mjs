// Runs core.wasm on a schedule: records of five 64-bit integers, 0 drain unit capacity tick or 1 now cost, and writes
// what became of each take: debt, stamp, remaining, retry, reset, allowed and never.
import { readFileSync, writeSync } from "node:fs";

const [, , module, schedule] = process.argv;
const { instance } = await WebAssembly.instantiate(readFileSync(module), {});
const { memory, at_bucket, take } = instance.exports;
const at = at_bucket();
const bucket = new BigInt64Array(memory.buffer, at, 9);
const flags = new Int32Array(memory.buffer, at + 72, 2);
const raw = readFileSync(schedule);
const steps = new BigInt64Array(raw.buffer, raw.byteOffset, raw.length / 8);
const out = new BigInt64Array(7 * 4096);
let n = 0;
const flush = () => {
  const bytes = new Uint8Array(out.buffer, 0, n * 8);
  for (let from = 0; from < bytes.length; ) {
    from += writeSync(1, bytes, from);
  }
  n = 0;
};
for (let i = 0; i < steps.length; i += 5) {
  if (steps[i] === 0n) {
    bucket.set(steps.subarray(i + 1, i + 5));
    bucket[4] = bucket[5] = 0n;
    continue;
  }
  take(steps[i + 1], steps[i + 2]);
  out.set(bucket.subarray(4, 9), n);
  out[n + 5] = BigInt(flags[0]);
  out[n + 6] = BigInt(flags[1]);
  n += 7;
  if (n === out.length) flush();
}
flush();
