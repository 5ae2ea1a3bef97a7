import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { Chip, List, Spark, bytes, number, seconds, tone } from "./parts.js";
import { planOf, store } from "./stream.js";

const RANK = ["FAULTED", "STALLED", "BACKOFF", "WAITING", "PAUSED", "RUNNING"];
const as = (fields, key, row) => { const found = { key }; fields.forEach((field, at) => (found[field] = row[at])); return found; };
const remedy = (reason) => store.words.reasons[reason];
const Reason = ({ reason, message }) => !reason && !message ? "" : html`<dl><dt>reason</dt><dd>${reason} ${message}</dd>${remedy(reason) && html`<dt>means</dt><dd>${remedy(reason).meaning}</dd><dt>remedy</dt><dd>${remedy(reason).remedy}</dd>`}</dl>`;
const compare = (left, right) => (left === right ? 0 : left === null ? -1 : right === null ? 1 : left < right ? -1 : 1);

function useRows(all, search, matches, initial) {
  const [sort, setSort] = useState(initial);
  const wanted = search.toLowerCase();
  const rows = all.filter((row) => !wanted || matches(row).toLowerCase().includes(wanted));
  const rank = (row) => (sort[0] === "state" ? RANK.indexOf(row.state) : row[sort[0]]);
  rows.sort((left, right) => sort[1] * compare(rank(left), rank(right)) || compare(left.key, right.key));
  return [rows, sort, (key) => setSort([key, sort[0] === key ? -sort[1] : 1])];
}
const ofFlow = (flow) => (row) => !flow || row.flow === flow;
const Search = ({ search, onSearch, shown, all, what }) => html`<div class="bar"><input type="search" id="search" placeholder="filter ( / )" aria-label="filter" value=${search} onInput=${(event) => onSearch(event.target.value)}/>
  <span class="soft" role="status">${number(shown)} of ${number(all)} ${what}</span></div>`;

// Commands stand between backticks.
const words = (text) => text.split("`").map((part, at) => (at % 2 ? html`<code>${part}</code>` : part));
const Facts = ({ row }) => row.facts.map((each) => html`<dt>${each.name}</dt><dd class=${each.verdict ? tone(each.verdict) : ""}>${words(each.message)}</dd>`);

// What was measured last says nothing of a path that is silent or not known now.
const delayOf = (row) => (row.path === "ALIVE" ? seconds(row.delay_seconds) : row.path === "SILENT" ? "silent " + seconds(row.heartbeat_age_seconds) : "unknown");

export function Flows({ flow, selected, onSelect }) {
  const flows = Object.values(store.tables.flows).filter(ofFlow(flow)).sort((left, right) => compare(left.flow, right.flow));
  if (!flows.length) return html`<p class="soft">No service has told of a flow yet.</p>`;
  return html`<div class="cards">${flows.map((row) => html`<section class=${"card" + (selected === row.flow ? " selected" : "")} key=${row.flow} onClick=${() => onSelect(row.flow)}>
    <div class="bar"><h2>${row.flow}</h2><${Chip} word=${row.readiness}/>${Object.entries(row.partitions).filter(([, count]) => count).map(([state, count]) => html`<${Chip} word=${state} count=${count}/>`)}</div>
    <div class="sparks"><${Spark} title="records/s" now=${number(row.records_per_second)} samples=${store.history[row.flow] || []} index=${1}/>
      <${Spark} title="lag" now=${row.lag_records === null ? "?" : number(row.lag_records)} samples=${store.history[row.flow] || []} index=${2}/>
      <${Spark} title="delay" now=${delayOf(row)} samples=${store.history[row.flow] || []} index=${3}/></div>
    <dl><dt>bytes/s</dt><dd>${bytes(row.bytes_per_second)}</dd><dt>behind</dt><dd>${seconds(row.lag_seconds)}</dd><dt>last copied</dt><dd>${row.last_copied_age_seconds === null ? "?" : seconds(row.last_copied_age_seconds) + " ago"}</dd>
      <dt>groups</dt><dd>${row.group_count === null ? "?" : number(row.group_count)} ${Object.entries(row.groups).map(([verdict, count]) => html`<${Chip} word=${verdict} count=${count}/> `)}</dd><${Facts} row=${row}/></dl>
    ${row.in_force.map((each) => html`<div><${Chip} word=${each.kind}/> ${words(each.message)}${each.by ? ", by " + each.by : ""}</div>`)}
    ${row.notes.map((note) => html`<div class="notice">${note.service}: <${Reason} reason=${note.reason} message=${note.message}/></div>`)}
    <p><a href=${"#/partitions?flow=" + encodeURIComponent(row.flow)}>partitions</a> · <a href=${"#/migration?flow=" + encodeURIComponent(row.flow)}>migration</a></p>
  </section>`)}</div>`;
}

