// The views, in the order in which people ask: who is denied now, by which rule, what if the limit were another, are the
// gateways well, one caller, what changed.
'use strict';

// --- rules, which several views show

// title is what the gateway calls a rule in metrics and answers (policy.Rule.Title).
function title(rule) {
  if (rule.name) return rule.name;
  const subject = rule.subject || 'principal';
  if (subject.includes(':')) return `${rule.endpoint} of ${subject}`;
  return subject === 'principal' ? rule.endpoint : `${rule.endpoint} per ${subject}`;
}

const whose = (rule) => (rule.project ? `project ${rule.project}` : rule.tier ? `tier ${rule.tier}` : 'everybody');

// named are the flags that name a rule beside its endpoint.
function named(rule) {
  return ['project', 'tier', 'subject'].map((name) => (rule[name] ? ` --${name} ${shell(rule[name])}` : '')).join('');
}

// settings are the members of a rule that `headgate policy set` takes as flags, with what the flag is by default.
const settings = [
  ['algorithm', 'token_bucket'], ['mode', 'enforce'], ['enforce_percent', 100], ['scope', 'local'], ['on_store_loss', 'closed'], ['count_when'], ['penalty'],
  ['refusal'], ['priority'], ['expires'], ['name'],
];

// command is the argument list of `headgate policy set` or `policy try` for a rule.
function command(what, rule) {
  let text = `headgate policy ${what} ${shell(rule.endpoint)} ${rule.limit}/${{ 1: 's', 60: 'm', 3600: 'h', 86400: 'd' }[perOf(rule)] || perOf(rule) + 's'}`;
  if (rule.burst) text += ` --burst ${rule.burst}`;
  text += named(rule);
  for (const [name, usual] of what === 'set' ? settings : []) {
    if (rule[name] && rule[name] !== usual) text += ` --${name.replaceAll('_', '-')} ${shell(rule[name])}`;
  }
  return text;
}

const mostPages = 10; // of 1,000 rules

// rulesInForce are the rules, as far as a page can show them.
async function rulesInForce() {
  const list = [];
  let cursor = '';
  for (let page = 0; page < mostPages; page++) {
    const part = await get('/v1/policies' + query({ limit: 1000, cursor }));
    list.push(...part.policies);
    cursor = part.next;
    if (!cursor) break;
  }
  list.more = !!cursor;
  return list;
}

// fleetNote says whose numbers a view shows, where there are several gateways.
function fleetNote() {
  const note = el('p', { class: 'dim' });
  get('/v1/fleet').then((all) => {
    const n = all.replicas.filter((r) => r.state !== 'gone').length;
    if (n > 1) replace(note, el('span', null, `This gateway is one of ${n} on its database. It shows what it decided itself; a change of rules reaches all. `), el('a', { href: '#/health' }, 'All gateways'));
  }).catch(() => {}); // a database of others has no fleet
  return note;
}

// warned tells what a warning is about.
function warned(w) {
  const about = w.kind === 'caller_near_limit' ? `${w.caller_kind.replace('_', ' ')} ${w.caller}${w.project ? `, ${w.project}` : ''} has ${w.percent} % of ${w.rule} in use`
    : w.kind === 'endpoint_slower' ? `${w.endpoint} takes ${seconds(w.p99_seconds)} at the 99th percentile, usually ${seconds(w.usual_p99_seconds)}, since ${number(w.requests)} requests a minute are admitted, usually ${number(w.usual_requests)}`
    : w.kind === 'requests_denied' ? `${w.percent} % of all requests are denied` : `${w.kind.replaceAll('_', ' ')}${w.endpoint ? ` at ${w.endpoint}` : ''}, ${w.percent} %`;
  return `Since ${clock(w.time)}: ${about}.`;
}

// change writes a rule, after the plan was shown and confirmed.
async function change(rule) {
  const plan = await ask('POST', '/v1/policies/apply', { set: [rule], dry_run: true });
  const lines = [];
  for (const c of plan.changes || []) {
    lines.push(`${c.before ? rate(c.before) + (c.before.mode === 'shadow' ? ', in shadow' : '') : 'no such rule'} → ${c.after ? rate(c.after) + (c.after.mode === 'shadow' ? ', in shadow' : '') : 'no such rule'}`);
  }
  if (lines.length === 0) lines.push('This is what is in the database already: nothing would change.');
  const why = await confirmed(`${title(rule)}, ${whose(rule)}`, lines, 'Put it in force');
  if (why === null) return null;
  const done = await ask('PUT', '/v1/policies' + query({ why }), rule, { 'If-Match': plan.etag || '*' });
  for (const w of done.warnings || []) say(w, true);
  say(`version ${done.change.id} is in force`);
  return done;
}

