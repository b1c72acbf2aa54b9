// What a worker holds when it is killed, with a disk that writes late and pages that hand on what they had asked for.
import assert from "node:assert/strict";
import test from "node:test";
import { Held, newKey } from "../dist/held.js";

/** Numbers from 0 to 1, the same for a seed. */
function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A disk: what was written is there when `flush` has been, and what was not is lost. */
class Disk {
  kept = new Map();
  late = [];
  write = (id, record) => new Promise((resolve) => this.late.push(() => {
    if (record) this.kept.set(id, structuredClone(record));
    else this.kept.delete(id);
    resolve();
  }));
  flush() { for (const write of this.late.splice(0)) write(); }
  records() { return structuredClone([...this.kept.values()]); }
}

test("whenever a worker is killed, what may not be sent twice is not, and what was not sent is", async () => {
  const key = await newKey();
  for (let seed = 0; seed < 100; seed++) {
    const draw = random(seed);
    const disk = new Disk();
    // Some are alike, and cannot be told apart.
    const asked = Array.from({ length: 6 }, (_, i) => ({ body: `${Math.floor(draw() * 4)}`, method: draw() < 0.7 ? "POST" : "GET", sends: 0, answered: false, failed: false, first: i }));
    let next = 0;
    for (let kills = 0; kills < 4; kills++) {
      const held = new Held(disk.write);
      void held.take(disk.records(), key, () => {});
      const known = disk.records();
      const open = asked.filter((r) => !r.answered && !r.failed).sort(() => draw() - 0.5);
      const last = kills === 3;
      for (const r of open) {
        const body = new TextEncoder().encode(r.body).buffer;
        const request = new Request(`http://api.test/${r.method === "GET" ? r.body : ""}`, { method: r.method });
        const course = await held.hold("page", request, body, "quota");
        if (!course) {
          r.failed = true;
          assert.ok(r.method === "POST" && asked.some((o) => o.body === r.body && o.goes), `seed ${seed}: it waited, and fails`);
          continue;
        }
        if (course.arrival > 0) assert.ok(known.some((k) => k.arrival === course.arrival));
        course.waits(course.arrival || ++next, 0, 60_000);
        if (draw() < 0.5) disk.flush();
        if (!last && draw() < 0.5) continue; // it still waits when the worker is killed
        const noted = course.goes();
        r.goes = true;
        if (!last && draw() < 0.3) continue; // killed before it is sent, or even before that is noted
        disk.flush();
        await noted;
        r.sends++;
        if (!last && draw() < 0.5) continue; // killed before it is answered
        r.answered = true;
        course.ends();
        if (draw() < 0.5) disk.flush();
      }
      disk.late.length = 0; // the worker is killed
    }
    for (const body of new Set(asked.map((r) => r.body))) {
      const alike = asked.filter((r) => r.method === "POST" && r.body === body);
      const sends = alike.reduce((n, r) => n + r.sends, 0);
      assert.ok(sends <= alike.length, `seed ${seed}: ${sends} sent of ${alike.length} that are alike`);
    }
    assert.ok(asked.every((r) => r.answered || r.failed), `seed ${seed}: one is lost`);
    assert.ok(asked.every((r) => r.method === "POST" || r.answered), `seed ${seed}: a GET is lost`);
  }
});

test("what was held goes first, in its order, and pages are told what was not sent", async () => {
  const disk = new Disk();
  const key = await newKey();
  const held = new Held(disk.write);
  const post = (body) => [new Request("http://api.test/", { method: "POST" }), new TextEncoder().encode(body).buffer];
  for (const [i, body] of ["a", "b", "c"].entries()) {
    const course = await held.hold("page", ...post(body), "quota");
    course.waits(i + 1, i, 60_000);
    if (body === "a") void course.goes();
  }
  disk.flush();
  const next = new Held(disk.write);
  const after = [];
  let all = false;
  void next.take(disk.records(), key, (quota, arrival) => after.push([quota, arrival])).then(() => (all = true));
  assert.deepEqual(after, [["quota", 1], ["quota", 2], ["quota", 3]]);
  // The key of the hashes is that on the disk; `held` made another.
  assert.notEqual((await next.hold("page", ...post("b"), "quota")).arrival, 2);

  const same = new Held(disk.write);
  void same.take([], key, () => {});
  disk.kept.clear();
  for (const [i, body] of ["a", "b", "c"].entries()) {
    const course = await same.hold("page", ...post(body), "quota");
    course.waits(i + 1, i, 60_000);
    if (body === "a") void course.goes();
  }
  disk.flush();
  const third = new Held(disk.write);
  void third.take(disk.records(), key, () => {}).then(() => (all = "third"));
  const asks = (client, body) => third.reply(client, { method: "POST", url: "http://api.test/", once: undefined, body: new TextEncoder().encode(body).buffer });
  assert.deepEqual([(await asks("page", "a")).unsent, (await asks("page", "b")).unsent, (await asks("other", "b")).unsent, (await asks("page", "d")).unsent], [false, true, false, false]);
  const [c, b] = [await third.hold("page", ...post("c"), "quota"), await third.hold("page", ...post("b"), "quota")];
  assert.deepEqual([b.arrival, b.attempts, c.arrival, c.attempts], [2, 1, 3, 2]);
  assert.equal(await third.hold("page", ...post("a"), "quota"), undefined);
  b.waits(2, 1, 60_000);
  c.waits(3, 2, 60_000);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(all, "third"); // as soon as the last has come
  assert.equal((await third.hold("page", ...post("a"), "quota")).arrival, 0); // the user asks once more
});
