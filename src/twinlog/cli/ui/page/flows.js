// The first view: how each flow is doing, and what needs somebody.
import { html } from "./vendor/preact-htm.js";
import { ago, amount, bytes, counted, joined, number, rate, seconds, timeTold } from "./format.js";
import { Icon } from "./icons.js";
import { compare } from "./list.js";
import { Chip, Command, Empty, Facts, Issue, Remedy, StateBar, Words, flowLink, flowName, tone } from "./parts.js";
import { Spark } from "./spark.js";
import { now, partitionsOf, store } from "./stream.js";

const SHOWN_REASONS = 3;
const SEVERITY = ["bad", "warn", "good"];
const OLD_SECONDS = 300; // The recovery point objective of the alerts.

function Tile({ title, value, note, tone: name = "", row, index, show, limit }) {
  const [text, unit] = value;
  return html`<div class=${"tile " + name}>
    <h3>${title}</h3>
    <p class="value"><b>${text}</b>${unit && html` <span>${unit}</span>`}</p>
    <p class="note">${note || " "}</p>
    <${Spark} samples=${store.history[row.flow] || []} index=${index} show=${show} limit=${limit}/></div>`;
}

// What was measured last says nothing of a path that is silent or not known now.
export function delayOf(row) {
  if (row.path === "ALIVE") return { value: seconds(row.delay_seconds), note: row.delay_basis === "LOG_ENDS" ? "by log ends" : "by heartbeats", tone: "" };
  if (row.path === "SILENT") return { value: ["silent", ""], note: row.heartbeat_age_seconds === null ? "no heartbeat yet" : `last heartbeat ${ago(row.heartbeat_age_seconds)}`, tone: "bad" };
  return { value: ["?", ""], note: "not known", tone: "" };
}

function drainNote(row) {
  const { state, seconds_left: left, records_per_second: pace } = row.drain;
  if (state === "DRAINED") return "nothing to copy";
  if (state === "DRAINING" && left !== null) return `copied in ${joined(seconds(left))}`;
  return state === "LOSING" && row.health.word === "Falling behind" ? `${number(-pace)} more each second` : "";
}

function Tiles({ row }) {
  const delay = delayOf(row), behind = row.health.word === "Falling behind" || row.lag_seconds > OLD_SECONDS ? "warn" : "";
  const copied = row.last_copied_age_seconds === null ? "" : `last copied ${ago(row.last_copied_age_seconds)}`;
  const [records, recordsUnit] = amount(row.records_per_second);
  return html`<div class="tiles">
    <${Tile} title="Rate" value=${[records, `${recordsUnit} records/s`.trim()]} note=${copied} row=${row} index=${1} show=${(value) => `${joined(amount(value))}/s`}/>
    <${Tile} title="Throughput" value=${rate(bytes(row.bytes_per_second))} note=${row.exactly_once ? "exactly once" : ""} row=${row} index=${4} show=${(value) => joined(rate(bytes(value)))}/>
    <${Tile} title="Lag" value=${[joined(amount(row.lag_records)), "records"]} note=${drainNote(row)} tone=${behind} row=${row} index=${2} show=${(value) => joined(amount(value))}/>
    <${Tile} title="Oldest not copied" value=${seconds(row.lag_seconds)} note=${row.lag_seconds === null ? "" : row.lag_seconds ? "age of the oldest record" : "everything is copied"} tone=${behind} row=${row} index=${5} show=${(value) => joined(seconds(value))} limit=${OLD_SECONDS}/>
    <${Tile} title="End-to-end delay" value=${delay.value} note=${delay.note} tone=${delay.tone} row=${row} index=${3} show=${(value) => joined(seconds(value))}/>
  </div>`;
}

// Partitions that do not run, by reason: how many, which, what it means and what to do.
function worst(flow) {
  const found = {};
  for (const row of partitionsOf(flow)) {
    if (!row.troubled) continue;
    const name = row.reason || (row.proof === "DIFFERENT" ? "DIFFERENT" : row.foreign ? "FOREIGN" : row.state);
    const known = (found[name] ||= { reason: name, state: row.state, names: [], message: row.message, lag: 0 });
    known.names.push(`${row.topic}-${row.partition}`);
    known.lag += row.lag || 0;
  }
  const rank = (each) => ["FAULTED", "STALLED", "BACKOFF", "WAITING", "PAUSED", "RUNNING"].indexOf(each.state);
  return Object.values(found).sort((left, right) => compare(rank(left), rank(right)) || right.names.length - left.names.length);
}

