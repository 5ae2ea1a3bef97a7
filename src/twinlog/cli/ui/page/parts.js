import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { number, timesTold } from "./format.js";
import { Icon } from "./icons.js";
import { now, store } from "./stream.js";

const GOOD = ["RUNNING", "SERVING", "ALIVE", "GO", "EXACT", "MAPPED", "PRESERVED", "UP_TO_DATE", "EQUAL", "DRAINED", "READY", "OWNER", "DONE"];
const WARN = ["PAUSED", "WAITING", "BACKOFF", "WAIT", "DRAINING", "STEADY", "FLOOR", "NOT_READY", "MOVE", "INCOMPLETE"];
const PLAIN = ["ACTIVE_ON_TARGET", "STANDBY", "PAUSE", "LIMIT", "DELAY", "OFFSETS", "RULE", "MANUAL", "HELD", "FENCE", "MOVED", "PENDING", "BOTH_WAYS", "TRANSFORM", "LENT_CORES", "SPARK_UI", "CYCLE"];
const TONES = {
  ...Object.fromEntries(GOOD.map((word) => [word, "good"])),
  ...Object.fromEntries(WARN.map((word) => [word, "warn"])),
  ...Object.fromEntries(PLAIN.map((word) => [word, "neutral"])),
  UNKNOWN: "unknown",
};
export const tone = (word) => TONES[word] || "bad";
export const shown = (word) => (word === "NO_GO" ? "NO-GO" : word);

export const Chip = ({ word, count }) => html`<span class=${"chip " + tone(word)}>
  <${Icon} name=${tone(word)}/>${count === undefined ? "" : `${number(count)} `}${shown(word)}</span>`;

const OF_A_FILE = /^twinlog (adopt|convert|local|preflight|run) /;

// The command with the --config and --endpoint of the services that the page asks.
function whole(line) {
  const places = (store.tables.page.page || {}).same_services;
  return places && line.startsWith("twinlog ") && !OF_A_FILE.test(line) ? `${line} ${places}` : line;
}

// Commands stand between backticks.
export const Words = ({ text }) =>
  timesTold(text, now()).split("`").map((part, at) => (at % 2 ? html`<code title=${whole(part)}>${part}</code>` : part));

const COPIED_MS = 2000;

// A command line. What is copied is complete.
export function Command({ line }) {
  const [done, setDone] = useState("");
  const code = useRef(null);
  useEffect(() => {
    if (done === "selected") getSelection().selectAllChildren(code.current);
    if (done !== "copied") return undefined;
    const timer = setTimeout(() => setDone(""), COPIED_MS);
    return () => clearTimeout(timer);
  }, [done]);
  // Without TLS a browser keeps the clipboard to itself: the command is selected instead.
  const copy = () => Promise.resolve()
    .then(() => navigator.clipboard.writeText(whole(line)))
    .then(() => setDone("copied"), () => setDone("selected"));
  return html`<span class="command"><code ref=${code} title=${whole(line)}>${done === "selected" ? whole(line) : line}</code>
    <button type="button" aria-label=${`copy ${line}`} title="copy" onClick=${copy}>
      <${Icon} name=${done ? "done" : "copy"}/><span role="status">${done}</span></button></span>`;
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// What a reason means and what to do, as docs/reasons.md has it.
export function Remedy({ reason }) {
  const known = store.words.reasons[reason];
  return known ? html`<p class="remedy"><${Words} text=${sentence(known.meaning)}/>. <b>Remedy:</b> <${Words} text=${known.remedy}/>.</p>` : "";
}

// What the services said themselves.
export const Said = ({ issue }) => issue.details.length
  ? html`<details><summary>details</summary><ul>${issue.details.map((each) => html`<li>${each}</li>`)}</ul></details>` : "";

export const Issue = ({ issue, about }) => html`<li class=${"issue " + issue.level}>
  <${Icon} name=${issue.level}/>
  <div><p>${about ? html`<b>${issue.about}</b> ` : ""}<${Words} text=${issue.message}/> <span class="reason">${issue.reason}</span></p>
    <${Remedy} reason=${issue.reason}/>
    ${issue.command && html`<${Command} line=${issue.command}/>`}<${Said} issue=${issue}/></div></li>`;

export const Facts = ({ facts }) => html`<ul class="facts" aria-label="what both clusters show">${facts.map((fact) => html`
  <li class=${"fact " + fact.tone}><${Icon} name=${fact.tone}/>
    <div><span class="question">${fact.question}</span> <b>${fact.answer}</b> <span class="detail">${fact.detail}</span>${fact.command && html` <${Command} line=${fact.command}/>`}</div></li>`)}</ul>`;

// How a whole is divided: the widths say how many.
export const StateBar = ({ counts, label }) => {
  const parts = Object.entries(counts).filter(([, count]) => count);
  return html`<div class="statebar" role="img" aria-label=${`${label}: ${parts.map(([state, count]) => `${count} ${state}`).join(", ")}`}>
    ${parts.map(([state, count]) => html`<span key=${state} class=${tone(state)} style=${{ flexGrow: count }}></span>`)}</div>`;
};

export const Empty = ({ title, children, tone: name = "neutral" }) =>
  html`<div class=${"empty " + name}><${Icon} name=${name}/><h2>${title}</h2>${children}</div>`;

export const flowLink = (view, flow, more = "") =>
  `#/${view}${flow ? `?flow=${encodeURIComponent(flow)}${more}` : ""}`;

export const flowName = (flow) => flow.replace("->", " → ");
