// Partitions, groups and gaps: lists of thousands, with what is known of the row that is chosen.
import { html } from "./vendor/preact-htm.js";
import { age, ago, bytes, counted, joined, number, rate, seconds, timeTold } from "./format.js";
import { Icon } from "./icons.js";
import { Filter, List, Split, useRows } from "./list.js";
import { Chip, Command, Empty, Remedy, Words, flowName } from "./parts.js";
import { groupsOf, now, partitionsOf, store } from "./stream.js";

const STATES = ["FAULTED", "STALLED", "BACKOFF", "WAITING", "PAUSED", "RUNNING"];
const TRANSLATED = new Set(["EXACT", "PRESERVED", "BEFORE_START", "UP_TO_DATE", "FLOOR", "MAPPED", "ACTIVE_ON_TARGET"]);
const quoted = (text) => (/^[\w.,:/@%+=-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\"'\"'")}'`);
const flowColumn = (flow) =>
  flow || Object.keys(store.tables.flows).length < 2 ? [] : [{ key: "flow", title: "Flow", kind: "wide", show: (row) => flowName(row.flow) }];
const template = (name, flow) => name + (flowColumn(flow).length ? " manyflows" : "");

function Said({ reason, message }) {
  if (!reason && !message) return "";
  return html`<div class="said"><p><b>${reason}</b> <${Words} text=${message || ""}/></p><${Remedy} reason=${reason}/></div>`;
}

export function Partitions({ flow, search, onSearch, selected, onSelect, only, onOnly }) {
  const all = partitionsOf(flow), troubled = all.filter((row) => row.troubled);
  const worstFirst = { state: (row) => STATES.indexOf(row.state) * 2 - (row.troubled ? 1 : 0) };
  const [rows, sort, onSort] = useRows(only ? troubled : all, search,
    (row) => `${row.topic}-${row.partition} ${row.state} ${row.reason} ${row.flow} ${row.proof}${row.foreign ? " FOREIGN" : ""}`, ["state", 1], worstFirst);
  const row = selected && all.find((each) => each.key === selected);
  const columns = [...flowColumn(flow),
    { key: "topic", title: "Partition", show: (each) => `${each.topic}-${each.partition}`, hint: (each) => `${each.topic}-${each.partition}` },
    { key: "state", title: "State", show: (each) => html`<${Chip} word=${each.state}/>` },
    { key: "lag", title: "Lag", kind: "num", show: (each) => number(each.lag) },
    { key: "oldest_ms", title: "Oldest", kind: "num wide", show: (each) => (each.lag ? joined(seconds(age(each.oldest_ms, now()))) : "") },
    { key: "rate", title: "Records/s", kind: "num wide", show: (each) => number(each.rate) },
    { key: "reason", title: "Reason", kind: "wide", show: (each) => `${each.reason} ${each.message}`.trim() || (each.foreign ? `FOREIGN ${counted(each.foreign, "record")} of others` : each.left_out), hint: (each) => each.message }];
  const list = html`<${List} name=${template("partitions", flow)} columns=${columns} rows=${rows} sort=${sort} onSort=${onSort} selected=${selected}
    onSelect=${onSelect} empty=${all.length ? "No partition matches the filter." : "No partition is known yet."}/>`;
  return html`<${Filter} search=${search} onSearch=${onSearch} only=${only} onOnly=${onOnly} troubled=${troubled.length} shown=${rows.length} all=${all.length} what="partitions"/>
    <${Split} list=${list} title=${row && `${row.topic}-${row.partition}`} onClose=${() => onSelect("")}>${row && html`
      <p><${Chip} word=${row.state}/> <span class="soft">${flowName(row.flow)}</span></p>
      <${Said} reason=${row.reason} message=${row.message}/>
      <dl><dt>Position</dt><dd>${number(row.position)} of ${number(row.end)}</dd><dt>Lag</dt><dd>${row.lag === null ? "?" : counted(row.lag, "record")}</dd>
        <dt>Oldest</dt><dd>${row.lag ? joined(seconds(age(row.oldest_ms, now()))) : "nothing to copy"}</dd>
        <dt>Rate</dt><dd>${number(row.rate)} records/s, ${joined(rate(bytes(row.bytes)))}</dd>
        <dt>Offsets</dt><dd>${row.offsets || "not decided yet"}</dd><dt>Proof</dt><dd>${row.proof ? html`<${Chip} word=${row.proof}/>` : "not compared"}</dd></dl>
      <${Command} line=${`twinlog explain topic ${quoted(row.flow)} ${quoted(row.topic)}`}/>`}</${Split}>`;
}