export function Partitions({ flow, search, onSearch, selected, onSelect }) {
  const all = Object.entries(store.tables.partitions).map(([key, row]) => as(store.words.partition, key, row)).filter(ofFlow(flow));
  const [rows, sort, onSort] = useRows(all, search, (row) => `${row.topic}-${row.partition} ${row.state} ${row.reason} ${row.flow}`, ["state", 1]);
  const row = all.find((each) => each.key === selected);
  const columns = [
    { key: "flow", title: "flow", kind: "wide", show: (each) => each.flow },
    { key: "topic", title: "partition", show: (each) => `${each.topic}-${each.partition}`, hint: (each) => each.topic },
    { key: "state", title: "state", show: (each) => html`<${Chip} word=${each.state}/>` },
    { key: "lag", title: "lag", kind: "num", show: (each) => number(each.lag) },
    { key: "rate", title: "records/s", kind: "num wide", show: (each) => number(each.rate) },
    { key: "reason", title: "reason", kind: "wide", show: (each) => `${each.reason} ${each.message}`.trim() }];
  return html`<${Search} search=${search} onSearch=${onSearch} shown=${rows.length} all=${all.length} what="partitions"/>
    <${List} name="partitions" columns=${columns} rows=${rows} sort=${sort} onSort=${onSort} selected=${selected} onSelect=${onSelect} empty="No partition."/>
    ${row && html`<section class="card details" aria-label="details"><h2>${row.topic}-${row.partition} of ${row.flow} <${Chip} word=${row.state}/></h2>
      <dl><dt>position</dt><dd>${number(row.position)} of ${number(row.end)}, ${number(row.lag)} behind</dd><dt>rate</dt><dd>${number(row.rate)} records/s, ${bytes(row.bytes)}/s</dd><dt>offsets</dt><dd>${row.offsets || "?"}</dd>${row.proof && html`<dt>proof</dt><dd>${row.proof}</dd>`}</dl>
      <${Reason} reason=${row.reason} message=${row.message}/></section>`}`;
}

export function Groups({ flow, search, onSearch, selected, onSelect }) {
  const all = Object.entries(store.tables.groups).map(([key, row]) => as(store.words.group, key, row)).filter(ofFlow(flow));
  const [rows, sort, onSort] = useRows(all, search, (row) => `${row.group} ${row.verdict} ${row.flow}`, ["group", 1]);
  const row = all.find((each) => each.key === selected);
  const columns = [
    { key: "flow", title: "flow", kind: "wide", show: (each) => each.flow },
    { key: "group", title: "group", show: (each) => each.group, hint: (each) => each.group },
    { key: "verdict", title: "verdict", show: (each) => html`<${Chip} word=${each.verdict}/>` },
    { key: "partitions", title: "partitions", kind: "num wide", show: (each) => each.partitions },
    { key: "lag", title: "source lag", kind: "num", show: (each) => number(each.lag) },
    { key: "message", title: "why", kind: "wide", show: (each) => each.message }];
  return html`<${Search} search=${search} onSearch=${onSearch} shown=${rows.length} all=${all.length} what="groups"/>
    <${List} name="groups" columns=${columns} rows=${rows} sort=${sort} onSort=${onSort} selected=${selected} onSelect=${onSelect} empty="No group is translated."/>
    ${row && html`<section class="card details" aria-label="details"><h2>${row.group} of ${row.flow}</h2><p>${Object.entries(row.verdicts).map(([verdict, count]) => html`<${Chip} word=${verdict} count=${count}/> `)}</p>
      <dl><dt>lag on the source</dt><dd>${number(row.lag)}</dd><dt>lag on the target</dt><dd>${number(row.target_lag)}</dd>${row.message && html`<dt>why</dt><dd>${row.message}</dd>`}<dt>more</dt><dd><code>twinlog explain group ${row.group}</code></dd></dl></section>`}`;
}

