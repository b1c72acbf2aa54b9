// Reads requests as Node's server does, by the llhttp that is built into it. Each stream of bytes on standard input has
// its length before it, as four bytes; for each comes a line of JSON with the requests in it, and why no more was read.
'use strict';
process.noDeprecation = true;
const { HTTPParser, methods } = require('_http_common');

function read(stream) {
  const requests = [];
  let request = null;
  const parser = new HTTPParser();
  parser.initialize(HTTPParser.REQUEST, {});
  const start = () => { request = { method: '', target: '', version: '', fields: [], body: [] }; };
  parser[HTTPParser.kOnMessageBegin] = start;
  parser[HTTPParser.kOnHeaders] = (fields, target) => { // many fields come in parts, and trailers so
    request.fields.push(...fields);
    request.target += target;
  };
  parser[HTTPParser.kOnHeadersComplete] = (major, minor, fields, method, target) => {
    if (request === null) start();
    request.version = `${major}.${minor}`;
    request.method = methods[method];
    if (fields !== undefined) request.fields.push(...fields);
    if (target !== undefined) request.target += target;
    return 0;
  };
  parser[HTTPParser.kOnBody] = (piece) => { request.body.push(Buffer.from(piece)); };
  parser[HTTPParser.kOnMessageComplete] = () => {
    request.body = Buffer.concat(request.body).toString('base64');
    requests.push(request);
    request = null;
  };
  const result = parser.execute(stream);
  return { requests, fault: result instanceof Error ? result.code : '' };
}

const input = require('fs').readFileSync(0);
let out = '';
for (let at = 0; at < input.length;) {
  const length = input.readUInt32BE(at);
  out += JSON.stringify(read(input.subarray(at + 4, at + 4 + length))) + '\n';
  at += 4 + length;
}
process.stdout.write(out);