// --- 1. who is denied now

const callerText = (c) => c.address || (c.id ? `${c.kind.replace('_', ' ')} ${c.id}` + (c.project ? `, ${c.project}` : '') : `${c.kind.replace('_', ' ')} ${c.hash}`);

function callerLink(c) {
  if (!c.address && !c.id) return el('code', null, callerText(c));
  const by = { address: 'address', api_key: 'key', token: 'token', certificate: 'certificate', user: 'user', signed_agent: 'agent' }[c.kind];
  return el('a', { href: '#/caller' + query({ by, value: c.address ? c.address.split('/')[0] : c.id, project: c.kind === 'api_key' ? '' : c.project }) }, callerText(c));
}

function hourChart(at, series, rule) {
  const first = Date.parse(series.since) / 1000;
  const cells = series.admitted.length - 1; // the last one is under way
  if (cells < 2) { replace(at, el('p', { class: 'dim' }, 'Nothing to draw yet: the gateway has run for some seconds only.')); return; }
  if (!at.plot) replace(at);
  const times = Array.from({ length: cells }, (_, i) => first + i * series.cell_seconds);
  const a = (list) => list.slice(0, cells).map((n) => n / series.cell_seconds);
  chart(at, `Requests a second in the last hour${rule ? ' under ' + rule : ''}: admitted and denied`, times, [
    { label: 'admitted/s', color: '--good', values: a(series.admitted), fill: true },
    { label: 'denied/s', color: '--bad', values: a(series.denied), fill: true },
    { label: 'shadow/s', color: '--warn', values: a(series.shadow_denied), dash: [6, 4] },
  ]);
}

views.push({
  name: 'denied', title: 'Denied now',
  show(main, given, onLeave) {
    let reveal = given.get('reveal') === 'true';
    const tiles = el('div', { class: 'tiles', 'aria-live': 'off' });
    const drawing = el('div', { class: 'chart' });
    const lists = el('div');
    const box = el('input', { type: 'checkbox', change: () => { reveal = box.checked; refresh().catch(sayProblem); } });
    box.checked = reveal;
    const warnings = el('div');
    main.append(el('h1', null, 'Who is denied now?'), fleetNote(), warnings, tiles, drawing,
      el('div', { class: 'row' }, el('label', { class: 'beside' }, box, 'show who callers are')), lists);
    sameElsewhere('headgate activity', '/v1/activity');

    const refresh = async () => {
      const now = await get('/v1/activity' + query({ limit: 50, reveal: reveal && 'true' }));
      const sum = (name) => now.rules.reduce((n, r) => n + r[name], 0);
      const admitted = sum('admitted_per_second');
      const denied = sum('denied_per_second');
      const early = now.callers.reduce((n, c) => n + c.early, 0);
      const all = now.callers.reduce((n, c) => n + c.denied, 0);
      const tile = (value, text, kind) => el('div', { class: 'tile' }, el('b', { class: kind || '' }, value), text);
      replace(tiles,
        tile(perSecond(admitted), 'admitted'),
        tile(perSecond(denied), 'denied', denied > 0 ? 'bad' : ''),
        tile(percent(admitted + denied > 0 ? denied / (admitted + denied) : 0), 'of requests denied'),
        tile(percent(all > 0 ? early / all : 0), 'of denials came before Retry-After', all > 0 && early / all > 0.3 ? 'bad' : ''));
      replace(warnings, now.warnings.length > 0 && el('ul', { class: 'panel warnings', 'aria-label': 'Warnings' },
        now.warnings.slice(0, 5).map((w) => el('li', { class: 'warn' }, warned(w))),
        now.warnings_total > 5 && el('li', { class: 'dim' }, `and ${number(now.warnings_total - 5)} more`)));
      state(`updated ${clock(now.at)}`);
      if (lists.contains(document.activeElement) || String(getSelection()) !== '') return; // somebody reads
      replace(lists,
        el('h2', null, 'Callers, in the last minute'),
        now.callers.length === 0 ? el('p', { class: 'dim' }, 'Nobody was denied.') :
          table('Callers that were denied in the last minute', ['Caller', 'Rule', 'Endpoint', '#Denied', '#Too early', 'May come again'], now.callers.map((c) => row(
            callerLink(c),
            el('a', { href: '#/rules' + query({ rule: c.rule }) }, c.rule),
            el('code', null, c.endpoint),
            el('span', { class: 'number' }, number(c.denied), c.at_most_too_high ? el('span', { class: 'dim', title: `at most ${c.at_most_too_high} too high` }, ' ±') : null),
            c.early,
            c.blocked ? 'blocked' : Date.parse(c.again) <= Date.parse(now.at) ? 'now' : 'in ' + seconds((Date.parse(c.again) - Date.parse(now.at)) / 1000)))),
        now.endpoints.length > 0 && el('h2', null, 'Endpoints'),
        now.endpoints.length > 0 && table('Endpoints that were denied', ['Endpoint', 'Rule', '#Callers', '#Denied'], now.endpoints.map((e) => row(el('code', null, e.endpoint), el('a', { href: '#/rules' + query({ rule: e.rule }) }, e.rule), e.callers, e.denied))));
    };
    onLeave(every(1000, refresh));
    onLeave(every(5000, async () => hourChart(drawing, await get('/v1/activity/series'))));
  },
});

