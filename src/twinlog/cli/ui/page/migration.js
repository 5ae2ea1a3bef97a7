// The hour of a migration: may groups move now, what holds them up, and for how long.
import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { counted, joined, number, seconds } from "./format.js";
import { Icon } from "./icons.js";
import { compare } from "./list.js";
import { Chip, Command, Empty, Facts, Words, flowName, shown, tone } from "./parts.js";
import { planOf, partitionsOf, store } from "./stream.js";

const AGAIN_MS = 12000;
const TOPICS_SHOWN = 8;
const WORST = ["NO_GO", "WAIT", "GO"];
const PLAN_TITLE = "The checkpoint service can move the groups", GROUPS_TITLE = "Groups have offsets on";

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
      timer = setTimeout(ask, AGAIN_MS);
    };
    ask();
    return () => { open = false; clearTimeout(timer); };
  }, [flow]);
  return plan;
}

// The checks of the status, which is of now, and of the plan: of the same check the worse one. A plan reads the offsets of
// groups itself, the status has those of the last pass.
function joinedChecks(row, plan) {
  const own = !plan ? [{ title: PLAN_TITLE, verdict: "WAIT", message: "waiting for its plan", command: "" }]
    : plan.reason ? [{ title: PLAN_TITLE, verdict: "NO_GO", message: `not known: ${plan.message} (${plan.reason})`, command: `twinlog failover plan '${row.flow}'` }] : plan.checks;
  const rank = (check) => WORST.indexOf(check.verdict), alike = (checks, one) => checks.find((check) => check.title === one.title) || { verdict: "" };
  const asked = row.checks.filter((check) => !(plan && plan.checks && check.title.startsWith(GROUPS_TITLE)));
  return [...asked.filter((check) => { const other = alike(own, check); return rank(other) < 0 || rank(check) <= rank(other); }),
    ...own.filter((check) => { const other = alike(row.checks, check); return rank(other) < 0 || rank(check) < rank(other); })];
}

function sentence(verdict, checks, row, target, warned) {
  const fails = checks.filter((check) => check.verdict === "NO_GO").length;
  if (verdict === "GO") return `Groups can move to ${target} now${warned ? `, with ${counted(warned, "warning")}` : ""}.`;
  if (verdict === "NO_GO") return `Do not move groups yet: ${counted(fails, "check")} ${fails === 1 ? "fails" : "fail"}.`;
  const left = row.drain.state === "DRAINING" ? row.drain.seconds_left : null;
  if (row.drain.state === "DRAINED") return "Wait: see the checklist.";
  return left === null ? `Wait: not everything is on ${target} yet.` : `Wait: the backlog is copied in about ${joined(seconds(left))}.`;
}

const Check = ({ check }) => html`<li class=${"check " + tone(check.verdict)}><${Icon} name=${tone(check.verdict)}/>
  <div><p class="headline"><b>${check.title}</b>${check.verdict !== "GO" && html`<span class="verdict-word">${shown(check.verdict)}</span>`}</p>
    <p class="message"><${Words} text=${check.message}/></p>${check.command && html`<${Command} line=${check.command}/>`}</div></li>`;

// Against the largest lag of the last minutes.
function Drain({ row }) {
  const lags = (store.history[row.flow] || []).map((sample) => sample[2]).filter((lag) => lag !== null);
  const peak = Math.max(row.lag_records || 0, ...lags, 1), done = row.lag_records === null ? 0 : 1 - row.lag_records / peak;
  const { state, seconds_left: left, records_per_second: pace } = row.drain;
  const told = {
    DRAINED: "The backlog is copied.",
    DRAINING: `${counted(row.lag_records, "record")} left, ${number(pace)} fewer each second${left === null ? "" : `: about ${joined(seconds(left))}`}`,
    LOSING: `${counted(row.lag_records, "record")} left, and ${number(-pace)} more each second`,
    STEADY: `${counted(row.lag_records, "record")} left; the lag does not change`,
    UNKNOWN: row.lag_records === null ? "The lag is not known." : `${counted(row.lag_records, "record")} left, no estimate yet`,
  }[state];
  const name = state === "LOSING" ? "bad" : state === "DRAINED" ? "good" : state === "UNKNOWN" && row.lag_records === null ? "unknown" : "warn";
  return html`<section class="drain"><h3>Backlog</h3>
    <div class=${"meter " + name} role="progressbar" aria-label="backlog" aria-valuemin="0" aria-valuemax="100" aria-valuenow=${Math.round(done * 100)}><span style=${{ width: `${done * 100}%` }}></span></div>
    <p class=${"text " + name}><${Icon} name=${name}/>${told}</p></section>`;
}

function lateTopics(flow) {
  const late = {};
  for (const row of partitionsOf(flow)) {
    if (row.lag === 0 || row.heartbeats) continue;
    const known = (late[row.topic] ||= { topic: row.topic, lag: 0, unknown: 0, reasons: new Set() });
    if (row.lag === null) known.unknown += 1; else known.lag += row.lag;
    if (row.reason) known.reasons.add(row.reason);
  }
  return Object.values(late).sort((left, right) => right.unknown - left.unknown || right.lag - left.lag);
}

