// Clusters and flows as a drawn graph, laid out in pixels of the screen so that its words stay readable.
import { html, useLayoutEffect, useRef, useState } from "./vendor/preact-htm.js";
import { amount, joined, number, timeTold } from "./format.js";
import { delayOf } from "./flows.js";
import { LABEL, layout } from "./graph.js";
import { Chip, Empty, flowLink, flowName, tone } from "./parts.js";
import { now, store } from "./stream.js";

const silent = (row) => Object.keys((row && row.silent_brokers) || {}).join(", ");
const reached = (row) => {
  const seen = Object.values((row && row.seen_by) || {});
  return seen.includes(false) ? "bad" : silent(row) ? "warn" : seen.includes(true) ? "good" : "unknown";
};
const REACHED = { good: "reachable", warn: "but for broker", bad: "not reachable", unknown: "not looked at yet" };
const mark = { good: "✓", warn: "!", bad: "✕", unknown: "?", neutral: "·" };
const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

// The worse one of what heartbeats and what partitions say.
const WORST_FIRST = ["bad", "unknown", "warn", "good"];
const worse = (row) => WORST_FIRST.find((name) => name === tone(row.path || "UNKNOWN") || name === row.health.level) || "unknown";
const still = (row) => Object.entries(row.partitions).filter(([state, count]) => count && state !== "RUNNING").map(([state, count]) => `${number(count)} ${state}`).join(", ");

const Edge = ({ row, path }) => html`<path class=${"edge " + worse(row)} marker-end=${`url(#arrow-${worse(row)})`} d=${path}>
  <title>${flowName(row.flow)}</title></path>`;

function Label({ row, label }) {
  const name = worse(row), state = still(row) || (row.path === "ALIVE" ? `ALIVE · ${joined(delayOf(row).value)}` : row.path || "UNKNOWN");
  return html`<a href=${flowLink("flows", row.flow)} aria-label=${`flow ${flowName(row.flow)}`}><title>${flowName(row.flow)}</title>
    <rect class="label" x=${label.x - label.width / 2} y=${label.y - LABEL.height / 2} width=${label.width} height=${LABEL.height} rx="8"/>
    <text class=${"strong " + name} x=${label.x} y=${label.y - 4}>${cut(`${mark[name]} ${state}`, label.width / 7)}</text>
    <text x=${label.x} y=${label.y + 13}>${cut(`${joined(amount(row.records_per_second))}/s · lag ${joined(amount(row.lag_records))}`, label.width / 7)}</text></a>`;
}

function Node({ name, place: [x, y], node }) {
  const row = store.tables.clusters[name], state = reached(row);
  return html`<g><rect class=${"node " + state} x=${x - node.width / 2} y=${y - node.height / 2} width=${node.width} height=${node.height} rx="12"/>
    <text class="name" x=${x} y=${y - 3}>${cut(name, node.width / 10)}</text>
    <text class=${state} x=${x} y=${y + 17}>${cut(`${mark[state]} ${REACHED[state]}${state === "warn" ? ` ${silent(row)}` : ""}`, node.width / 7)}</text></g>`;
}

function Graph({ names, flows }) {
  const place = useRef(null), [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const watcher = new ResizeObserver(() => setWidth(place.current.clientWidth));
    watcher.observe(place.current);
    return () => watcher.disconnect();
  }, []);
  const drawn = width > 0 && layout(names, flows.map((row) => row.flow.split("->")), width);
  const described = flows.map((row) => `${flowName(row.flow)}: ${row.path || "UNKNOWN"}, delay ${joined(delayOf(row).value)}, lag ${number(row.lag_records)}`).join("; ");
  return html`<div class="canvas" ref=${place}>${drawn && html`<svg class="graph" width=${width} height=${drawn.height} role="group" aria-label=${described}>
    <defs>${WORST_FIRST.map((name) => html`<marker id=${`arrow-${name}`} class=${name} viewBox="0 0 10 10" refX="8" refY="5" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L10 5L0 10z"/></marker>`)}</defs>
    ${flows.map((row, at) => html`<${Edge} key=${row.flow} row=${row} path=${drawn.edges[at].path}/>`)}
    ${flows.map((row, at) => drawn.edges[at].label && html`<${Label} key=${`label ${row.flow}`} row=${row} label=${drawn.edges[at].label}/>`)}
    ${names.map((name) => html`<${Node} key=${name} name=${name} place=${drawn.at[name]} node=${drawn.node}/>`)}</svg>`}</div>`;
}

export function Topology({ flow }) {
  const flows = Object.values(store.tables.flows).filter((row) => !flow || row.flow === flow).sort((left, right) => (left.flow < right.flow ? -1 : 1));
  const names = new Set(flow ? [] : Object.keys(store.tables.clusters));
  for (const row of flows) for (const name of row.flow.split("->")) names.add(name);
  if (!names.size) return html`<${Empty} title="No cluster is known yet" tone="unknown"><p>Clusters and flows appear as soon as a service reports them.</p></${Empty}>`;
  const paths = Object.values(store.tables.paths);
  return html`<section class="card"><h2 class="hidden">Topology</h2><${Graph} names=${[...names].sort()} flows=${flows}/></section>
    <div class="cards"><section class="card"><h2>Flows</h2><table><thead><tr><th>Flow</th><th>Heartbeats</th><th class="num">Delay</th><th class="num">Lag</th></tr></thead>
      <tbody>${flows.map((row) => html`<tr key=${row.flow}><td><a href=${flowLink("flows", row.flow)}>${flowName(row.flow)}</a></td><td><${Chip} word=${row.path || "UNKNOWN"}/></td><td class="num">${joined(delayOf(row).value)}</td><td class="num">${number(row.lag_records)}</td></tr>`)}</tbody></table></section>
    <section class="card"><h2>Paths that heartbeats took</h2>${paths.length ? html`<ul class="plain">${paths.map((path) => html`<li>${[...path.upstream, path.observed_on].join(" → ")} <span class="soft">${path.topic}, last seen ${path.last_seen ? timeTold(path.last_seen, now()) : "never"}</span></li>`)}</ul>` : html`<p class="soft">No heartbeat has arrived yet.</p>`}</section></div>`;
}