// --- 2. by which rule, and is it right

views.push({
  name: 'rules', title: 'Rules',
  show(main, given, onLeave) {
    const search = el('input', { type: 'search', placeholder: 'endpoint, project, tier, name', size: 30, value: given.get('rule') || '', input: () => draw() });
    const list = el('div');
    const detail = el('div');
    let rules = [];
    let rates = new Map();
    main.append(el('h1', null, 'Which rule, and is it right?'),
      el('p', { class: 'dim' }, 'A rule that denies nobody may be needless; one that denies most of what comes is wrong, or under attack.'),
      el('div', { class: 'row' }, el('label', null, 'Search (key /)', search)), detail, list, explainForm());
    sameElsewhere('headgate policy list', '/v1/policies');
    const draw = () => {
      const wanted = search.value.toLowerCase();
      const match = rules.filter((r) => !wanted || [title(r), r.endpoint, r.project, r.tier].some((t) => t && t.toLowerCase().includes(wanted)));
      const hour = (r) => rates.get(title(r)) || { last_hour: { admitted: 0, denied: 0, shadow_denied: 0, abandoned: 0 }, denied_per_second: 0 };
      match.sort((a, b) => hour(b).denied_per_second - hour(a).denied_per_second || hour(b).last_hour.denied - hour(a).last_hour.denied || hour(b).last_hour.admitted - hour(a).last_hour.admitted);
      const most = 200;
      replace(list, table('Rules', ['Rule', 'For', 'Limit', 'Mode', '#Admitted', '#Denied', '#Would deny', 'More'], match.slice(0, most).map((r) => {
        const h = hour(r).last_hour;
        return row(el('code', null, title(r)), whose(r), rate(r), (r.mode || 'enforce') + (r.scope && r.scope !== 'local' ? `, scope ${r.scope}` : '') + (r.expires ? `, until ${moment(r.expires)}` : ''),
          h.abandoned ? `${number(h.admitted)} (${number(h.abandoned)} left)` : h.admitted, h.denied, h.shadow_denied, el('button', { click: () => open(r), 'aria-label': 'Open ' + title(r) }, 'Open'));
      })),
      el('p', { class: 'dim' }, match.length > most ? `${number(match.length - most)} more: search for them. ` : '', rules.more ? 'There are more rules than a page shows: `headgate policy list` has all.' : '',
        ' Numbers are of the last hour; rules of one title count together. Left: admitted, and its caller was gone before its turn.'));
    };
    let stop = null;
    const open = (r) => {
      if (stop) stop();
      const drawing = el('div', { class: 'chart' });
      replace(detail, el('section', { class: 'panel' },
        el('h2', null, title(r)), el('p', null, `${rate(r)} for each ${r.subject || 'principal'}. It holds for ${whose(r)}.`), drawing, r.limit && pictureOf(r),
        el('div', { class: 'row' },
          r.limit ? el('a', { href: '#/try' + query({ rule: key(r) }) }, 'What if the limit were another?') : null,
          el('button', { click: () => { stop(); stop = null; replace(detail); } }, 'Close'))));
      stop = every(5000, async () => hourChart(drawing, await get('/v1/activity/series' + query({ rule: title(r) })), title(r)));
      detail.scrollIntoView({ block: 'nearest' });
    };
    onLeave(() => stop && stop());
    (async () => {
      rules = await rulesInForce();
      draw();
      const wanted = given.get('rule');
      const one = wanted && rules.find((r) => title(r) === wanted);
      if (one) open(one);
    })().catch(sayProblem);
    onLeave(every(3000, async () => {
      const now = await get('/v1/activity' + query({ limit: 1000 }));
      rates = new Map(now.rules.map((r) => [r.rule, r]));
      state(`updated ${clock(now.at)}`);
      if (!list.contains(document.activeElement)) draw();
    }));
  },
});

