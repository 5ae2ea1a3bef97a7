import { html, render, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { Flows } from "./flows.js";
import { ago, amount, counted, joined, number, seconds, timeTold } from "./format.js";
import { Icon } from "./icons.js";
import { Gaps, Groups, Partitions } from "./lists.js";
import { Migration } from "./migration.js";
import { Command, Said, Words, flowLink, flowName } from "./parts.js";
import { Services } from "./services.js";
import { dataAge, follow, partitionsOf, signIn, store, subscribe } from "./stream.js";
import { Topology } from "./topology.js";

const VIEWS = { flows: Flows, partitions: Partitions, groups: Groups, gaps: Gaps, topology: Topology, migration: Migration, services: Services };
const NAMES = Object.keys(VIEWS);
const LISTS = new Set(["partitions", "groups", "gaps"]);
const STALE_SECONDS = 15;
const TOLD_BY = { gaps: "source", moves: "checkpoint", paths: "heartbeat" };

function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?"), asked = new URLSearchParams(query || "");
  return { view: path || "flows", flow: asked.get("flow") || "", find: asked.get("find") || "" };
}

// What the page says of itself: whether what it shows is of now.
function freshness() {
  const old = dataAge();
  if (store.link !== "live") return { name: store.link === "connecting" ? "unknown" : "bad", word: store.link === "connecting" ? "connecting" : "disconnected", old };
  if (old === null) return { name: "unknown", word: "waiting for data", old };
  const { as_of_ms: asked, told_ms: told } = store.tables.page.page;
  if (told && told < asked) return { name: "bad", word: "as of", at: told, old: old + (asked - told) / 1000 };
  return old > STALE_SECONDS ? { name: "warn", word: "stale", old } : { name: "good", word: "live", old };
}