export function Gaps({ flow, search, onSearch, selected, onSelect }) {
  const all = Object.entries(store.tables.gaps).map(([key, row]) => ({ key, ...row })).filter(ofFlow(flow));
  const [rows, sort, onSort] = useRows(all, search, (row) => `${row.topic}-${row.partition} ${row.reason}`, ["key", 1]);
  const row = all.find((each) => each.key === selected);
  const columns = [
    { key: "flow", title: "flow", kind: "wide", show: (each) => each.flow },
    { key: "topic", title: "partition", show: (each) => (each.topic ? `${each.topic}-${each.partition}` : "not known") },
    { key: "reason", title: "reason", show: (each) => html`<span class=${each.acknowledged_by ? "soft" : "bad"}>${each.reason}</span>` },
    { key: "lost", title: "lost", kind: "num", show: (each) => number(each.lost) },
    { key: "found", title: "found", kind: "wide", show: (each) => `${each.found || ""} ${each.acknowledged_by ? "acknowledged by " + each.acknowledged_by : ""}` }];
  return html`<${Search} search=${search} onSearch=${onSearch} shown=${rows.length} all=${all.length} what="gaps"/>
    <${List} name="gaps" columns=${columns} rows=${rows} sort=${sort} onSort=${onSort} selected=${selected} onSelect=${onSelect} empty="No source record is known to be lost."/>
    ${row && html`<section class="card details" aria-label="details"><h2>${row.topic ? `${row.topic}-${row.partition}: offsets ${row.from} to ${row.to}` : row.flow}</h2><${Reason} reason=${row.reason} message=${row.message || ""}/></section>`}`;
}

export function Topology() {
  const names = Object.keys(store.tables.clusters).sort(), flows = Object.values(store.tables.flows);
  for (const row of flows) for (const name of row.flow.split("->")) if (!names.includes(name)) names.push(name);
  if (!names.length) return html`<p class="soft">No cluster is known yet.</p>`;
  const width = 640, height = names.length > 2 ? 440 : 220, middle = [width / 2, height / 2], round = height / 2 - 50;
  const at = (name) => { const index = names.indexOf(name), turn = Math.PI + (2 * Math.PI * index) / names.length; return [middle[0] + Math.cos(turn) * (names.length > 2 ? round * 1.4 : 200), middle[1] + Math.sin(turn) * round]; };
  const away = (name) => Object.values((store.tables.clusters[name] || {}).seen_by || {}).some((seen) => seen === false);
  const described = flows.map((row) => `${row.flow}: ${row.path || "not known"}, lag ${number(row.lag_records)}, delay ${delayOf(row)}`);
  return html`<svg class="graph" viewBox=${`0 0 ${width} ${height}`} role="img" aria-label=${described.join("; ")}>
    <defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="context-stroke"/></marker></defs>
    ${flows.map((row) => { const [source, target] = row.flow.split("->"), [x1, y1] = at(source), [x2, y2] = at(target), long = Math.hypot(x2 - x1, y2 - y1) || 1;
      const nx = -(y2 - y1) / long, ny = (x2 - x1) / long, ux = (x2 - x1) / long, uy = (y2 - y1) / long, bend = 46, cx = (x1 + x2) / 2 + nx * bend, cy = (y1 + y2) / 2 + ny * bend;
      return html`<g key=${row.flow}><path class=${"edge " + tone(row.path || "UNKNOWN")} marker-end="url(#arrow)" d=${`M${x1 + ux * 44 + nx * 8} ${y1 + uy * 24 + ny * 8}Q${cx} ${cy} ${x2 - ux * 44 + nx * 8} ${y2 - uy * 24 + ny * 8}`}/>
        <text class="small" x=${cx} y=${cy}>${row.flow} · ${number(row.records_per_second)}/s · ${delayOf(row)}</text></g>`; })}
    ${names.map((name) => { const [x, y] = at(name); return html`<g key=${name}><rect class=${"node" + (away(name) ? " bad" : "")} x=${x - 42} y=${y - 22} width="84" height="44" rx="9"/><text x=${x} y=${y + 5}>${name}</text></g>`; })}
  </svg><ul>${described.map((each) => html`<li>${each}</li>`)}</ul>
  ${Object.keys(store.tables.paths).length ? html`<h2>Paths that heartbeats took</h2><ul>${Object.values(store.tables.paths).map((path) => html`<li>${[...path.upstream, path.observed_on].join(" → ")}, last seen ${path.last_seen || "never"}</li>`)}</ul>` : ""}`;
}

