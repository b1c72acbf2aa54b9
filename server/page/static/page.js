// What all views use: the admin API, charts, links.
'use strict';

// --- the admin API

const tokenName = 'headgate-admin-token';

async function ask(method, path, body, headers) {
  const token = sessionStorage.getItem(tokenName);
  const options = { headers: { ...headers, ...(token && { Authorization: 'Bearer ' + token }) }, credentials: 'omit' };
  try {
    return await request(method, path, body, options);
  } catch (err) {
    if (err.status === 401 && token === sessionStorage.getItem(tokenName)) askForToken(); // not for a question that was asked before
    throw err;
  }
}

const get = (path) => ask('GET', path);

// confirmed asks before something is changed, with the reason for the history or what else is to be written down. It
// resolves to that, or to null.
function confirmed(title, lines, action, label = 'Why, for the history (may be empty)') {
  return new Promise((resolve) => {
    const why = el('input', { type: 'text', maxlength: 200, size: 40, autocomplete: 'off' });
    const box = el('dialog', { 'aria-labelledby': 'asked' },
      el('h2', { id: 'asked' }, title), lines.map((l) => el('p', null, l)),
      el('label', null, label, why),
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

// timeOfDay is an axis of times of the day, far enough from each other to be read.
const timeOfDay = {
  space: 56, size: 34, incrs: [1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600],
  values: (_, at) => at.map((t) => new Date(t * 1000).toLocaleTimeString([],
    { hourCycle: 'h23', hour: '2-digit', minute: '2-digit', second: at.length > 1 && at[1] - at[0] < 60 ? '2-digit' : undefined })),
};

// chart draws lines over time, or over another number where options.plain. series: label, color variable, values; dash
// makes a line broken, bars makes columns of it. options.band is a stretch that is marked.
function chart(at, label, times, series, options) {
  if (!window.uPlot) { // comes after what is to be read
    document.getElementById('plots').addEventListener('load', () => at.isConnected && chart(at, label, times, series, options));
    return;
  }
  const about = {
    width: Math.max(260, at.clientWidth), height: (options && options.height) || 220,
    cursor: { y: false }, legend: { live: true },
    scales: { x: options && options.plain ? { time: false } : { range: (_, from, to) => [Math.min(from, to - 300), to] }, y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
    padding: options && options.plain ? undefined : [null, 26, null, null], // half of the last time
    axes: [
      { stroke: color('--dim'), grid: { show: !!(options && options.plain), stroke: color('--line'), width: 1 }, ticks: { stroke: color('--line') }, ...(options && options.plain ? options.x : timeOfDay) },
      { stroke: color('--dim'), grid: { stroke: color('--line'), width: 1 }, ticks: { stroke: color('--line') }, size: 56, ...(options && options.y) },
    ],
    series: [{ ...(options && options.over) }, ...series.map((s) => ({
      label: s.label, value: (_, v) => (v == null ? '' : number(Math.round(v * 100) / 100)), stroke: color(s.color), width: s.bars ? 0 : 2, fill: s.fill ? color(s.color) + (s.bars ? 'cc' : '33') : undefined,
      dash: s.dash, points: { show: !!s.points }, paths: s.bars ? uPlot.paths.bars({ size: [0.8, 100], align: 1 }) : undefined,
    }))],
    hooks: {
      drawClear: [(u) => {
        if (!options || !options.band) return;
        const [from, to] = options.band.map((x) => u.valToPos(x, 'x', true));
        u.ctx.fillStyle = color('--line') + '66';
        u.ctx.fillRect(from, u.bbox.top, to - from, u.bbox.height);
      }],
    },
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

// serverFlag is what a command needs to ask this gateway. Some ask the one at the usual address by themselves.
const serverFlag = () => ' --server ' + location.origin;

function sameElsewhere(command, path, method) {
  const copy = (text) => el('button', {
    click: async () => {
      try { await navigator.clipboard.writeText(text); say('copied'); } catch { say('the browser does not let the page copy', true); }
    },
    'aria-label': 'Copy ' + text,
  }, 'Copy');
  const server = serverFlag();
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
