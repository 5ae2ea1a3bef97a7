// The four services and the clusters that they reach.
import { html } from "./vendor/preact-htm.js";
import { Icon } from "./icons.js";
import { Chip, Remedy, Words, flowName } from "./parts.js";
import { store } from "./stream.js";

const DOES = {
  source: "copies records", checkpoint: "translates offsets of groups, and moves groups",
  heartbeat: "measures the delay", configsync: "syncs topics, configs and ACLs",
};
const READY = { true: ["good", "ready"], false: ["warn", "not ready yet"], null: ["unknown", "readiness not known"] };

const Service = ({ row, flows }) => html`<tr><th scope="row">${row.name}<span class="soft">${DOES[row.name] || ""}</span></th>
  <td data-title="State"><${Chip} word=${row.health}/>${row.health === "SERVING" && html` <span class=${"text " + READY[String(row.ready)][0]}>${READY[String(row.ready)][1]}</span>`}
    ${row.reason && html`<div class="said"><p><b>${row.reason}</b> <${Words} text=${row.message}/></p><${Remedy} reason=${row.reason}/></div>`}</td>
  <td data-title="Role">${Object.entries(row.roles).map(([flow, role]) => html`<span class="role"><${Chip} word=${role.toUpperCase()}/>${flows > 1 ? ` ${flowName(flow)}` : ""}${row.owners[flow] && html` <span class="soft"><${Words} text=${`${row.owners[flow]}: \`twinlog move '${flow}' --service ${row.name} --to HOST --dry-run\``}/></span>`}</span> `)}</td>
  <td data-title="Address">${row.endpoint}</td><td data-title="Process">${row.pid ? `${row.pid} on ${row.host}` : ""}</td><td data-title="Version">${row.version || "?"}</td><td data-title="Security">${row.security || "?"}</td></tr>`;

const SEEN = { true: ["good", "reaches it"], false: ["bad", "does not reach it"], null: ["unknown", "has not looked yet"] };

const Cluster = ({ row }) => html`<section class="card"><div class="title"><h2>Cluster ${row.alias}</h2></div>
  <ul class="plain">${Object.entries(row.seen_by).map(([service, seen]) => html`<li class=${"text " + SEEN[String(seen)][0]}><${Icon} name=${SEEN[String(seen)][0]}/>${service} ${SEEN[String(seen)][1]}</li>`)}</ul>
  ${row.notes.map((note) => html`<div class="said"><p><b>${note.reason}</b> ${note.service}: <${Words} text=${note.message}/></p><${Remedy} reason=${note.reason}/></div>`)}</section>`;

export function Services() {
  const rows = Object.values(store.tables.services), files = [...new Set(rows.map((row) => row.config).filter(Boolean))], flows = Object.keys(store.tables.flows).length;
  return html`<section class="card"><div class="title"><h2>Services</h2><span class="soft">${files.join(", ")}</span></div>
    <table class="stacked"><thead><tr><th>Service</th><th>State</th><th>Role</th><th>Address</th><th>Process</th><th>Version</th><th>Security</th></tr></thead><tbody>${rows.map((row) => html`<${Service} key=${row.name} row=${row} flows=${flows}/>`)}</tbody></table></section>
  <div class="cards services">${Object.values(store.tables.clusters).map((row) => html`<${Cluster} key=${row.alias} row=${row}/>`)}</div>`;
}
