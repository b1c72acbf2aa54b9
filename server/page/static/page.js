// What all views use: the admin API, elements, charts. Nothing here or in views.js makes HTML of a text: names come from
// clients, and are set as text alone.
'use strict';

const textNode = (text) => document.createTextNode(text);

// el makes an element. Attributes that are functions are listeners; children are elements or texts.
function el(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === 'function') e.addEventListener(name, value);
    else if (value === true) e.setAttribute(name, '');
    else if (value !== false && value !== undefined && value !== null) e.setAttribute(name, value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) e.append(child instanceof Node ? child : textNode(shown(child)));
  }
  return e;
}

// shown is a text without what would say something to the eye that it does not hold: characters that turn the direction
// of what follows, and controls.
function shown(text) {
  return String(text).replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, '\ufffd');
}

function replace(parent, ...children) { parent.replaceChildren(...children.flat().filter(Boolean)); }

// --- the admin API

const tokenName = 'headgate-admin-token';

class Problem extends Error {
  constructor(status, body) {
    super((body && (body.detail || body.title)) || `the gateway answers ${status}`);
    this.status = status;
    this.body = body;
  }
}

async function ask(method, path, body, headers) {
  const options = { method, headers: { ...headers }, cache: 'no-store', credentials: 'omit', redirect: 'error' };
  const token = sessionStorage.getItem(tokenName);
  if (token) options.headers.Authorization = 'Bearer ' + token;
  if (body !== undefined) {
    options.headers['Content-Type'] = 'application/json';
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Problem(0, { detail: 'the gateway does not answer' });
  }
  const kind = answer.headers.get('Content-Type') || '';
  const value = kind.includes('json') ? await answer.json() : await answer.text();
  if (!answer.ok) {
    if (answer.status === 401 && token === sessionStorage.getItem(tokenName)) askForToken(); // not for a question that was asked before
    throw new Problem(answer.status, typeof value === 'string' ? { detail: value } : value);
  }
  if (value && typeof value === 'object') Object.defineProperty(value, 'etag', { value: answer.headers.get('ETag') });
  return value;
}

const get = (path) => ask('GET', path);

// query makes the query of a path.
function query(values) {
  const all = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== '' && value !== undefined && value !== null && value !== false) all.set(name, value);
  }
  const text = all.toString();
  return text ? '?' + text : '';
}

// --- what is said to people

function say(text, bad) {
  const p = el('p', { class: bad ? 'bad' : '' }, text);
  document.getElementById('said').append(p);
  setTimeout(() => p.remove(), bad ? 12000 : 5000);
}

function sayProblem(err) {
  if (err instanceof Problem && err.status === 401) return;
  say(err.message, true);
  if (!(err instanceof Problem)) console.error(err);
}

const whole = new Intl.NumberFormat('en');
const number = (n) => whole.format(n);
const perSecond = (n) => (n === 0 ? '0' : n < 10 ? n.toFixed(1) : number(Math.round(n))) + '/s';
const percent = (part) => (100 * part).toFixed(part > 0 && part < 0.1 ? 2 : 1) + ' %';
const clock = (text) => new Date(text).toLocaleTimeString();
const moment = (text) => new Date(text).toLocaleString();

function seconds(s) {
  if (s < 1) return Math.max(0, Math.round(s * 1000)) + ' ms';
  if (s < 120) return (s < 10 ? s.toFixed(1) : Math.round(s)) + ' s';
  if (s < 7200) return Math.round(s / 60) + ' min';
  return (s / 3600).toFixed(1) + ' h';
}

// cells makes a row of a table; a cell is a text, a number, or an element.
function row(...values) {
  return el('tr', null, values.map((v) => el('td', { class: typeof v === 'number' ? 'number' : v instanceof Node ? '' : 'text' }, typeof v === 'number' ? number(v) : v)));
}

function table(caption, titles, rows) {
  return el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption },
    el('table', null, el('caption', { class: 'visually-hidden' }, caption),
      el('thead', null, el('tr', null, titles.map((t) => el('th', { scope: 'col', class: t.startsWith('#') ? 'number' : '' }, t.replace('#', ''))))),
      el('tbody', null, rows)));
}

// confirm asks before something is changed, with the reason for the history. It resolves to the reason, or to null.
function confirmed(title, lines, action) {
  return new Promise((resolve) => {
    const why = el('input', { type: 'text', maxlength: 200, size: 40, autocomplete: 'off' });
    const box = el('dialog', { 'aria-labelledby': 'asked' },
      el('h2', { id: 'asked' }, title), lines.map((l) => el('p', null, l)),
      el('label', null, 'Why, for the history (may be empty)', why),
      el('div', { class: 'row' },
        el('button', { class: 'main', click: () => end(why.value) }, action),
        el('button', { click: () => end(null) }, 'Cancel')));
    const end = (value) => { box.close(); box.remove(); resolve(value); };
    box.addEventListener('cancel', (e) => { e.preventDefault(); end(null); });
    document.body.append(box);
    box.showModal();
    why.focus();
  });
}

let asking = false;