// The service's own plan of a failover: it is asked again some seconds after it has answered, while it is looked at.
function usePlan(flow) {
  const [plan, setPlan] = useState(null);
  useEffect(() => {
    let timer = 0, open = true;
    const ask = async () => {
      let told;
      try { told = await planOf(flow); } catch (error) { told = { reason: "PEER_UNAVAILABLE", message: error.message }; }
      if (!open) return;
      setPlan(told);
      timer = setTimeout(ask, 12000);
    };
    ask();
    return () => { open = false; clearTimeout(timer); };
  }, [flow]);
  return plan;
}
// What the plan means for go or no-go: what would be refused is no-go, whatever else is well.
function checkOf(plan) {
  const name = "the checkpoint service would move the groups";
  if (!plan) return { name, verdict: "WAIT", message: "it is asked" };
  if (plan.reason) return { name, verdict: "NO_GO", message: `not known: ${plan.message} (${plan.reason})` };
  return plan.blockers.length ? { name, verdict: "NO_GO", message: `blocked: ${plan.blockers.join("; ")}` } : { name, verdict: "GO", message: "yes" };
}
const WORST = ["NO_GO", "WAIT", "GO"];
function Plan({ plan }) {
  if (!plan || plan.reason) return "";
  return html`<h2>What a failover would do now</h2>
    <dl><dt>groups</dt><dd>${number(plan.ready)} of ${number(plan.groups)} continue on ${plan.to}${plan.active ? `, ${number(plan.active)} have members` : ""}</dd>
      <dt>not copied</dt><dd>${plan.records === null ? `not known${plan.at_most === null ? "" : `, at most ${number(plan.at_most)} records`}` : `${number(plan.records)} records`}${plan.seconds === null ? "" : `, about ${seconds(plan.seconds)}`}</dd>
      <dt>fenced</dt><dd>${plan.fenced_topics.length ? plan.fenced_topics.join(", ") : "nothing"}</dd></dl>
    ${plan.warnings.length ? html`<ul>${plan.warnings.map((each) => html`<li>${each}</li>`)}</ul>` : ""}
    ${plan.topics.length ? html`<ul>${plan.topics.slice(0, 10).map((each) => html`<li>${each.topic}: ${each.records === null ? "not known" : `${number(each.records)} records`} ${each.why}</li>`)}</ul>${plan.topics.length + plan.more_topics > 10 ? html`<p class="soft">and ${plan.topics.length + plan.more_topics - 10} more topics</p>` : ""}` : ""}`;
}

