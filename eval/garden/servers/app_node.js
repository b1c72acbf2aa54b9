// Express 5 and 4, Fastify and Koa, each with the routes of the garden: node app_node.js KIND PORT
const [kind, port] = process.argv.slice(2);
const routes = [
  ['GET', '/v1/items'], ['POST', '/v1/items'], ['GET', '/v1/items/search'], ['GET', '/v1/items/{id}'],
  ['GET', '/v1/items/{id}/parts/{part}'], ['GET', '/v1/admin/users'], ['GET', '/v1/admin/users/{id}'],
  ['GET', '/v1/exports'], ['GET', '/v1/getThing'], ['GET', '/public/{path...}'], ['GET', '/rpc'], ['POST', '/login'],
];
// text is a field of a form as it is compared: escaped, and as JSON where it is a list or an object.
const text = (v = '') => encodeURIComponent(Buffer.from(typeof v === 'string' ? v : JSON.stringify(v)).toString());
// name says which route served: == is how applications compare, and makes ['login'] 'login'.
const name = (method, path, query) => (path === '/rpc' && query.action == 'login' ? 'GET /rpc?action=login' : method + ' ' + path);
const fields = (req, served, user) => ({ 'X-Route': served, 'X-Id': req.headers['x-id'] || '', 'X-Method': req.method, 'X-User': text(user) });

if (kind === 'express' || kind === 'express4') {
  const express = require(kind);
  const app = express();
  app.set('query parser', 'extended'); // the default of 4, and what those who moved to 5 keep
  app.use(express.urlencoded({ extended: true }));
  for (const [method, path] of routes) {
    const tail = kind === 'express' ? '/*path' : '/*';
    const pattern = path.replace('/{path...}', tail).replace(/\{(\w+)\}/g, ':$1');
    app[method.toLowerCase()](pattern, (req, res) => {
      res.set(fields(req, name(method, path, req.query), (req.body || {}).user)).send('ok');
    });
  }
  app.use((err, req, res, next) => res.status(400).send('no'));
  app.listen(port, '127.0.0.1');
} else if (kind === 'fastify') {
  const app = require('fastify')({ exposeHeadRoutes: true });
  app.addContentTypeParser('application/x-www-form-urlencoded', { parseAs: 'string' },
    (req, body, done) => done(null, require('querystring').parse(body)));
  for (const [method, path] of routes) {
    app.route({
      method, url: path.replace('{path...}', '*').replace(/\{(\w+)\}/g, ':$1'),
      handler: (req, reply) => reply.headers(fields(req.raw, name(method, path, req.query), (req.body || {}).user)).send('ok'),
    });
  }
  app.listen({ port: Number(port), host: '127.0.0.1' });
} else {
  const Koa = require('koa');
  const { Router } = require('@koa/router');
  const app = new Koa(), router = new Router();
  app.on('error', () => {});
  app.use(require('koa-bodyparser')());
  for (const [method, path] of routes) {
    const pattern = path.replace('/{path...}', '/*path').replace(/\{(\w+)\}/g, ':$1');
    router[method.toLowerCase()](pattern, (ctx) => {
      ctx.set(fields(ctx.req, name(method, path, ctx.query), (ctx.request.body || {}).user));
      ctx.body = 'ok';
    });
  }
  app.use(router.routes());
  app.listen(port, '127.0.0.1');
}
