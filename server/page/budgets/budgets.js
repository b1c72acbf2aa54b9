// What a caller of the API sees of its own: budgets, the last hour, requests for a higher limit. The credential is in this
// page's memory alone, and gone when the page is left or loaded again.
'use strict';

const about = document.body.dataset;
let credential = null; // header fields

const ask = (method, path, body) => request(method, about.path + path, body, { headers: { ...credential }, credentials: 'same-origin' });

// --- who asks

function signIn(problem) {
  const kind = el('select', null, el('option', { value: 'key' }, 'API key'), el('option', { value: 'token' }, 'bearer token'));
  const text = el('input', { type: 'password', size: 40, autocomplete: 'off', required: true });
  replace(document.getElementById('same'));
  document.getElementById('state').textContent = '';
  replace(document.getElementById('view'),
    el('h1', null, 'What is left of your budgets?'),
    el('p', null, 'Show the API key or token that you show the API. It stays in this page, and is forgotten when you leave it.'),
    problem && el('p', { class: 'bad' }, problem),
    el('form', {
      submit: (e) => {
        e.preventDefault();
        const value = text.value.trim();
        credential = kind.value === 'key' && about.header ? { [about.header]: value } : { Authorization: 'Bearer ' + value };
        begin();
      },
    }, el('label', null, 'What you have', kind), el('label', null, 'Credential', text), el('button', { class: 'main' }, 'Look')));
  text.focus();
}

// --- the last hour, drawn

const svg = (tag, attributes, ...children) => {
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...children);
  return e;
};

function drawnHour(hour, room) {
  const n = hour.admitted_by_cell.length;
  const most = Math.max(1, ...hour.admitted_by_cell.map((a, i) => a + hour.denied_by_cell[i]));
  const [left, high] = [44, 140];
  const width = (Math.min(room, 760) - left - 10) / n;
  const bar = (kind, i, from, count) => svg('rect', {
    class: kind, x: left + i * width + 1, width: width - 2, y: high + 10 - (from + count) / most * high, height: count / most * high,
  });
  const word = (x, y, anchor, text) => svg('text', { x, y, 'text-anchor': anchor }, text);
  return svg('svg', {
    class: 'hour', width: left + n * width + 10, height: high + 34, role: 'img',
    'aria-label': `Requests in the last hour, in parts of ${seconds(hour.cell_seconds)}: at most ${number(most)} in one; ${number(hour.admitted)} admitted, ${number(hour.denied)} denied in all`,
  },
  svg('path', { class: 'axis', d: `M${left} 10.5H${left + n * width}M${left} ${high + 10.5}H${left + n * width}` }),
  word(left - 6, 15, 'end', number(most)), word(left - 6, high + 14, 'end', '0'),
  word(left, high + 28, 'start', `${seconds(n * hour.cell_seconds)} ago`), word(left + n * width, high + 28, 'end', 'now'),
  ...hour.admitted_by_cell.flatMap((a, i) => [a > 0 && bar('admitted', i, 0, a), hour.denied_by_cell[i] > 0 && bar('denied', i, a, hour.denied_by_cell[i])]).filter(Boolean));
}

// --- budgets and requests

let stop = null;