const key = (r) => [r.endpoint, r.project || '', r.tier || '', r.subject || '', r.expires ? 'temporary' : ''].join('\n');

// pictureOf draws what a rule admits over time, and says it.
function pictureOf(r) {
  const says = el('p');
  const passed = el('div', { class: 'chart' });
  const left = el('div', { class: 'chart' });
  const line = el('p', { class: 'dim' }, el('code', null, `headgate policy draw ${shell(r.endpoint)}` + named(r) + serverFlag()));
  ask('POST', '/v1/draw', { rule: r }).then((p) => {
    replace(says, el('span', null, p.says));
    const times = p.left.map((_, i) => i * p.cell_seconds);
    const options = {
      plain: true, height: 170, band: [p.silent_from * p.cell_seconds, p.silent_to * p.cell_seconds],
      x: { splits: () => times.filter((_, i) => i % (passed.clientWidth < 500 ? 20 : 10) === 0), values: (_, all) => all.map((s) => (s === 0 ? '0' : seconds(s))) }, over: { label: 'after', value: (_, s) => (s == null ? '–' : seconds(s)) },
    };
    chart(passed, `Requests that pass in each ${seconds(p.cell_seconds)}: ${p.says}`, times, [{ label: `pass in ${seconds(p.cell_seconds)}`, color: '--accent', values: [...p.passed, null], fill: true, bars: true }], options);
    chart(left, 'Requests that are left', times, [{ label: p.algorithm === 'leaky_bucket' ? 'room in the line' : 'left', color: '--good', values: p.left, fill: true }], { ...options, height: 110 });
  }).catch((err) => replace(says, el('span', { class: 'bad' }, err.message)));
  return el('section', null, el('h3', null, 'What it admits to a caller who asks without a pause, is silent, and asks again'), says, passed, left, line);
}

// explainForm asks why a request would be answered as it is.
function explainForm() {
  const method = el('input', { value: 'GET', size: 7 });
  const target = el('input', { value: '/', size: 28 });
  const peer = el('input', { value: '', size: 18, placeholder: '127.0.0.1' });
  const out = el('div', { 'aria-live': 'polite' });
  return el('section', null, el('h2', null, 'Why is a request answered as it is?'),
    el('form', {
      submit: async (e) => {
        e.preventDefault();
        try {
          const x = await ask('POST', '/v1/explain', { method: method.value, target: target.value, ...(peer.value && { peer: peer.value }) });
          const v = x.verdict;
          replace(out, el('div', { class: 'panel' },
            el('p', null, el('b', { class: v.allowed ? 'good' : 'bad' }, v.allowed ? 'admitted' : 'refused'), ` · ${v.reason.replaceAll('_', ' ')}`, v.rule ? ` by ${v.rule}` : '',
              v.retry_after_ns ? `, in ${seconds(v.retry_after_ns / 1e9)} it would pass` : '', ` · endpoint ${x.endpoint || x.status}`),
            x.adaptive && el('p', { class: x.adaptive.multiplier < 1 || x.adaptive.at_once < 1 ? 'warn' : 'dim' }, `Rates are ${percent(x.adaptive.multiplier)} of what the rules say`,
              x.adaptive.others > 0 && `, ${percent(x.adaptive.agreed)} where gateways share buckets`, x.adaptive.at_once && `, how many may be under way ${percent(x.adaptive.at_once)}`, `: ${x.adaptive.why}`),
            x.considered && table('Rules that were considered', ['Subject', 'Level', 'Rule', 'Why'], x.considered.map((c) => row(c.subject, c.level, c.rule || '–', c.why))),
            x.buckets && table('Buckets', ['Rule', 'Whose', '#Left', '#Of', 'Full in'], x.buckets.map((b) => row(b.rule, b.whose, b.remaining, b.burst, seconds(b.reset_after_ns / 1e9)))),
            el('p', { class: 'dim' }, el('code', null, `headgate explain ${shell(method.value)} ${shell(target.value)}` + (peer.value ? ` --peer ${shell(peer.value)}` : '')))));
        } catch (err) { sayProblem(err); }
      },
    }, el('label', null, 'Method', method), el('label', null, 'Target', target), el('label', null, 'From', peer), el('button', { class: 'main' }, 'Explain')), out);
}

// --- 3. what if the limit were another