// The icon and the title of the browser's tab say the verdict, too.
function useTab(verdict) {
  useEffect(() => {
    document.title = verdict.level === "good" ? "Twinlog" : `${verdict.title} · Twinlog`;
    const colour = { good: "1a7f4b", warn: "b26a00", bad: "c62828", unknown: "6b7682" }[verdict.level];
    const shape = verdict.level === "bad" ? '<path d="M5 1h6l4 4v6l-4 4H5l-4-4V5z"' : verdict.level === "warn" ? '<path d="M8 1l7 14H1z"' : '<circle cx="8" cy="8" r="7"';
    document.querySelector("link[rel=icon]").href = `data:image/svg+xml,${encodeURIComponent(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">${shape} fill="#${colour}"/></svg>`)}`;
  }, [verdict.level, verdict.title]);
}

function verdictNow(fresh) {
  const told = store.tables.page.page;
  if (!told) return { level: "unknown", title: store.link === "live" ? "No data yet" : fresh.word === "connecting" ? "Connecting" : "Disconnected", issues: [] };
  return fresh.name === "good" || fresh.at ? told : { level: "unknown", title: fresh.word === "stale" ? "Stale data" : "Disconnected", issues: [] };
}

function Badge({ name, flow }) {
  if (name === "partitions") {
    const count = partitionsOf(flow).filter((row) => row.troubled).length;
    return count ? html` <span class="badge bad" aria-label=${`${count} in trouble`}>${number(count)}</span>` : "";
  }
  if (name === "gaps") {
    const count = Object.values(store.tables.gaps).filter((row) => !row.acknowledged_by && (!flow || row.flow === flow)).length;
    return count ? html` <span class="badge bad" aria-label=${`${count} open`}>${number(count)}</span>` : "";
  }
  const away = name === "services" && Object.values(store.tables.services).filter((row) => row.health !== "SERVING").length;
  return away ? html` <span class="badge bad" aria-label=${`${away} away`}>${away}</span>` : "";
}

function Header({ where }) {
  const fresh = freshness(), verdict = verdictNow(fresh), first = verdict.issues[0];
  useTab(verdict);
  const [, tick] = useState(0);
  useEffect(() => { const timer = setInterval(() => tick((count) => count + 1), 1000); return () => clearInterval(timer); }, []);
  const nav = useRef(null);
  useEffect(() => nav.current.querySelector("[aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" }), [where.view]);
  document.body.classList.toggle("old", fresh.name === "bad" || fresh.name === "warn");
  return html`<header><div class="top">
      <h1><${Icon} name="logo"/><span>Twinlog</span></h1>
      <div class="status" role="status"><a class=${"overall " + verdict.level} href="#/flows"><${Icon} name=${verdict.level}/><b>${verdict.title}</b>
        <span class="first">${verdict.level === "unknown" ? "" : first ? headline(first) : summary()}</span></a></div>
      <span class=${"fresh " + fresh.name} title="age of the data"><${Icon} name=${fresh.name}/>${fresh.word}${fresh.at ? html` <span class="age">${timeTold(fresh.at, fresh.at + 1000 * fresh.old)}</span>` : fresh.old === null ? "" : html` <span class="age">${fresh.old < 2 ? "now" : `${joined(seconds(Math.round(fresh.old)))} old`}</span>`}</span></div>
    <nav aria-label="views" ref=${nav}>${NAMES.map((name) => html`<a key=${name} href=${flowLink(name, where.flow)} aria-current=${where.view === name ? "page" : undefined}>${name}<${Badge} name=${name} flow=${where.flow}/></a>`)}
      ${where.flow && html`<span class="scope">only ${flowName(where.flow)} <a href=${`#/${where.view}`}>show all flows</a></span>`}</nav>
    ${fresh.word === "disconnected" && html`<${Notice}><b>Disconnected.</b> ${store.message} The page shows its last data and connects again by itself.</${Notice}>`}
    ${fresh.word === "stale" && html`<${Notice} name="warn"><b>Stale.</b> The services were asked last ${ago(fresh.old)}. The page shows its last data.</${Notice}>`}</header>`;
}

const headline = ({ about, message }) => {
  const words = message.replaceAll("`", "");
  return words.startsWith(about) ? words : `${flowName(about)}: ${words}`;
};

// What goes through all flows together, where nothing is wrong.
function summary() {
  const flows = Object.values(store.tables.flows), sum = (field) => flows.reduce((total, row) => total + (row[field] || 0), 0);
  const delays = flows.map((row) => (row.path === "ALIVE" ? row.delay_seconds : null)).filter((delay) => delay !== null);
  return flows.length ? `${joined(amount(sum("records_per_second")))} records/s · lag ${joined(amount(sum("lag_records")))}${delays.length ? ` · delay ${joined(seconds(Math.max(...delays)))}` : ""}` : "";
}

const Notice = ({ name = "bad", children }) => html`<div class=${"notice " + name} role="alert"><${Icon} name=${name}/><div>${children}</div></div>`;

// What concerns the page, a service or a cluster, above every view.
function Notices({ flow, view }) {
  const told = store.tables.page.page;
  const gone = new Set(Object.values(store.tables.services).filter((row) => row.health !== "SERVING").map((row) => row.name));
  const unread = Object.entries(store.tables.feeds).filter(([name, row]) => !row.live && !gone.has(TOLD_BY[name] || name));
  const others = ((told && told.issues) || []).filter((issue) => !issue.about.includes("->") && issue.reason !== "NO_FLOWS");
  return html`${!VIEWS[view] && html`<${Notice}>There is no view “${view}”: ${NAMES.join(", ")}.</${Notice}>`}
    ${flow && told && !store.tables.flows[flow] && html`<${Notice}>There is no flow “${flow}” here. Flows: ${Object.keys(store.tables.flows).sort().join(", ") || "none"}. <a href=${`#/${view}`}>Show all</a></${Notice}>`}
    ${others.map((issue) => html`<${Notice} key=${issue.about + issue.reason} name=${issue.level}><b>${issue.about}:</b> <${Words} text=${issue.message}/> <span class="reason">${issue.reason}</span>${gone.has(issue.about) || issue.about === "twinlog" ? " The page keeps its last data." : ""}
      ${view === "flows" && issue.command && html`<p><${Command} line=${issue.command}/></p>`}${view === "flows" && html`<${Said} issue=${issue}/>`}</${Notice}>`)}
    ${unread.map(([name, row]) => html`<${Notice} name="warn"><b>${name}:</b> ${row.message} <span class="reason">${row.reason}</span></${Notice}>`)}`;
}

function Token() {
  const [token, setToken] = useState("");
  const enter = (event) => { event.preventDefault(); signIn(token.trim()); };
  return html`<main class="signin"><form class="card" onSubmit=${enter}><h1><${Icon} name="logo"/> Twinlog</h1><h2><label for="token">This page needs a token</label></h2>
    <p class="soft">${store.message}</p><input id="token" type="password" autocomplete="off" value=${token} onInput=${(event) => setToken(event.target.value)}/><button>Sign in</button></form></main>`;
}

const Loading = () => html`<div class="cards" aria-busy="true" aria-label="loading">${[0, 1].map((each) => html`<div key=${each} class="card skeleton"><span></span><span></span><span></span></div>`)}<p class="hidden" role="status">Waiting for the services to answer</p></div>`;

// No letter is a shortcut: those who speak to their computer would press them. Tab, Enter and arrows reach everything.
function onKey(event, close) {
  const typing = event.target.matches("input");
  if (event.key === "Escape") { if (typing) event.target.blur(); close(); }
  else if (typing && (event.key === "Enter" || event.key === "ArrowDown")) document.querySelector(".list")?.focus();
}

function App() {
  const [, redraw] = useState(0), [where, setWhere] = useState(place()), [search, setSearch] = useState(where.find);
  const [selected, setSelected] = useState(""), [only, setOnly] = useState(false);
  useEffect(() => subscribe(redraw), []);
  useEffect(() => {
    const moved = () => { setWhere(place()); setSelected(""); setSearch(place().find); setOnly(false); };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  useEffect(() => {
    const pressed = (event) => onKey(event, () => setSelected(""));
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
  if (store.needsToken) return html`<${Token}/>`;
  const View = VIEWS[where.view], loaded = store.words && store.tables.page.page;
  return html`<${Header} where=${where}/>
    <main class=${LISTS.has(where.view) ? "fixed" : ""}><${Notices} flow=${where.flow} view=${where.view}/>
      ${View && (loaded ? html`<${View} key=${where.view} flow=${where.flow} search=${search} onSearch=${setSearch} selected=${selected} onSelect=${setSelected} only=${only} onOnly=${setOnly}/>` : html`<${Loading}/>`)}</main>`;
}

render(html`<${App}/>`, document.getElementById("app"));
follow();