function begin() {
  if (stop) stop();
  const view = document.getElementById('view');
  const now = el('div');
  const filed = el('div');
  const form = el('div');
  let shownOnce = false;
  const refresh = async () => {
    const report = await ask('GET', '/v1/budgets');
    if (!shownOnce) {
      shownOnce = true;
      replace(view, now, form, filed);
      sameElsewhere();
      if (about.requests === 'true' && report.caller.project) list().catch(sayProblem);
    }
    document.getElementById('state').textContent = `updated ${clock(report.at)}`;
    if (now.contains(document.activeElement) || String(getSelection()) !== '') return; // somebody reads
    const c = report.caller;
    const h = report.last_hour;
    replace(now,
      el('h1', null, 'What is left of your budgets?'),
      el('p', { class: 'dim' }, `You are ${c.kind.replace('_', ' ')} ${c.id || c.address || ''}${c.project ? `, of project ${c.project}` : ''}${c.tier ? `, tier ${c.tier}` : ''}. `,
        el('button', { class: 'link', click: () => { credential = null; stop(); signIn(); } }, 'Not you?')),
      report.budgets.length === 0 ? el('p', null, 'No limit applies to you.') :
        budgetTable(report, (b) => about.requests === 'true' && c.project && b.endpoint !== 'UNKNOWN' && el('button', { click: () => more(b), 'aria-label': `Ask for more than ${b.rule}` }, 'Ask for more')),
      h && h.admitted_by_cell && [el('h2', null, 'Your last hour'),
        el('p', null, el('span', { class: 'key admitted' }), ` ${number(h.admitted)} requests admitted \u00a0 `, el('span', { class: 'key denied' }), ` ${number(h.denied)} denied`,
          h.complete ? '' : el('span', { class: 'dim' }, `, counted since ${clock(h.since)} only`)),
        drawnHour(h, view.clientWidth - 40)].flat());
  };
  const more = (b) => {
    const limit = el('input', { type: 'number', min: 1, required: true, value: b.limit * 2, size: 8 });
    const per = el('select', null, [['1s', 'second'], ['1m', 'minute'], ['1h', 'hour'], ['24h', 'day']].map(([value, text]) => el('option', { value }, text)));
    const usual = { 1: '1s', 60: '1m', 3600: '1h', 86400: '24h' }[b.per_seconds];
    if (!usual) per.prepend(el('option', { value: b.per_seconds + 's' }, seconds(b.per_seconds)));
    per.value = usual || b.per_seconds + 's';
    const lasts = el('select', null, [['24h', 'a day'], ['168h', 'a week'], ['720h', '30 days'], ['2160h', '90 days']].map(([value, text]) => el('option', { value }, text)));
    const why = el('input', { required: true, maxlength: 1000, size: 40, autocomplete: 'off' });
    const who = el('input', { maxlength: 100, size: 20, autocomplete: 'name' });
    replace(form, el('section', { class: 'panel' }, el('h2', null, `A higher limit than ${rate({ ...b, mode: '', per: b.per_seconds + 's' })} at ${b.rule}`),
      el('form', {
        submit: async (e) => {
          e.preventDefault();
          try {
            const done = await ask('POST', '/v1/requests', { endpoint: b.endpoint, subject: b.subject, limit: Number(limit.value), per: per.value, for: lasts.value, reason: why.value, ...(who.value && { name: who.value }) });
            say(`filed as ${done.id}`);
            replace(form);
            await list();
          } catch (err) { sayProblem(err); }
        },
      }, el('label', null, 'Requests', limit), el('label', null, 'Per', per), el('label', null, 'For', lasts), el('label', null, 'Why', why), el('label', null, 'Your name (may be empty)', who),
      el('div', { class: 'row' }, el('button', { class: 'main' }, 'Ask for it'), el('button', { type: 'button', click: () => replace(form) }, 'Cancel')))));
    form.scrollIntoView({ block: 'nearest' });
    limit.focus();
  };
  const list = async () => {
    const page = await ask('GET', '/v1/requests');
    replace(filed, el('h2', null, 'Requests of your project for a higher limit'),
      page.requests.length === 0 ? el('p', { class: 'dim' }, 'None yet. Ask for more beside a budget.') :
        table('Requests for a higher limit', ['Filed', 'State', 'Limit', 'Asked for', 'Why', 'Answer', 'Action'], page.requests.map((r) => row(
          moment(r.filed), el('b', { class: { open: 'warn', approved: 'good', declined: 'bad' }[r.state] || 'dim' }, r.state), el('code', null, r.endpoint),
          rate({ limit: r.limit, per: r.per_seconds + 's', burst: r.burst }) + (r.for_seconds ? ` for ${seconds(r.for_seconds)}` : ''), r.reason,
          [r.granted && `${rate({ limit: r.granted.limit, per: r.granted.per_seconds + 's', burst: r.granted.burst })} until ${moment(r.granted.until)}`, r.note].filter(Boolean).join(': '),
          r.state === 'open' ? el('button', { click: () => ask('DELETE', '/v1/requests/' + r.id).then(list).catch(sayProblem), 'aria-label': `Withdraw ${r.id}` }, 'Withdraw') : ''))),
      page.next && el('p', { class: 'dim' }, 'and older ones: ', el('code', null, 'headgate request mine')));
  };
  let timer = 0;
  let stopped = false;
  stop = () => { stopped = true; clearTimeout(timer); };
  const turn = async () => {
    try {
      if (!document.hidden || !shownOnce) await refresh();
    } catch (err) {
      if (stopped) return;
      if (!shownOnce) { signIn(credential && err.message); return; }
      document.getElementById('state').textContent = err.message;
    }
    if (!stopped) timer = setTimeout(turn, 5000);
  };
  turn();
}

function sameElsewhere() {
  replace(document.getElementById('same'),
    el('div', null, 'On the command line: ', el('code', null, `headgate budgets --url ${location.origin} --key-file key.txt`)),
    el('div', null, 'As JSON: ', el('code', null, `GET ${about.path}/v1/budgets`)));
}

begin(); // a client certificate may say already who asks
