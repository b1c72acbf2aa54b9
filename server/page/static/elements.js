// What both pages use, that of operators and that of those who call the API: elements, tables, numbers for people. No
// script here makes HTML of a text: names come from clients, and are set as text alone.
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

class Problem extends Error {
  constructor(status, body) {
    super((body && (body.detail || body.title)) || `the gateway answers ${status}`);
    this.status = status;
    this.body = body;
  }
}

// request asks the gateway, and resolves to what it answers; a Problem if it refuses, or does not answer.
async function request(method, path, body, options) {
  const all = { method, cache: 'no-store', redirect: 'error', ...options };
  if (body !== undefined) {
    all.headers = { ...all.headers, 'Content-Type': 'application/json' };
    all.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(path, all);
  } catch {
    throw new Problem(0, { detail: 'the gateway does not answer' });
  }
  const kind = answer.headers.get('Content-Type') || '';
  const value = kind.includes('json') ? await answer.json() : await answer.text();
  if (!answer.ok) throw new Problem(answer.status, typeof value === 'string' ? { detail: value } : value);
  if (value && typeof value === 'object') Object.defineProperty(value, 'etag', { value: answer.headers.get('ETag') });
  return value;
}

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

const seconds = (s) => inWords(s).replace(' ', '\u00a0'); // on one line

function inWords(s) {
  if (s < 1) return Math.max(0, Math.round(s * 1000)) + ' ms';
  if (s < 120) return (s < 10 ? Number(s.toFixed(1)) : Math.round(s)) + ' s';
  if (s < 7200) return Math.round(s / 60) + ' min';
  if (s < 172800) return String(Number((s / 3600).toFixed(1))) + ' h';
  return String(Number((s / 86400).toFixed(1))) + ' days';
}

// cells makes a row of a table; a cell is a text, a number, or an element.
function row(...values) {
  const kind = (v) => (typeof v === 'number' || (v instanceof Node && v.classList.contains('number')) ? 'number' : v instanceof Node ? '' : 'text');
  return el('tr', { role: 'row' }, values.map((v) => el('td', { class: kind(v), role: 'cell' }, v === '' ? [] : typeof v === 'number' ? number(v) : v)));
}

function table(caption, titles, rows) {
  for (const r of rows) [...r.cells].forEach((cell, i) => { cell.dataset.title = titles[i].replace('#', ''); }); // shown where it is narrow
  return el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption },
    el('table', { role: 'table' }, el('caption', { class: 'visually-hidden' }, caption),
      el('thead', { role: 'rowgroup' }, el('tr', { role: 'row' }, titles.map((t) => el('th', { scope: 'col', role: 'columnheader', class: t.startsWith('#') ? 'number' : '' }, t.replace('#', ''))))),
      el('tbody', { role: 'rowgroup' }, rows)));
}

// --- limits, and what is left of them

const perOf = (rule) => Number(String(rule.per || '1s').replace(/s$/, '')) || 1;

function rate(rule) {
  if (rule.mode === 'allow') return 'no limit';
  if (rule.mode === 'block') return 'blocked';
  if (rule.algorithm === 'concurrency') return `${number(rule.limit)} at once`;
  const per = perOf(rule);
  const requests = (rule.subject || '').startsWith('requests:') ? ' requests' : '';
  const [algorithm, zone] = (rule.algorithm || '').split(':');
  const unit = { 1: 'second', 60: 'minute', 3600: 'hour', 86400: 'day', 604800: 'week', 2592000: algorithm === 'calendar' ? 'month' : '' }[per];
  return `${number(rule.limit)}${requests} per ${unit || seconds(per)}` + (rule.burst && rule.burst !== rule.limit ? `, burst ${number(rule.burst)}` : '') +
    (algorithm === 'calendar' ? ` of the calendar of ${zone || 'UTC'}` : algorithm && algorithm !== 'token_bucket' ? `, as a ${algorithm.replace('_', ' ')}` : '');
}

// budgetTable lists what a caller has left, the emptiest first. action makes what can be done about a budget and one of its
// buckets, which is undefined if nothing is known of any.
function budgetTable(report, action) {
  const part = (b) => (b.left ? b.left.remaining / b.burst : 1);
  const rule = (b, at) => el('span', null, el('code', null, b.rule), at !== b.rule && el('small', null, at === '*' ? 'all endpoints together' : at));
  const cell = (b, l) => el('span', { class: 'left' },
    el('meter', { class: 'meter', min: 0, max: b.burst, low: b.burst / 5, optimum: b.burst, value: Math.max(0, l.remaining), 'aria-label': `${l.remaining} of ${b.burst} left` }),
    ` ${number(l.remaining)} of ${number(b.burst)}`, l.retry_after_seconds && el('small', null, `one in ${seconds(l.retry_after_seconds)}`));
  const rows = [...report.budgets].sort((a, b) => part(a) - part(b)).flatMap((b) => {
    const about = rate({ ...b, mode: '', per: b.per_seconds + 's' }) + (b.mode === 'shadow' ? ', denies nobody' : '') + (b.until ? `, until ${moment(b.until)}` : '');
    const h = b.last_hour;
    const hour = h && h.admitted + h.denied > 0 ? `${number(h.admitted)} admitted, ${number(h.denied)} denied` : '';
    const all = [...(b.left ? [b.left] : []), ...(b.used || []).filter((l) => !b.left || l.endpoint !== b.left.endpoint)];
    if (all.length === 0) return [row(rule(b, b.endpoints > 1 ? `each of ${b.endpoints} endpoints` : b.endpoint), about, b.needs ? `goes by ${b.needs}` : 'all of it', '', hour, action(b) || '')];
    return all.map((l, i) => row(rule(b, l.endpoint), about, cell(b, l), l.reset_seconds > 0 ? seconds(l.reset_seconds) : 'is full', i === 0 ? hour : '', action(b, l) || ''));
  });
  return el('div', null, table('Budgets', ['Limit', 'At most', 'Left', 'Full in', 'Last hour', 'Action'], rows),
    report.more > 0 && el('p', { class: 'dim' }, `and ${number(report.more)} more`));
}