export function Migration({ flow }) {
  const flows = Object.values(store.tables.flows).filter(ofFlow(flow)).sort((left, right) => compare(left.flow, right.flow));
  return html`<div class="cards moves">${flows.map((row) => html`<${Move} key=${row.flow} row=${row}/>`)}</div>`;
}
function Move({ row }) {
  const late = {}, heartbeats = store.words.partition.indexOf("heartbeats");
  if (row.lag_records !== 0) for (const each of Object.values(store.tables.partitions)) if (each[0] === row.flow && each[6] !== 0 && !each[heartbeats]) { const known = (late[each[1]] ||= { lag: 0, unknown: 0, reasons: new Set() }); if (each[6] === null) known.unknown += 1; else known.lag += each[6]; if (each[9]) known.reasons.add(each[9]); }
  const topics = Object.entries(late).sort(([, left], [, right]) => right.unknown - left.unknown || right.lag - left.lag);
  const move = store.tables.moves[row.flow], drain = row.drain, plan = usePlan(row.flow);
  const checks = [...row.checks, checkOf(plan)], verdict = WORST.find((each) => checks.some((check) => check.verdict === each));
  return html`<section class="card"><div class="bar"><h2>${row.flow}</h2><span class=${"verdict " + tone(verdict)}>${verdict.replace("_", "-")}</span></div>
    <dl><${Facts} row=${row}/></dl>
    <ul class="checks">${checks.map((check) => html`<li><${Chip} word=${check.verdict}/> <span>${check.name}: ${words(check.message)}</span></li>`)}</ul>
    <dl><dt>draining</dt><dd>${drain.state === "LOSING" ? html`<b class="bad">losing ${number(-drain.records_per_second)} records/s</b>` : drain.state === "DRAINING" ? `${seconds(drain.seconds_left)} left, ${number(drain.records_per_second)} records/s` : drain.state.toLowerCase()}</dd>
      <dt>fences</dt><dd>${row.fences.length ? row.fences.join("; ") : "none: producers can write to the source"}</dd></dl>
    ${topics.length ? html`<h2>Topics that hold it up</h2><ul>${topics.slice(0, 10).map(([topic, known]) => html`<li>${topic}: ${number(known.lag)} records${known.unknown ? `, ${known.unknown} partitions not known` : ""} ${[...known.reasons].join(", ")}</li>`)}</ul>${topics.length > 10 ? html`<p class="soft">and ${topics.length - 10} more</p>` : ""}` : ""}
    <${Plan} plan=${plan}/>
    ${move && (move.running || move.steps.length || move.problem || move.last) ? html`<h2>Last move</h2><p>${move.running ? "is running" : move.failed || move.problem || `${move.last} ${move.finished ? "is done" : "was cut"}`}</p><ul>${move.steps.map((step) => html`<li>${step.name} ${step.state.toLowerCase()}: ${step.message}${step.records_left === null ? "" : `, ${number(step.records_left)} records left`}</li>`)}${move.left_behind.map((each) => html`<li class="bad">not done: ${each}</li>`)}</ul>` : ""}
    <p class="soft">The page moves nothing: <code>twinlog failover plan '${row.flow}'</code></p></section>`;
}

export function Services() {
  return html`<div class="cards">${Object.values(store.tables.services).map((row) => html`<section class="card" key=${row.name}><div class="bar"><h2>${row.name}</h2><${Chip} word=${row.health}/></div>
    <dl><dt>endpoint</dt><dd>${row.endpoint}</dd><dt>version</dt><dd>${row.version || "?"}</dd><dt>port</dt><dd>${row.security || "?"}</dd></dl>${row.reason && html`<${Reason} reason=${row.reason} message=${row.message}/>`}</section>`)}
    ${Object.values(store.tables.clusters).map((row) => html`<section class="card" key=${"cluster " + row.alias}><h2>cluster ${row.alias}</h2><ul>${Object.entries(row.seen_by).map(([service, seen]) => html`<li>${service}: ${seen === null ? "has not looked yet" : seen ? "reaches it" : html`<span class="bad">does not reach it</span>`}</li>`)}</ul>${row.notes.map((note) => html`<${Reason} reason=${note.reason} message=${note.message}/>`)}</section>`)}</div>`;
}