// One list, the worst first: what is wrong with the flow, and partitions that need help, by reason.
function Wrong({ row: { flow, health, partitions } }) {
  const reasons = worst(flow), remedies = Object.fromEntries(health.issues.map((issue) => [issue.reason, issue.command]));
  const whole = (level) => health.issues.filter((issue) => !partitions[issue.reason] && (issue.level === "bad") === (level === "bad")).map((issue) => html`<${Issue} issue=${issue}/>`);
  const parts = (level) => reasons.slice(0, SHOWN_REASONS).filter((each) => (tone(each.state) === "bad") === (level === "bad")).map((each) => html`
    <li key=${each.reason} class=${"part " + tone(each.state)}><p><${Chip} word=${each.state}/> <b>${each.reason}</b> in <a href=${flowLink("partitions", flow, `&find=${encodeURIComponent(each.reason)}`)}>${counted(each.names.length, "partition")}</a>: ${each.names.slice(0, 3).join(", ")}${each.names.length > 3 ? ", …" : ""}${each.lag ? ` · ${counted(each.lag, "record")} behind` : ""}</p>
      ${each.message && html`<p class="said"><${Words} text=${each.message}/></p>`}
      ${each.state === "PAUSED" && remedies.PAUSED ? html`<${Command} line=${remedies.PAUSED}/>` : html`<${Remedy} reason=${each.reason}/>`}</li>`);
  const all = ["bad", "warn"].flatMap((level) => [...parts(level), ...whole(level)]);
  return all.length ? html`<ul class="issues">${all}${reasons.length > SHOWN_REASONS && html`<li><a href=${flowLink("partitions", flow)}>${counted(reasons.length - SHOWN_REASONS, "more reason")}</a></li>`}</ul>` : "";
}

// What somebody ordered and holds, and what services say that is no problem.
function InForce({ row }) {
  const told = new Set(row.health.issues.map((issue) => issue.reason));
  const holds = row.in_force.filter((each) => !told.has(each.kind) && each.kind !== "WAITING");
  const notes = row.health.notes;
  if (!holds.length && !notes.length) return "";
  return html`<section class="inforce"><h3>In force</h3><ul>
    ${holds.map((each) => html`<li><${Chip} word=${each.kind}/> ${each.about === row.flow ? "" : `${flowName(each.about)}: `}<${Words} text=${each.message}/>${each.by ? ` by ${each.by}` : ""} ${each.command && html`<${Command} line=${each.command}/>`}</li>`)}
    ${notes.map((note) => html`<li><${Chip} word="UNKNOWN"/> ${note.message} <span class="reason">${note.reason}</span></li>`)}</ul></section>`;
}

function Card({ row }) {
  const { health } = row;
  const ready = row.topics.READY, partitions = Object.values(row.partitions).reduce((sum, count) => sum + count, 0);
  return html`<section class=${"card flow " + health.level} aria-label=${`flow ${row.flow}`}>
    <div class="title"><h2>${flowName(row.flow)}</h2><span class=${"state " + health.level}><${Icon} name=${health.level}/>${health.word}</span>
      <span class="soft">${[[ready, "topic"], [partitions || null, "partition"], [row.group_count, "group"]].filter(([count]) => (count ?? null) !== null).map(([count, word]) => counted(count, word)).join(" · ")}</span></div>
    <${Tiles} row=${row}/>
    <${Facts} facts=${row.facts}/>
    <${Wrong} row=${row}/>
    <${InForce} row=${row}/>
    <${StateBar} counts=${row.partitions} label="partitions"/>
    <div class="foot"><dl>${[["Partitions", row.partitions], ["Offsets of groups", row.groups]].map(([title, counts]) => Object.values(counts).some(Boolean) && html`<dt>${title}</dt><dd class="chips">${Object.entries(counts).filter(([, count]) => count).map(([word, count]) => html`<${Chip} key=${word} word=${word} count=${count}/>`)}</dd>`)}</dl>
    <nav class="links" aria-label=${`more of ${row.flow}`}>${["partitions", "groups", "gaps", "migration"].map((view) => html`<a href=${flowLink(view, row.flow)}>${view}</a>`)}</nav></div>
  </section>`;
}

export function Flows({ flow }) {
  const flows = Object.values(store.tables.flows).filter((row) => !flow || row.flow === flow);
  if (!flows.length) {
    return html`<${Empty} title="No flow is known yet" tone="unknown">
      <p>Flows appear as soon as a service reports them. Check that <code>twinlog run</code> is running, and that its file enables a flow, such as <code>A->B.enabled = true</code>.</p></${Empty}>`;
  }
  flows.sort((left, right) => compare(SEVERITY.indexOf(left.health.level), SEVERITY.indexOf(right.health.level)) || compare(left.flow, right.flow));
  return html`<div class="cards flows">${flows.map((row) => html`<${Card} key=${row.flow} row=${row}/>`)}</div><${Changes}/>`;
}

// What became wrong and what is over, since the server of the page was started.
function Changes() {
  const changes = (store.tables.page.page || {}).changes || [];
  return changes.length ? html`<section class="card changes"><h2>What changed</h2><ul class="plain">${[...changes].reverse().map((each) => html`<li class=${"text " + (each.begins ? each.level : "good")}><${Icon} name=${each.begins ? each.level : "good"}/>
    <span><span class="soft">${timeTold(each.at_ms, now())}</span> ${flowName(each.about)}: ${each.begins ? html`<${Words} text=${each.message}/>` : "over"} <span class="reason">${each.reason}</span></span></li>`)}</ul></section>` : "";
}
