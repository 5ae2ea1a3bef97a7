// The data of the page: words once, then the event stream of the server, for ever. fetch instead of EventSource:
// it sends a token, and tells why the server refuses.
const listeners = new Set();
export const store = {
  tables: { services: {}, flows: {}, clusters: {}, partitions: {}, groups: {}, gaps: {}, paths: {}, moves: {}, feeds: {} },
  history: {}, words: null, link: "connecting", message: "", needsToken: false, version: 0, token: "",
};
const KEPT = 150;
let frame = 0;
export function subscribe(listener) { listeners.add(listener); return () => listeners.delete(listener); }
function changed() {
  store.version += 1;
  if (!frame) frame = requestAnimationFrame(() => { frame = 0; listeners.forEach((listener) => listener(store.version)); });
}
function headers() { return store.token ? { Authorization: `Bearer ${store.token}` } : {}; }

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
  changed();
}
function remember(flow, sample) {
  const samples = (store.history[flow] ||= []);
  if (!samples.length || samples[samples.length - 1][0] < sample[0]) samples.push(sample);
  if (samples.length > KEPT) samples.shift();
}

async function read(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
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

async function refused(response) {
  const told = await response.json().catch(() => ({ message: response.statusText }));
  store.needsToken = response.status === 401;
  store.link = "refused";
  store.message = told.message;
  changed();
}

export async function follow() {
  for (let wait = 500; ; wait = Math.min(wait * 2, 10000)) {
    try {
      const words = await fetch("api/words", { headers: headers() });
      if (!words.ok) { await refused(words); if (store.needsToken) return; } else {
        store.words = await words.json();
        const response = await fetch("api/stream", { headers: headers() });
        if (!response.ok) await refused(response);
        else {
          store.link = "live"; store.message = ""; store.needsToken = false; wait = 500; changed();
          await read(response);
          throw new Error("the stream ended");
        }
      }
    } catch (error) {
      store.link = "lost"; store.message = `the page's own server does not answer: ${error.message}`; changed();
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
