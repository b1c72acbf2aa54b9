// Prints the routes of an Express application, of version 4 or 5, a line of JSON each: node - ./app.js
// The application is loaded, and does not listen. A router of Express 5 forgets where it is mounted, so this watches it.
const { createRequire } = require('module');
const path = require('path');
const { pathToFileURL } = require('url');

const file = path.resolve(process.argv[2]);
const express = createRequire(file)('express');
const four = express.Router.use !== undefined;
const apps = [];
const write = process.stdout.write.bind(process.stdout);
process.stdout.write = process.stderr.write.bind(process.stderr); // what the application prints goes elsewhere

const router = four ? express.Router : express.Router.prototype;
const stackOf = (app) => ((four ? app._router : app.router) || { stack: [] }).stack;

// use notes at the layers that it adds where they are mounted, and which application is in them.
function watch(object, stack) {
  const use = object.use;
  object.use = function (...args) {
    const first = Array.isArray(args[0]) ? args[0].flat(Infinity)[0] : args[0];
    const mount = typeof first === 'function' ? '/' : args[0];
    const handlers = args.flat(Infinity).filter((a) => typeof a === 'function');
    const before = new Set(stack(this));
    const result = use.apply(this, args);
    stack(this).filter((layer) => !before.has(layer)).forEach((layer, i) => {
      if (layer.mount === undefined || mount !== '/') layer.mount = mount;
      if (handlers[i] && handlers[i].handle && handlers[i].set) layer.app = handlers[i];
    });
    return result;
  };
}
watch(router, (r) => r.stack || []);
watch(express.application, stackOf);
const init = express.application.init;
express.application.init = function (...args) { apps.push(this); return init.apply(this, args); };
express.application.listen = function () { return { close() {}, on() { return this; }, address: () => null }; };

const put = (record) => write(JSON.stringify({ framework: four ? 'express4' : 'express', ...record }) + '\n');
const piece = (p) => (p instanceof RegExp ? { regex: p.source, flags: p.flags } : { text: p });
const under = (before, p) => [...before, ...(p === '/' ? [] : [piece(typeof p === 'string' ? p.replace(/\/$/, '') : p)])];
const all = (p) => [p].flat(Infinity);

function walk(stack, before) {
  for (const layer of stack) {
    if (layer.route) {
      for (const p of all(layer.route.path)) {
        const methods = Object.keys(layer.route.methods).map((m) => m.toUpperCase());
        put({ methods: methods.length > 20 || methods.includes('_ALL') ? [] : methods, path: [...before, piece(p)] }); // all
      }
      continue;
    }
    for (const mount of all(layer.mount === undefined ? '/' : layer.mount)) {
      const inner = under(before, mount);
      if (layer.app) walk(stackOf(layer.app), inner);
      else if (layer.handle.stack) walk(layer.handle.stack, inner);
      else if (layer.name === 'serveStatic' || layer.handle.length < 3) { // a function without next always answers
        const methods = layer.name === 'serveStatic' ? ['GET'] : [];
        if (inner.length) put({ methods, path: [...inner, { text: four ? '/*' : '{/*path}' }] });
        else put({ path: [{ text: '/' }], left: `${layer.name || 'a function'} answers there, whatever the path` });
      }
    }
  }
}

import(pathToFileURL(file)).then(() => {
  for (const app of apps.filter((a) => !a.parent)) walk(stackOf(app), []);
  process.exit(0);
}).catch((e) => { console.error(e); process.exit(1); });
