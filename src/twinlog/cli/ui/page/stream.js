// The data of the page: words once, then the event stream of the server, for ever. fetch instead of EventSource:
// it sends a token, and tells why the server refuses.
const listeners = new Set();
const KEPT = 150;
const SILENT_MS = 30000; // the server says something every ten seconds
const FIRST_WAIT_MS = 500, LONGEST_WAIT_MS = 10000;
export const store = {
  tables: { page: {}, services: {}, flows: {}, clusters: {}, partitions: {}, groups: {}, gaps: {}, paths: {}, moves: {}, feeds: {} },
  history: {}, words: null, link: "connecting", message: "", needsToken: false, version: 0, token: "",
};
let frame = 0, asOf = 0, asOfSeen = 0;

// The time of the data, by the clock of the server that told them.
export const now = () => (store.tables.page.page || {}).as_of_ms || Date.now();

export function subscribe(listener) { listeners.add(listener); return () => listeners.delete(listener); }
function changed() {
  store.version += 1;
  if (!frame) frame = requestAnimationFrame(() => { frame = 0; listeners.forEach((listener) => listener(store.version)); });
}
const headers = () => (store.token ? { Authorization: `Bearer ${store.token}` } : {});

// Seconds since the services were asked last, by this machine's clock alone; null before the first time.
export const dataAge = () => (asOf ? (performance.now() - asOfSeen) / 1000 : null);

// Rows of partitions and groups are lists on the wire. They are made objects once for each change of the data.
function remembered(make) {
  const known = new Map();
  let version = -1;
  return (flow) => {
    if (version !== store.version) { known.clear(); version = store.version; }
    if (!known.has(flow)) known.set(flow, make(flow));
    return known.get(flow);
  };
}
function rowsOf(table, fields, flow) {
  const at = fields.indexOf("flow"), rows = [];
  for (const [key, row] of Object.entries(table)) {
    if (flow && row[at] !== flow) continue;
    const found = { key };
    fields.forEach((field, index) => { found[field] = row[index]; });
    rows.push(found);
  }
  return rows;
}
const ON_PURPOSE = new Set(["DELAYED", "UNTIL_REACHED", "OWNED_ELSEWHERE"]);
export const partitionsOf = remembered((flow) => {
  const rows = store.words ? rowsOf(store.tables.partitions, store.words.partition, flow) : [];
  for (const row of rows) row.troubled = row.proof === "DIFFERENT" || row.foreign > 0 || ((row.state !== "RUNNING" || row.reason !== "") && !ON_PURPOSE.has(row.reason));
  return rows;
});
export const groupsOf = remembered((flow) => (store.words ? rowsOf(store.tables.groups, store.words.group, flow) : []));

function take(event, data) {
  if (event === "snapshot") {
    store.history = data.history || {};
    for (const name of Object.keys(store.tables)) store.tables[name] = data[name] || {};
  } else if (event === "delta") {
    for (const [name, { changed: rows, removed }] of Object.entries(data)) {
      const table = store.tables[name];
      if (!table) continue;
      Object.assign(table, rows);
      for (const key of removed) delete table[key];
      if (name === "flows") Object.entries(rows).forEach(([flow, row]) => remember(flow, row.sample));
    }
  } else return;
  const told = store.tables.page.page;
  if (told && told.as_of_ms !== asOf) { asOf = told.as_of_ms; asOfSeen = performance.now(); }
  changed();
}
function remember(flow, sample) {
  const samples = (store.history[flow] ||= []);
  if (!samples.length || samples[samples.length - 1][0] < sample[0]) samples.push(sample);
  if (samples.length > KEPT) samples.shift();
}

async function read(response, silence) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    silence.heard();
    const ends = (rest + value).split("\n\n");
    rest = ends.pop();
    for (const each of ends) {
      let event = "", data = "";
      for (const line of each.split("\n")) {
        if (line.startsWith("event: ")) event = line.slice(7);
        else if (line.startsWith("data: ")) data += line.slice(6);
      }
      if (data) take(event, JSON.parse(data));
    }
  }
}
// A network that was cut says nothing: a stream that is silent for long is given up.
function silence() {
  const stop = new AbortController();
  let timer = 0;
  const heard = () => { clearTimeout(timer); timer = setTimeout(() => stop.abort(new Error(`no data for ${SILENT_MS / 1000} s`)), SILENT_MS); };
  heard();
  return { heard, signal: stop.signal, end: () => clearTimeout(timer) };
}

async function refused(response) {
  const told = await response.json().catch(() => ({ message: response.statusText }));
  store.needsToken = response.status === 401;
  store.link = "refused";
  store.message = told.message;
  changed();
}

async function followOnce() {
  const quiet = silence();
  try {
    const words = await fetch("api/words", { headers: headers(), signal: quiet.signal });
    if (!words.ok) return refused(words);
    store.words = await words.json();
    const response = await fetch("api/stream", { headers: headers(), signal: quiet.signal });
    if (!response.ok) return refused(response);
    store.link = "live"; store.message = ""; store.needsToken = false; changed();
    await read(response, quiet);
    throw new Error("the stream has ended");
  } finally { quiet.end(); }
}

export async function follow() {
  for (let wait = FIRST_WAIT_MS; ; wait = Math.min(wait * 2, LONGEST_WAIT_MS)) {
    try {
      await followOnce();
      if (store.needsToken) return;
    } catch (error) {
      if (store.link === "live") wait = FIRST_WAIT_MS;
      store.link = "lost"; store.message = `The page's server does not answer: ${error.message}.`; changed();
    }
    await new Promise((done) => setTimeout(done, wait));
  }
}
// What a failover would do now. The server asks the service once for all browsers, at most every ten seconds.
export async function planOf(flow) {
  const answer = await fetch(`api/plan?flow=${encodeURIComponent(flow)}`, { headers: headers() });
  return answer.json();
}
export function signIn(token) { store.token = token; store.needsToken = false; follow(); }
