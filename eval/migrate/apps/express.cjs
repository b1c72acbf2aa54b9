// Decides a trace by express-rate-limit with its store in memory, on a clock of the trace: lines "milliseconds caller" are
// answered by 1 or 0. NODE_PATH is the folder of node_modules; the argument is the limit of a minute.
const { mock } = require('node:test');
mock.timers.enable({ apis: ['Date', 'setInterval', 'setTimeout'], now: 946684800000 });
const { rateLimit } = require('express-rate-limit');

const limiter = rateLimit({ windowMs: 60000, limit: Number(process.argv[2]), validate: false, keyGenerator: (req) => req.ip });
const lines = require('fs').readFileSync(0, 'utf8').trim().split('\n').map((line) => line.split(' '));

(async () => {
  let now = 0;
  for (const [at, ip] of lines) {
    mock.timers.tick(Number(at) - now);
    now = Number(at);
    let passed = 0;
    const res = { headersSent: false, setHeader() {}, append() {}, status() { return this; }, send() {}, on() {} };
    await limiter({ ip, headers: {}, app: { get() {} } }, res, () => { passed = 1; });
    console.log(passed);
  }
})();