// steps are the limits that are tried: from a tenth to ten times as much.
function steps(rule) {
  const factors = [0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1, 1.2, 1.5, 2, 3, 5, 10];
  const limits = [...new Set(factors.map((f) => Math.max(1, Math.round(rule.limit * f))))];
  return limits.map((limit) => {
    const own = rule.burst ? { burst: Math.max(1, Math.round(rule.burst * limit / rule.limit)) } : {};
    return { ...rule, ...own, limit };
  });
}

views.push({
  name: 'try', title: 'What if',
  show(main, given) {
    const choice = el('select', { change: () => run().catch(sayProblem) });
    const out = el('div', { 'aria-live': 'polite' });
    main.append(el('h1', null, 'What if the limit were another?'),
      el('p', { class: 'dim' }, 'The requests of the last hour are decided again, by the rules in the database with one of them changed. Nothing is taken from anybody.'), fleetNote(),
      el('div', { class: 'row' }, el('label', null, 'Rule', choice)), out);
    sameElsewhere('headgate policy try default 10/s 40/s', '/v1/try', 'POST');
    let rules = [];
    const run = async () => {
      const rule = rules[Number(choice.value)];
      if (!rule) return;
      const tries = steps(rule);
      replace(out, el('p', { class: 'dim' }, 'Deciding the last hour again …'));
      const got = await ask('POST', '/v1/try', { rules: tries });
      if (got.requests === 0) { replace(out, el('p', null, 'Nothing was asked for in the last hour.')); return; }
      const now = tries.findIndex((r) => r.limit === rule.limit);
      const slider = el('input', { type: 'range', min: 0, max: tries.length - 1, step: 1, value: now, 'aria-label': 'Limit', input: () => draw() });
      const at = el('b');
      const tiles = el('div', { class: 'tiles' });
      const time = el('div', { class: 'chart' });
      const curve = el('div', { class: 'chart' });
      const worst = el('div');
      const button = el('button', { class: 'main', click: () => change(tries[slider.value]).then((done) => done && (location.hash = '#/changes')).catch(sayProblem) }, 'Plan this change');
      const line = el('code');
      const says = el('p', { class: 'dim' });
      replace(out, el('div', { class: 'panel' }, el('div', { class: 'row' }, el('label', null, 'Limit', slider), at, button), tiles, says, line),
        el('h2', null, 'Denied over the hour'), time, el('h2', null, 'Denied by limit'), curve, worst,
        got.notes.map((n) => el('p', { class: 'warn' }, n)),
        got.part < 1 && el('p', { class: 'dim' }, `By ${percent(got.part)} of the callers, drawn at random; numbers are for all of them.`),
        got.skipped > 0 && el('p', { class: 'dim' }, `${number(got.skipped)} requests were for endpoints that there are no more.`));
      const from = Date.parse(got.since) / 1000;
      const span = (Date.parse(got.until) / 1000 - from) / got.asked.length;
      const times = got.asked.map((_, i) => from + i * span);
      const draw = () => {
        const r = got.tried[slider.value];
        const rule = tries[slider.value];
        slider.setAttribute('aria-valuetext', rate(rule));
        ask('POST', '/v1/draw', { rule }).then((p) => { if (rule === tries[slider.value]) says.textContent = shown(p.says); }).catch(() => {});
        at.textContent = rate(rule) + (Number(slider.value) === now ? ', as now' : '');
        button.disabled = Number(slider.value) === now && rule.mode !== 'shadow';
        line.textContent = command('set', { ...rule, mode: rule.mode === 'shadow' ? 'enforce' : rule.mode }) + serverFlag();
        sameElsewhere(command('try', rule), '/v1/try', 'POST');
        const tile = (value, text, kind) => el('div', { class: 'tile' }, el('b', { class: kind || '' }, value), text);
        replace(tiles,
          tile(percent(r.denied / got.requests), `of ${number(got.requests)} requests denied`, r.denied > got.in_force.denied ? 'bad' : ''),
          tile(number(r.callers_denied), `of ${number(got.callers)} callers denied something`),
          tile((r.newly_denied > 0 ? '+' : '') + number(r.newly_denied), 'newly denied', r.newly_denied > 0 ? 'bad' : ''),
          tile((r.no_longer_denied > 0 ? '−' : '') + number(r.no_longer_denied), 'no longer denied', r.no_longer_denied > 0 ? 'good' : ''));
        chart(time, 'Requests over the last hour, and how many would be denied', times, [
          { label: 'asked', color: '--dim', values: got.asked },
          { label: 'denied in force', color: '--warn', values: got.in_force.spans, dash: [6, 4] },
          { label: 'would be denied', color: '--bad', values: r.spans, fill: true },
        ]);
        replace(worst, r.worst.length > 0 && el('h2', null, 'Who would be denied most'),
          r.worst.length > 0 && table('Who would be denied most', ['Caller', '#Requests', '#Denied'], r.worst.map((c) => row(callerLink(c), c.requests, c.denied))));
      };
      draw();
      chart(curve, 'Part of the requests that would be denied, by limit', tries.map((r) => r.limit), [
        { label: '% denied', color: '--accent', values: got.tried.map((r) => 100 * r.denied / got.requests), points: true },
      ], { plain: true, height: 180 });
    };
    (async () => {
      rules = (await rulesInForce()).filter((r) => r.limit);
      const order = new Map((await get('/v1/activity' + query({ limit: 1000 }))).rules.map((r, i) => [r.rule, i]));
      const wanted = (r) => (key(r) === given.get('rule') || title(r) === given.get('rule') ? -1 : 0); // first, also among very many
      rules.sort((a, b) => wanted(a) - wanted(b) || (order.get(title(a)) ?? 1e9) - (order.get(title(b)) ?? 1e9));
      replace(choice, rules.slice(0, 1000).map((r, i) => el('option', { value: i }, `${title(r)} · ${whose(r)} · ${rate(r)}${r.mode === 'shadow' ? ', in shadow' : ''}`)));
      if (rules.length === 0) replace(out, el('p', null, 'There is no rule with a limit.'));
      await run();
    })().catch(sayProblem);
  },
});