function Late({ row }) {
  const topics = row.lag_records === 0 ? [] : lateTopics(row.flow), most = Math.max(1, ...topics.map((each) => each.lag));
  if (!topics.length) return "";
  return html`<section><h3>Topics that hold it up</h3><ul class="bars">${topics.slice(0, TOPICS_SHOWN).map((each) => html`<li key=${each.topic}>
    <span class="name">${each.topic}</span><span class="bar"><span style=${{ width: `${(100 * each.lag) / most}%` }}></span></span>
    <span class="num">${counted(each.lag, "record")}${each.unknown ? `, ${counted(each.unknown, "partition")} not known` : ""}</span>
    <span class="reason">${[...each.reasons].join(", ")}</span></li>`)}</ul>
    ${topics.length > TOPICS_SHOWN && html`<p class="soft">and ${counted(topics.length - TOPICS_SHOWN, "more topic")}</p>`}</section>`;
}

function Plan({ plan }) {
  if (!plan || plan.reason) return "";
  // Where the plan knows how many, the backlog beside it says it, and of now.
  const lost = plan.records !== null ? "" : plan.at_most === null ? "?" : `≤ ${number(plan.at_most)}`;
  const more = plan.topics.length + plan.more_topics - TOPICS_SHOWN;
  return html`<section class="plan"><h3>What a failover would do now</h3>
    <ul class="figures"><li><b>${number(plan.ready)} of ${number(plan.groups)}</b> groups continue on ${plan.to}</li>
      <li><b>${number(plan.active_before)}</b> groups have members on ${plan.from}</li>
      ${plan.active_there ? html`<li><b>${number(plan.active_there)}</b> groups have members on ${plan.to}</li>` : ""}
      ${lost && html`<li><b>${lost}</b> records not copied</li>`}
      ${plan.fenced_topics.length ? html`<li><b>${number(plan.fenced_topics.length)}</b> topics to fence: ${plan.fenced_topics.slice(0, 5).join(", ")}</li>` : ""}</ul>
    ${plan.topics.length ? html`<ul>${plan.topics.slice(0, TOPICS_SHOWN).map((each) => html`<li key=${each.topic}>${each.topic}: ${each.records === null ? "not known" : counted(each.records, "record")}${each.why ? ` · ${each.why}` : ""}</li>`)}</ul>
      ${more > 0 ? html`<p class="soft">and ${counted(more, "more topic")}</p>` : ""}` : ""}
</section>`;
}

function LastMove({ move }) {
  if (!move || !(move.running || move.steps.length || move.problem || move.last)) return "";
  const told = move.running ? "is running" : move.failed || move.problem || `${move.last} ${move.finished ? "is finished" : "was interrupted"}`;
  return html`<section><h3>Last move</h3><p>${told}</p><ol class="steps">${move.steps.map((step) => html`<li key=${step.name}><${Chip} word=${step.state}/> <b>${step.name}</b> ${step.message}${step.records_left === null ? "" : ` · ${counted(step.records_left, "record")} left`}</li>`)}</ol>
    ${move.left_behind.length ? html`<ul>${move.left_behind.map((each) => html`<li class="text bad"><${Icon} name="bad"/>not done: ${each}</li>`)}</ul>` : ""}</section>`;
}

function Move({ row }) {
  const plan = usePlan(row.flow), target = row.flow.split("->")[1];
  const checks = joinedChecks(row, plan);
  const verdict = WORST.find((each) => checks.some((check) => check.verdict === each)), warnings = (plan && plan.warnings) || [];
  return html`<section class=${"card move " + tone(verdict)} aria-label=${`migration of ${row.flow}`}>
    <div class=${"verdict " + tone(verdict)}><${Icon} name=${tone(verdict)}/><div><h2>${flowName(row.flow)} <strong>${shown(verdict)}</strong></h2><p>${sentence(verdict, checks, row, target, warnings.length)}</p></div></div>
    ${warnings.length ? html`<ul class="warnings">${warnings.map((each) => html`<li class="text warn"><${Icon} name="warn"/><span><${Words} text=${each}/></span></li>`)}</ul>` : ""}
    <${Facts} facts=${row.facts}/>
    <div class="columns"><div><h3>Checklist</h3><ul class="checks">${[...checks].sort((left, right) => compare(WORST.indexOf(left.verdict), WORST.indexOf(right.verdict))).map((check) => html`<${Check} key=${check.title} check=${check}/>`)}</ul></div>
      <div><${Drain} row=${row}/><${Late} row=${row}/>
        <section><h3>Fences</h3>${row.fences.length ? html`<ul>${row.fences.map((each) => html`<li>${each}</li>`)}</ul>` : html`<p>None: producers can write to ${row.flow.split("->")[0]}.</p>`}</section>
        <${Plan} plan=${plan}/><${LastMove} move=${store.tables.moves[row.flow]}/>
        <section><h3>Next</h3><p>This page is read-only. Move groups from a terminal:</p><${Command} line=${`twinlog failover plan '${row.flow}'`}/>${verdict === "GO" && html`<${Command} line=${`twinlog failover run '${row.flow}'`}/>`}</section></div></div>
  </section>`;
}

export function Migration({ flow }) {
  const flows = Object.values(store.tables.flows).filter((row) => !flow || row.flow === flow).sort((left, right) => compare(left.flow, right.flow));
  if (!flows.length) return html`<${Empty} title="No flow is known yet" tone="unknown"><p>Flows appear as soon as a service reports them.</p></${Empty}>`;
  return html`<div class="cards moves">${flows.map((row) => html`<${Move} key=${row.flow} row=${row}/>`)}</div>`;
}
