// The four services and the clusters that they reach.
import { html } from "./vendor/preact-htm.js";
import { Icon } from "./icons.js";
import { Chip, Command, Remedy, Words, flowName } from "./parts.js";
import { store } from "./stream.js";

const DOES = {
  source: "copies records", checkpoint: "translates offsets of groups, and moves groups",
  heartbeat: "measures the delay", configsync: "syncs topics, configs and ACLs",
};
const READY = { true: ["good", "ready"], false: ["warn", "not ready yet"], null: ["unknown", "readiness not known"] };

function Service({ row }) {
  const [name, ready] = READY[String(row.ready)];
  const roles = Object.entries(row.roles), health = row.health === "SERVING" ? "good" : "bad";
  return html`<section class=${"card service " + health}><div class="title"><h2>${row.name}</h2><${Chip} word=${row.health}/></div>
    <p class=${"text " + name}>${row.health === "SERVING" && html`<${Icon} name=${name}/>${ready} · `}${DOES[row.name] || ""}</p>
    ${row.reason && html`<div class="said"><p><b>${row.reason}</b> <${Words} text=${row.message}/></p><${Remedy} reason=${row.reason}/></div>`}
    ${roles.length ? html`<table><thead><tr><th>Flow</th><th>Role of this process</th></tr></thead><tbody>${roles.map(([flow, role]) => html`<tr key=${flow}><td>${flowName(flow)}</td><td><${Chip} word=${role.toUpperCase()}/></td></tr>`)}</tbody></table>` : ""}
    <dl><dt>Address</dt><dd>${row.endpoint}</dd><dt>Version</dt><dd>${row.version || "?"}</dd><dt>Security</dt><dd>${row.security || "?"}</dd>
      ${row.host && html`<dt>Process</dt><dd>${row.pid} on ${row.host}</dd>`}${row.config && html`<dt>File</dt><dd>${row.config}</dd>`}</dl>
  </section>`;
}

const SEEN = { true: ["good", "reaches it"], false: ["bad", "does not reach it"], null: ["unknown", "has not looked yet"] };

const Cluster = ({ row }) => html`<section class="card"><div class="title"><h2>Cluster ${row.alias}</h2></div>
  <ul class="plain">${Object.entries(row.seen_by).map(([service, seen]) => html`<li class=${"text " + SEEN[String(seen)][0]}><${Icon} name=${SEEN[String(seen)][0]}/>${service} ${SEEN[String(seen)][1]}</li>`)}</ul>
  ${row.notes.map((note) => html`<div class="said"><p><b>${note.reason}</b> ${note.service}: <${Words} text=${note.message}/></p><${Remedy} reason=${note.reason}/></div>`)}</section>`;

export const Services = () => html`<div class="cards services">${Object.values(store.tables.services).map((row) => html`<${Service} key=${row.name} row=${row}/>`)}</div>
  <div class="cards services">${Object.values(store.tables.clusters).map((row) => html`<${Cluster} key=${row.alias} row=${row}/>`)}</div>
  <section class="card"><h2>For a bug report</h2><p>Configuration without secrets, versions, states, metrics and logs in one file:</p><${Command} line="twinlog debug bundle"/></section>`;