// --- 4. are the store and the fleet well

const gauges = [
  ['headgate_policy_reload_ok', 'the newest rules are in force', (v) => v === 1],
  ['headgate_policy_staleness_seconds', 'seconds since the rules were known to be current', (v) => v < 30],
  ['headgate_config_reload_ok', 'the newest configuration is in force', (v) => v === 1],
  ['headgate_store_up', 'the shared store answers', (v) => v === 1],
  ['headgate_store_lost', 'requests are decided without the store', (v) => v === 0],
  ['headgate_store_clock_offset_seconds', 'seconds that this clock is ahead of the store’s', (v) => Math.abs(v) < 1],
  ['headgate_store_replicas', 'gateways on the store', (v) => v > 0],
  ['headgate_buckets_occupancy_ratio', 'part of the bucket table in use', (v) => v < 0.8],
  ['headgate_buckets_false_denials_ratio', 'part of new clients denied because the table is crowded', (v) => v < 0.01],
  ['headgate_unchecked_total', 'requests let through unchecked, since the start', (v) => v === 0],
  ['headgate_connections', 'connections', () => true],
  ['headgate_requests_under_way', 'requests under way', () => true],
  ['headgate_limit_requests_open', 'requests for a higher limit that wait', () => true],
];

// followed are the endpoints whose limits follow the API, with what is in force of what the rules say: '' rates, 'agreed'
// those of buckets that gateways share, 'at_once' how many requests may be under way.
function followed(metrics) {
  const all = new Map();
  for (const [, what, quoted, value] of metrics.matchAll(/^headgate_adaptive_(?:(agreed|at_once)_)?multiplier\{endpoint="((?:[^"\\]|\\.)*)"\} (\S+)$/gm)) {
    const endpoint = quoted.replace(/\\(.)/g, '$1');
    all.set(endpoint, { ...all.get(endpoint), [what || '']: Number(value) });
  }
  return all;
}