export function Groups({ flow, search, onSearch, selected, onSelect, only, onOnly }) {
  const all = groupsOf(flow), without = all.filter((row) => !TRANSLATED.has(row.verdict));
  const [rows, sort, onSort] = useRows(only ? without : all, search, (row) => `${row.group} ${row.verdict} ${row.flow}`, ["verdict", 1],
    { verdict: (row) => `${TRANSLATED.has(row.verdict) ? 1 : 0} ${row.verdict}` });
  const row = selected && all.find((each) => each.key === selected);
  const columns = [...flowColumn(flow),
    { key: "group", title: "Group", show: (each) => each.group, hint: (each) => each.group },
    { key: "verdict", title: "Verdict", show: (each) => html`<${Chip} word=${each.verdict}/>` },
    { key: "lag", title: "Source lag", kind: "num", show: (each) => number(each.lag) },
    { key: "target_lag", title: "Target lag", kind: "num wide", show: (each) => number(each.target_lag) },
    { key: "partitions", title: "Partitions", kind: "num wide", show: (each) => number(each.partitions) },
    { key: "message", title: "Why", kind: "wide", show: (each) => each.message, hint: (each) => each.message }];
  const list = html`<${List} name=${template("groups", flow)} columns=${columns} rows=${rows} sort=${sort} onSort=${onSort} selected=${selected}
    onSelect=${onSelect} empty=${all.length ? "No group matches the filter." : "No group is translated yet."}/>`;
  return html`<${Filter} search=${search} onSearch=${onSearch} only=${only} onOnly=${onOnly} troubled=${without.length} shown=${rows.length} all=${all.length} what="groups"/>
    <${Split} list=${list} title=${row && row.group} onClose=${() => onSelect("")}>${row && html`
      <p class="chips">${Object.entries(row.verdicts).map(([verdict, count]) => html`<${Chip} key=${verdict} word=${verdict} count=${count}/>`)} <span class="soft">${flowName(row.flow)}</span></p>
      ${row.message && html`<p class="said"><${Words} text=${row.message}/></p>`}
      <dl><dt>Partitions</dt><dd>${number(row.partitions)}</dd><dt>Source lag</dt><dd>${number(row.lag)}</dd><dt>Target lag</dt><dd>${number(row.target_lag)}</dd></dl>
      <${Command} line=${`twinlog explain group ${quoted(row.flow)} ${quoted(row.group)}`}/>`}</${Split}>`;
}

export function Gaps({ flow, search, onSearch, selected, onSelect }) {
  const all = Object.entries(store.tables.gaps).map(([key, row]) => ({ key, ...row })).filter((row) => !flow || row.flow === flow);
  const [rows, sort, onSort] = useRows(all, search, (row) => `${row.topic}-${row.partition} ${row.reason} ${row.flow}`, ["found", -1]);
  const row = selected && all.find((each) => each.key === selected);
  const open = (each) => (each.acknowledged_by ? "neutral" : each.topic ? "bad" : "unknown");
  const columns = [...flowColumn(flow),
    { key: "topic", title: "Partition", show: (each) => (each.topic ? `${each.topic}-${each.partition}` : "not known"), hint: (each) => each.topic },
    { key: "reason", title: "Reason", show: (each) => html`<span class=${"chip " + open(each)}><${Icon} name=${open(each)}/>${each.reason}</span>` },
    { key: "lost", title: "Lost", kind: "num", show: (each) => number(each.lost) },
    { key: "from", title: "Offsets", kind: "wide", show: (each) => (each.topic ? `${each.from} to ${each.to - 1}` : "") },
    { key: "found", title: "Found", kind: "wide", hint: (each) => (each.found ? timeTold(each.found, now()) : ""), show: (each) => `${each.found ? ago(age(new Date(each.found), now())) : ""}${each.acknowledged_by ? ` · acknowledged by ${each.acknowledged_by}` : ""}` }];
  const list = html`<${List} name=${template("gaps", flow)} columns=${columns} rows=${rows} sort=${sort} onSort=${onSort} selected=${selected}
    onSelect=${onSelect} empty=${all.length ? "No gap matches the filter." : html`<${Empty} title="Nothing is lost" tone="good"><p>Gaps would appear here with their exact offsets.</p></${Empty}>`}/>`;
  return html`<${Filter} search=${search} onSearch=${onSearch} shown=${rows.length} all=${all.length} what="gaps"/>
    <${Split} list=${list} title=${row && (row.topic ? `${row.topic}-${row.partition}` : row.flow)} onClose=${() => onSelect("")}>${row && html`
      <${Said} reason=${row.reason} message=${row.message}/>
      ${row.topic && html`<dl><dt>Offsets</dt><dd>${row.from} to ${row.to - 1}</dd><dt>Lost</dt><dd>${counted(row.lost, "offset")}</dd><dt>Found</dt><dd>${timeTold(row.found, now())}</dd>
        <dt>Acknowledged</dt><dd>${row.acknowledged_by ? `by ${row.acknowledged_by}` : "no"}</dd></dl>
        ${!row.acknowledged_by && html`<${Command} line=${`twinlog gaps ack ${quoted(row.flow)} --topic ${quoted(row.topic)} --partition ${row.partition} --from ${row.from}`}/>`}`}`}</${Split}>`;
}