function askForToken() {
  if (asking) return;
  asking = true;
  const token = el('input', { type: 'password', size: 40, autocomplete: 'off', required: true });
  const box = el('dialog', { 'aria-labelledby': 'token' },
    el('h2', { id: 'token' }, 'This gateway wants an admin token'),
    el('p', null, 'It is kept in this tab, and forgotten when the tab is closed. ', el('code', null, 'headgate admin token create'), ' makes one; what it may do is what its roles say.'),
    el('form', {
      method: 'dialog',
      submit: (e) => {
        e.preventDefault();
        sessionStorage.setItem(tokenName, token.value.trim());
        box.close();
        box.remove();
        asking = false;
        show();
      },
    }, el('label', null, 'Admin token', token), el('button', { class: 'main' }, 'Use it')));
  box.addEventListener('cancel', (e) => e.preventDefault());
  document.body.append(box);
  box.showModal();
}

// --- charts

function color(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

const charts = new Set();

// chart draws lines over time. series: label, color variable, values; dash makes a line broken.
function chart(at, label, times, series, options) {
  const about = {
    width: Math.max(260, at.clientWidth), height: (options && options.height) || 220,
    cursor: { y: false }, legend: { live: true },
    scales: { x: { time: !(options && options.plain) }, y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
    axes: [
      { stroke: color('--dim'), grid: { stroke: color('--line'), width: 1 }, ticks: { stroke: color('--line') }, ...(options && options.x) },
      { stroke: color('--dim'), grid: { stroke: color('--line'), width: 1 }, ticks: { stroke: color('--line') }, size: 56, ...(options && options.y) },
    ],
    series: [{}, ...series.map((s) => ({ label: s.label, stroke: color(s.color), width: 2, fill: s.fill ? color(s.color) + '33' : undefined, dash: s.dash, points: { show: !!s.points } }))],
  };
  const data = [times, ...series.map((s) => s.values)];
  at.setAttribute('role', 'img');
  at.setAttribute('aria-label', label);
  if (at.plot && at.plot.kept === JSON.stringify(series.map((s) => s.label)) && at.plot.width === about.width) {
    at.plot.setData(data);
    return;
  }
  if (at.plot) { at.plot.destroy(); charts.delete(at); }
  at.plot = new uPlot(about, data, at);
  at.plot.kept = JSON.stringify(series.map((s) => s.label));
  charts.add(at);
}

// --- the same elsewhere

function sameElsewhere(command, path, method) {
  const copy = (text) => el('button', {
    click: async () => {
      try { await navigator.clipboard.writeText(text); say('copied'); } catch { say('the browser does not let the page copy', true); }
    },
    'aria-label': 'Copy ' + text,
  }, 'Copy');
  const server = location.origin === 'http://127.0.0.1:8081' ? '' : ' --server ' + location.origin;
  replace(document.getElementById('same'),
    command && el('div', null, 'On the command line: ', el('code', null, command + server), copy(command + server)),
    path && el('div', null, 'As JSON: ', method ? el('code', null, method + ' ' + path) : el('a', { href: path }, path), copy(location.origin + path)));
}

// shell quotes an argument.
const shell = (text) => (/^[\w./:@=,+-]+$/.test(text) ? text : "'" + String(text).replaceAll("'", `'\\''`) + "'");

// --- views and their links

const views = [];
let leave = null;

// every calls a function now and again after each wait, until the view is left; never twice at once.
function every(milliseconds, work) {
  let stopped = false;
  let timer = 0;
  const turn = async () => {
    if (!document.hidden) {
      try { await work(); } catch (err) { if (!stopped) state(err.message, 'bad'); }
    }
    if (!stopped) timer = setTimeout(turn, milliseconds);
  };
  turn();
  return () => { stopped = true; clearTimeout(timer); };
}

function state(text, kind) { replace(document.getElementById('state'), el('span', { class: kind || '' }, text)); }

function parameters() { return new URLSearchParams(location.hash.split('?')[1] || ''); }

function show() {
  const name = (location.hash.slice(2).split('?')[0]) || 'denied';
  const view = views.find((v) => v.name === name) || views[0];
  if (leave) leave();
  replace(document.getElementById('views'), views.map((v, i) =>
    el('a', { href: '#/' + v.name, 'aria-current': v === view ? 'page' : null, title: `key ${i + 1}` }, v.title)));
  document.title = view.title + ' · Headgate';
  const main = document.getElementById('view');
  replace(main);
  replace(document.getElementById('same'));
  const stops = [];
  leave = () => { stops.forEach((s) => s()); charts.clear(); };
  view.show(main, parameters(), (stop) => stops.push(stop));
}

addEventListener('hashchange', show);
addEventListener('DOMContentLoaded', show);
addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName) || document.querySelector('dialog[open]')) return;
  const n = Number(e.key);
  if (n >= 1 && n <= views.length) location.hash = '#/' + views[n - 1].name;
  const search = document.querySelector('main input[type=search]');
  if (e.key === '/' && search) { e.preventDefault(); search.focus(); }
});
addEventListener('resize', () => charts.forEach((at) => at.plot.setSize({ width: Math.max(260, at.clientWidth), height: at.plot.height })));
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', show);