views.push({
  name: 'health', title: 'Health',
  show(main, given, onLeave) {
    const ready = el('div');
    const values = el('div');
    const following = el('div');
    const fleet = el('div');
    main.append(el('h1', null, 'Are the gateways and the store well?'), ready, el('h2', null, 'This gateway'), values, following, el('h2', null, 'All gateways of the database'), fleet);
    sameElsewhere('headgate fleet', '/v1/fleet');
    onLeave(every(2000, async () => {
      let text = '';
      let good = true;
      try { text = await get('/readyz'); } catch (err) { text = err.message; good = false; }
      const warnings = text.split('\n').filter((l) => l.startsWith('warning: ')).map((l) => l.slice(9));
      replace(ready, el('p', null, el('b', { class: good ? warnings.length ? 'warn' : 'good' : 'bad' }, good ? 'ready' : text)), warnings.map((w) => el('p', { class: 'warn' }, w)));
      const found = new Map();
      const metrics = await get('/metrics');
      for (const l of metrics.split('\n')) {
        const m = /^(headgate_\w+)(?:\{[^}]*\})? (\S+)$/.exec(l);
        if (m) found.set(m[1], (found.get(m[1]) || 0) + Number(m[2]));
      }
      replace(values, table('This gateway', ['What', '#Value', 'Metric'], gauges.filter(([name]) => found.has(name)).map(([name, text, well]) => {
        const v = found.get(name);
        const said = /_(ok|up)$/.test(name) ? (v === 1 ? 'yes' : 'no') : name.endsWith('_ratio') ? percent(v) : Number.isInteger(v) ? number(v) : v.toPrecision(3);
        return row(text, el('b', { class: 'number ' + (well(v) ? 'good' : 'bad') }, said), el('code', { class: 'dim' }, name));
      })));
      const part = (v) => (v === undefined ? '–' : el('b', { class: 'number ' + (v < 1 ? 'bad' : 'good') }, percent(v)));
      const endpoints = [...followed(metrics)];
      replace(following, endpoints.length > 0 && el('h2', null, 'Limits that follow the API: in force of what the rules say'),
        endpoints.length > 0 && table('Limits that follow the API', ['Endpoint', '#Rates', '#Shared rates', '#How many at once'], endpoints.map(([endpoint, m]) => row(endpoint, part(m['']), part(m.agreed), part(m.at_once)))));
      try {
        const all = await get('/v1/fleet');
        replace(fleet, table('All gateways', ['Gateway', 'State', '#Behind', 'Rules', 'Seen', 'Clock', 'Why'], all.replicas.map((r) => row(
          r.replica, el('b', { class: r.state === 'ok' ? 'good' : 'bad' }, r.state), r.behind, r.number ? 'version ' + r.number : r.version, seconds(r.seen_seconds) + ' ago',
          r.clock_offset_seconds === undefined ? '–' : (r.clock_offset_seconds > 0 ? '+' : '') + r.clock_offset_seconds.toFixed(3) + ' s', r.why || ''))));
      } catch (err) { replace(fleet, el('p', { class: 'dim' }, err.message)); }
      state(`updated ${new Date().toLocaleTimeString()}`);
    }));
  },
});

// --- 5. one caller

views.push({
  name: 'caller', title: 'A caller',
  show(main, given) {
    const by = el('select', null, [['address', 'address'], ['key', 'ID of an API key'], ['user', 'user'], ['token', 'subject of a token'], ['certificate', 'certificate']]
      .map(([value, text]) => el('option', { value, selected: given.get('by') === value }, text)));
    const value = el('input', { size: 30, required: true, value: given.get('value') || '' });
    const project = el('input', { size: 16, value: given.get('project') || '' });
    const out = el('div', { 'aria-live': 'polite' });
    const named = () => ({ [by.value]: value.value.trim(), ...(project.value && by.value !== 'address' && by.value !== 'key' && { project: project.value }) });
    const look = async () => {
      const report = await ask('POST', '/v1/budgets', named());
      const flags = Object.entries(named()).map(([k, v]) => `--${k} ${shell(v)}`).join(' ');
      sameElsewhere(`headgate bucket inspect '*' ${flags}`, '/v1/budgets', 'POST');
      const h = report.last_hour;
      replace(out,
        el('p', null, `${report.caller.kind.replace('_', ' ')} ${report.caller.id || report.caller.address || ''}`, report.caller.project ? `, project ${report.caller.project}` : '', report.caller.tier ? `, tier ${report.caller.tier}` : '',
          h ? `: ${number(h.admitted)} requests admitted in the last hour, ${number(h.denied)} denied` : ''),
        report.budgets.length === 0 ? el('p', null, 'No limit applies.') :
          budgetTable(report, (b, l) => l && el('span', null, el('button', { click: () => fill(b, l), 'aria-label': `Reset ${b.rule}` }, 'Reset'),
            el('button', { click: () => grant(b, l), 'aria-label': `Grant more of ${b.rule}` }, 'Grant'))));
      if (report.caller.kind === 'api_key') showKey(report.caller).catch(() => {}); // keys of others are not listed
    };
    const showKey = async (caller) => {
      const page = await get('/v1/keys' + query({ project: caller.project, limit: 1000 }));
      const k = page.keys.find((one) => one.id === caller.id);
      if (k) out.prepend(el('p', null, `Key ${k.name || k.id}, made ${moment(k.created)}`, k.expires ? `, expires ${moment(k.expires)}` : '', k.scopes ? `, for ${k.scopes.join(' and ')} alone` : '',
        k.revoked && el('b', { class: 'bad' }, ` revoked ${moment(k.revoked)}`)));
    };
    const changeBucket = async (what, b, l, more) => {
      await ask('POST', '/v1/buckets/' + what, { endpoint: l.endpoint, subject: b.subject, ...named(), ...more }, { 'Idempotency-Key': `"${crypto.randomUUID()}"` });
      await look();
    };
    const who = 'Who you are, for the audit (may be empty)';
    const grant = async (b, l) => {
      const amount = el('input', { type: 'number', min: 1, max: b.burst, value: b.burst });
      try {
        const by = await confirmed('Grant tokens?', [`${b.rule}, ${l.endpoint}: what is granted is there at once, up to ${number(b.burst)} in all.`, el('label', null, 'How many', amount)], 'Grant them', who);
        if (by === null) return;
        await changeBucket('grant', b, l, { amount: Number(amount.value), ...(by && { by }) });
        say(`${number(Number(amount.value))} granted`);
      } catch (err) { sayProblem(err); }
    };
    const fill = async (b, l) => {
      try {
        const by = await confirmed('Fill the bucket?', [`${b.rule}, ${l.endpoint}: the caller gets ${number(b.burst)} at once.`], 'Fill it', who);
        if (by === null) return;
        await changeBucket('reset', b, l, by && { by });
        say('the bucket is full');
      } catch (err) { sayProblem(err); }
    };
    main.append(el('h1', null, 'What has one caller left?'), fleetNote(),
      el('form', {
        submit: (e) => {
          e.preventDefault();
          history.replaceState(null, '', '#/caller' + query({ by: by.value, value: value.value.trim(), project: project.value }));
          look().catch(sayProblem);
        },
      }, el('label', null, 'Named by', by), el('label', null, 'Which', value), el('label', null, 'Project (of a user, token or certificate)', project), el('button', { class: 'main' }, 'Look')), out);
    sameElsewhere("headgate bucket inspect '*' --address 192.0.2.7", '/v1/budgets', 'POST');
    if (value.value) look().catch(sayProblem);
  },
});

