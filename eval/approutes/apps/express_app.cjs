// Routes of Express 4 and 5 in most of their shapes: node express_app.cjs express answers lines "METHOD /target" by who
// serves them. The list of routes is taken from it as from an application that listens, and exports nothing.
const http = require('http');
const readline = require('readline');

const kind = process.env.EXPRESS || 'express';
const express = require(kind);
const five = kind === 'express';
const app = express();
const served = (name) => (req, res) => res.send(name);

app.use(express.json());
app.use('/assets', express.static(__dirname));
app.get('/', served('/'));
app.get('/health', served('/health'));
const items = express.Router();
items.get('/', served('/v1/items'));
items.get('/search', served('/v1/items/search'));
items.get('/:id', served('/v1/items/:id'));
items.get('/new', served('/v1/items/new'));
items.route('/:id/parts/:part').get(served('/v1/items/:id/parts/:part')).put(served('PUT part'));
const v1 = express.Router();
v1.use('/items', items);
v1.get(['/a', '/b'], served('/v1/a or b'));
app.use('/v1', (req, res, next) => next(), v1);
app.all('/any', served('/any'));
app.get('/flights/:from-:to', served('/flights/:from-:to'));
app.get(/^\/re\/(\d+)$/, served('/re/number'));
const admin = express();
admin.get('/users/:id', served('/admin/users/:id'));
app.use('/admin', admin);
const deep = express.Router({ mergeParams: true });
deep.post('/x', served('/deep/:id/x'));
app.use('/deep/:id', deep);
if (five) {
  app.get('/files/*path', served('/files/*path'));
  app.get('/o{/:page}', served('/o{/:page}'));
} else {
  app.get('/files/*', served('/files/*'));
  app.get('/o/:page?', served('/o/:page?'));
  app.get('/n/:id(\\d+)', served('/n/:id(\\d+)'));
  app.get('/n/:slug', served('/n/:slug'));
}

const server = app.listen(0, '127.0.0.1', () => {
  const agent = new http.Agent({ keepAlive: true });
  const ask = (method, path) => new Promise((done) => {
    http.request({ port: server.address().port, method, path, agent }, (res) => {
      let text = '';
      res.on('data', (d) => { text += d; }).on('end', () => done(res.statusCode === 200 && method !== 'OPTIONS' ? text : '-'));
    }).end();
  });
  (async () => {
    for await (const line of readline.createInterface({ input: process.stdin })) console.log(await ask(...line.split(' ')));
    process.exit(0);
  })();
});
