import { html, render, useEffect, useState } from "./vendor/preact-htm.js";
import { Flows, Gaps, Groups, Migration, Partitions, Services, Topology } from "./views.js";
import { follow, signIn, store, subscribe } from "./stream.js";

const VIEWS = { flows: Flows, partitions: Partitions, groups: Groups, gaps: Gaps, topology: Topology, migration: Migration, services: Services };
const NAMES = Object.keys(VIEWS);

function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { view: path || "flows", flow: new URLSearchParams(query || "").get("flow") || "" };
}
function go(view, flow) { location.hash = `#/${view}${flow ? "?flow=" + encodeURIComponent(flow) : ""}`; }

function Token() {
  const [token, setToken] = useState("");
  const enter = (event) => { event.preventDefault(); signIn(token.trim()); };
  return html`<main><form onSubmit=${enter}><h2><label for="token">This page needs a token</label></h2><p>${store.message}</p>
    <div class="bar"><input id="token" type="password" autocomplete="off" value=${token} onInput=${(event) => setToken(event.target.value)}/><button>Look</button></div></form></main>`;
}

function Notices({ flow, view }) {
  const away = Object.values(store.tables.services).filter((row) => row.health !== "SERVING");
  const unread = Object.entries(store.tables.feeds).filter(([name, row]) => !row.live && !away.some((each) => each.name === name));
  const told = Object.keys(store.tables.flows).length > 0 || away.length > 0;
  return html`${store.link !== "live" && html`<div class="notice" role="alert">${store.message || "connecting"}</div>`}
    ${!VIEWS[view] && html`<div class="notice" role="alert">There is no view “${view}”: ${NAMES.join(", ")}.</div>`}
    ${flow && told && !store.tables.flows[flow] && html`<div class="notice" role="alert">There is no flow “${flow}” here. Flows: ${Object.keys(store.tables.flows).sort().join(", ") || "none"}. <a href=${"#/" + view}>Show all</a></div>`}
    ${away.map((row) => html`<div class="notice" role="alert">${row.name} is ${row.health} at ${row.endpoint}: ${row.message || row.reason}. What it told before stays on the page.</div>`)}
    ${unread.map(([name, row]) => html`<div class="notice" role="alert">${name}: ${row.message} (${row.reason})</div>`)}`;
}

function App() {
  const [, redraw] = useState(0), [where, setWhere] = useState(place()), [search, setSearch] = useState(""), [selected, setSelected] = useState(""), [help, setHelp] = useState(false);
  useEffect(() => subscribe(redraw), []);
  useEffect(() => { const moved = () => { setWhere(place()); setSelected(""); setSearch(""); }; addEventListener("hashchange", moved); return () => removeEventListener("hashchange", moved); }, []);
  useEffect(() => {
    const onKey = (event) => {
      const typing = event.target.matches("input");
      if (event.key === "Escape") { if (typing) event.target.blur(); setSelected(""); setHelp(false); return; }
      if (typing) { if (event.key === "Enter" || event.key === "ArrowDown") document.querySelector(".rows")?.focus(); return; }
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (NAMES[event.key - 1]) go(NAMES[event.key - 1], place().flow);
      else if (event.key === "/") { event.preventDefault(); document.getElementById("search")?.focus(); }
      else if (event.key === "?") setHelp((shown) => !shown);
      else if (["j", "k", "ArrowDown", "ArrowUp"].includes(event.key) && !event.target.closest(".rows")) { const rows = document.querySelector(".rows"); if (rows) { rows.focus(); rows.dispatchEvent(new KeyboardEvent("keydown", { key: event.key, bubbles: false })); event.preventDefault(); } }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  const View = VIEWS[where.view];
  if (store.needsToken) return html`<${Token}/>`;
  return html`<header><h1>Twinlog</h1><nav aria-label="views">${NAMES.map((name, at) => html`<a href=${`#/${name}${where.flow ? "?flow=" + encodeURIComponent(where.flow) : ""}`} aria-current=${where.view === name ? "page" : undefined} title=${`key ${at + 1}`}>${name}</a>`)}</nav>
      <span class="link" role="status">${store.link}${where.flow ? ` · ${where.flow} ` : ""}${where.flow && html`<a href=${"#/" + where.view}>all flows</a>`} <button aria-label="keys" onClick=${() => setHelp(!help)}>?</button></span></header>
    <main>${help && html`<section class="card"><p><kbd>1</kbd>–<kbd>7</kbd> views · <kbd>/</kbd> filter · <kbd>j</kbd> <kbd>k</kbd> or arrows, <kbd>PgUp</kbd> <kbd>PgDn</kbd> rows · <kbd>Esc</kbd> close · <kbd>?</kbd> these keys</p></section>`}
      <${Notices} flow=${where.flow} view=${where.view}/>
      ${View && store.words && html`<${View} key=${where.view} flow=${where.flow} search=${search} onSearch=${setSearch} selected=${selected} onSelect=${setSelected}/>`}</main>`;
}

render(html`<${App}/>`, document.getElementById("app"));
follow();