// --- 6. what changed, and back

views.push({
  name: 'changes', title: 'Changes',
  show(main) {
    const list = el('div');
    const detail = el('div', { 'aria-live': 'polite' });
    main.append(el('h1', null, 'What changed?'), detail, list);
    sameElsewhere('headgate policy history', '/v1/versions');
    const about = (v) => [v.added && `${v.added} added`, v.changed && `${v.changed} changed`, v.removed && `${v.removed} removed`].filter(Boolean).join(', ') || 'nothing';
    const open = async (v) => {
      const d = await get(`/v1/versions/${v.id}?limit=100`);
      const text = (r) => (r ? `${title(r)}, ${whose(r)}: ${r.limit ? rate(r) : r.mode || '?'}${r.mode === 'shadow' ? ', in shadow' : ''}` : '–');
      replace(detail, el('section', { class: 'panel' }, el('h2', null, `Version ${v.id}`),
        table('Changes', ['Before', 'After'], d.changes.map((c) => (c.project ? row(`${c.project}: tier ${c.tier_before || 'none'}`, `tier ${c.tier_after || 'none'}`) : row(text(c.before), text(c.after))))),
        d.next && el('p', { class: 'dim' }, 'and more: ', el('code', null, `headgate policy show ${v.id}`)),
        el('div', { class: 'row' }, el('button', { click: () => replace(detail) }, 'Close'))));
      detail.scrollIntoView({ block: 'nearest' });
    };
    const back = async (v, newest) => {
      const why = await confirmed(`Back to version ${v.id}?`, [`The rules and tiers become those of version ${v.id}, as a new version. What came after it is undone: ${newest - v.id} versions.`], 'Go back');
      if (why === null) return;
      const done = await ask('POST', `/v1/versions/${v.id}/rollback`, { why }, { 'If-Match': `"${newest}"` });
      say(`version ${done.change.id} is in force`);
      await load();
    };
    const load = async () => {
      const page = await get('/v1/versions?limit=50');
      const newest = page.versions.length > 0 ? page.versions[0].id : 0;
      replace(list, page.versions.length === 0 ? el('p', null, 'No change yet.') :
        table('Versions, newest first', ['Version', 'When', 'Who', 'What', 'Why', 'Undo'], page.versions.map((v) => row(
          el('button', { click: () => open(v).catch(sayProblem), 'aria-label': `Version ${v.id}` }, String(v.id)), moment(v.at), v.actor + (v.claimed ? ` (${v.claimed})` : ''), `${v.action}: ${about(v)}`, v.why || '',
          v.id !== newest && el('button', { click: () => back(v, newest).catch(sayProblem), type: 'button' }, `Back to version ${v.id}`)))));
    };
    load().catch(sayProblem);
  },
});
