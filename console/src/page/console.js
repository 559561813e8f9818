// The console: fetches JSON, listens to the stream, and shows both. It changes nothing.

import { Chart, angleOf, bar, bytes, clock, count, drawRing, h, micros, percent, rate, show, spark, span } from "./draw.js";

const $ = (id) => document.getElementById(id);
const LOST_AFTER_MS = 10_000;
const HOT_EVERY_MS = 5000;
const ERRORS = "Requests that nodes answered with an error. Clients retry many of them at other nodes automatically, for example during a join";
const state = { now: null, ring: null, history: [], everyMs: 5000, found: null, nodes: [], zones: [] };

const colour = (node) => `n${Math.max(0, state.nodes.indexOf(node)) % 10}`;
const zone = (name) => `z${Math.max(0, state.zones.indexOf(name)) % 5}`;
const swatch = (name) => h("span", { class: `swatch ${name}`, "aria-hidden": "true" });

async function ask(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (!answer.ok) throw new Error((await answer.text()).trim() || `HTTP ${answer.status}`);
  return answer.json();
}

// A column has a name, a help text, a function from row to content, and a flag for numbers.
function table(id, columns, rows, label) {
  const head = h("tr", {}, columns.map((it) => h("th", { scope: "col", title: it.help, class: it.num ? "num" : "" }, it.name)));
  const body = rows.map((row) => h("tr", {}, columns.map((it, i) => h(i ? "td" : "th", { scope: i ? null : "row", class: `${it.num ? "num" : ""} ${it.kind ?? ""}`.trim() }, it.of(row)))));
  show($(id).tHead, head);
  show($(id).tBodies[0], body.length ? body : [h("tr", {}, h("td", { colspan: columns.length }, label))]);
}

// Problems, worst first.

function attention({ status }) {
  const list = [];
  const add = (how, text) => list.push(h("li", { class: how }, text));
  if (status.without_quorum) add("bad", `Partitions without a quorum: ${count(status.without_quorum)}. Their keys cannot be read or written.`);
  const isSmall = status.nodes.length < status.replicas && status.nodes.every((node) => node.reachable);
  const advice = isSmall ? `${count(status.nodes.length)} nodes cannot hold ${status.replicas} replicas. Add nodes.` : "restart the nodes that are down, or replace them.";
  if (status.under_replicated) add("", `${count(status.under_replicated)} of ${count(status.partitions)} partitions lack a replica: ${advice}`);
  if (!status.topology_leader) add("", "The topology group has no leader: joins and leaves must wait.");
  for (const node of status.nodes) {
    const who = `Node ${node.id}`;
    if (!node.reachable) add("bad", `${who} does not answer: ${node.problem}`);
    else if (!node.ready && node.state === "active") add("", `${who} is not ready: ${node.problem}`);
    if (node.disk_full) add("bad", `${who}: the disk is full. The node refuses writes until there is space.`);
    if (node.damaged_slices) add("", `${who}: ${count(node.damaged_slices)} slices are damaged. Check the disk.`);
    const days = node.certificate_ends_at_ms ? (node.certificate_ends_at_ms - state.now.at_ms) / 86.4e6 : Infinity;
    if (days < 14) add(days < 0 ? "bad" : "", days < 0 ? `${who}: the certificate has expired.` : `${who}: the certificate expires in ${Math.floor(days)} days. If it comes from files, replace them. A node of a --secure cluster renews it by itself: its log says why it did not.`);
    if (node.exposed?.length) add("", `${who} serves ${node.exposed.join(", ")} to other machines without TLS.`);
  }
  show($("attention").firstElementChild, list);
  $("attention").hidden = !list.length;
}

function summary({ status, samples }) {
  const last = wholeSample(samples);
  const sum = (field) => status.nodes.reduce((all, node) => all + node[field], 0);
  const ready = status.nodes.filter((it) => it.ready).length;
  const requests = last ? perSecond(last) : null;
  const keys = sum("sealed_keys");
  const tile = (name, help, value, small, how = "") => h("div", {}, h("dt", { title: help }, name), h("dd", { class: how }, value, small ? h("small", {}, small) : null));
  show($("summary"),
    tile("Nodes ready", "Nodes that serve their partitions", `${ready} of ${status.nodes.length}`, "", ready === status.nodes.length ? "good" : "bad"),
    tile("Requests", "Gets, writes, batches, scans and commands of Redis clients, over the last five seconds", requests === null ? "–" : rate(requests)),
    tile("Get, 99 %", "99 of 100 gets took at most this long; the figure may be up to twice too high", micros(last?.get_p99_us)),
    tile("Write, 99 %", "99 of 100 puts and deletes took at most this long; the figure may be up to twice too high", micros(last?.write_p99_us)),
    tile("Errors", ERRORS, last ? rate(last.faults_per_s) : "–", "", last?.faults_per_s ? "warn" : ""),
    tile("Records", "Records on all nodes: a key counts once for each of its replicas", count(sum("records")), "with replicas"),
    tile("Data", "Bytes of keys and values on all nodes", bytes(sum("payload_bytes")), "with replicas"),
    tile("Index", "RAM of the indexes per sealed key", keys ? `${((8 * sum("index_bytes")) / keys).toFixed(1)}` : "–", keys ? "bits per sealed key" : "nothing sealed yet"));
}

const perSecond = (it) => it.gets_per_s + it.writes_per_s + it.batches_per_s + it.scans_per_s + it.redis_per_s;

/// The newest complete sample: one that all nodes have delivered.
const wholeSample = (samples) => samples.at(samples.length > 1 && state.now.at_ms - samples.at(-1).from_ms < 2 * state.everyMs - 2000 ? -2 : -1);

function ring() {
  if (!state.ring) return;
  const { ring, now } = state;
  state.nodes = ring.nodes.map((it) => it.id);
  state.zones = [...new Set(ring.nodes.map((it) => it.zone))].sort();
  show($("ring-picture"), drawRing(ring, now?.heat ?? [], state.found, colour, zone));
  const all = ring.nodes.reduce((sum, it) => sum + it.replicas, 0) || 1;
  table("shares", [
    { name: "node", of: (it) => [swatch(colour(it.id)), `${it.id}`] },
    { name: "zone", help: "Failure domain: replicas of a partition are in distinct zones if there are enough zones", of: (it) => [state.zones.length > 1 ? swatch(zone(it.zone)) : null, it.zone] },
    { name: "state", of: (it) => it.state },
    { name: "share", help: "Share of all replicas of partitions", num: true, of: (it) => percent(it.replicas / all) },
    { name: "partitions", help: "Partitions that the node has a replica of", num: true, of: (it) => count(it.replicas) },
    { name: "leads", help: "Partitions that the node leads: it coordinates their operations", num: true, of: (it) => count(it.leads) },
    { name: "weight", help: "Share of the load relative to a normal node", num: true, of: (it) => `${it.weight_percent} %` },
  ], ring.nodes, "no nodes");
  const legend = [h("li", {}, "Outer ring: the node with the first replica of each partition."), h("li", {}, swatch("heat"), "Inner ring: current accesses, darker is busier.")];
  if (state.zones.length > 1) legend.push(h("li", {}, "Thin ring: zones."));
  if (ring.moving.length) legend.push(h("li", {}, `Ticks outside: ${count(ring.moving.length)} moving partitions, in the colour of the receiving node.`));
  show($("ring-legend"), legend);
}

function change({ status, progress }) {
  const it = status.transition;
  const last = status.last_transition;
  const name = (of) => `${of.kind}${of.node ? ` of node ${of.node}` : ""}${of.replaced ? ` for node ${of.replaced}` : ""}`;
  const fact = (what, value, help) => [h("dt", { title: help }, what), h("dd", {}, value)];
  const ended = last && h("p", { class: "note" }, `Last: ${name(last)}${last.aborted ? ", aborted" : ""}: ${count(last.partitions_total)} partitions, ${bytes(last.bytes_moved)} in ${span((last.ended_at_ms - last.started_at_ms) / 1000)}.`);
  if (!it) {
    show($("change"), h("p", {}, "Nothing moves."), ended ?? h("p", { class: "note" }, "kvctl join-node HOST:PORT --plan shows what a join would move."));
    return;
  }
  const share = it.partitions_total ? it.partitions_done / it.partitions_total : 0;
  show($("change"),
    h("p", {}, h("b", {}, name(it)), it.aborted ? ", being undone" : "", ` · ${percent(share)}`),
    h("progress", { max: it.partitions_total, value: it.partitions_done, "aria-label": `${name(it)}: partitions moved` }),
    h("dl", { class: "facts" },
      fact("partitions", `${count(it.partitions_done)} of ${count(it.partitions_total)}, ${count(it.partitions_active)} under way`),
      fact("data", `${bytes(it.bytes_moved)} of ${bytes(Math.max(it.bytes_planned, it.bytes_moved))}, ${count(it.records_moved)} records`, "Keys and values"),
      fact("rate", `${bytes(progress.bytes_per_s)}/s since the start, ${span(progress.elapsed_s)} ago`),
      fact("left", progress.left_s === null ? "not known yet" : span(progress.left_s), "At this rate, by the slower of bytes and partitions")),
    ended);
}

const CONDITIONS = { unreachable: "bad", "not ready": "warn", joining: "warn", leaving: "warn", ready: "good" };
const condition = (it) => (!it.reachable ? "unreachable" : it.state !== "active" ? it.state : it.ready ? "ready" : "not ready");

function nodes({ status, nodes: loads, at_ms }) {
  const load = new Map(loads.map((it) => [it.node, it.load]));
  const of = (show) => (it) => (it.reachable ? show(it, load.get(it.id)) : "–");
  const skew = (it) => (it.clock_ms - at_ms) / 1000;
  table("nodes", [
    { name: "node", of: (it) => [swatch(colour(it.id)), `${it.id}${it.id === status.answered_by ? " (this)" : ""}`] },
    { name: "state", of: (it) => h("span", { class: CONDITIONS[condition(it)] }, condition(it)) },
    { name: "role", help: "Role in the topology group, which agrees on the members; no request waits for it", of: (it) => (it.id === status.topology_leader ? "leader" : it.voter ? "voter" : "learner") },
    { name: "zone", of: (it) => it.zone },
    { name: "address", of: (it) => it.address },
    { name: "release", of: (it) => it.release },
    { name: "requests", num: true, of: of((it, l) => (l ? rate(perSecond(l)) : "–")) },
    { name: "get 99 %", help: "99 of 100 gets took at most this long", num: true, of: of((it, l) => micros(l?.get_p99_us)) },
    { name: "write 99 %", help: "99 of 100 puts and deletes took at most this long", num: true, of: of((it, l) => micros(l?.write_p99_us)) },
    { name: "records", num: true, of: of((it) => count(it.records)) },
    { name: "data", help: "Bytes of keys and values", num: true, of: of((it) => bytes(it.payload_bytes)) },
    { name: "disk free", num: true, of: of((it) => (it.free_bytes === null ? "–" : bytes(it.free_bytes))) },
    { name: "links", help: "Streams to the other nodes", of: of((it) => (it.out_of_reach.length ? h("span", { class: "bad" }, `out of reach: ${it.out_of_reach.join(", ")}`) : h("span", { class: "good" }, "all connected"))) },
    { name: "certificate", help: "When it expires", of: of((it) => (it.certificate_ends_at_ms ? new Date(it.certificate_ends_at_ms).toISOString().slice(0, 10) : "no TLS")) },
    { name: "clock", help: "Difference from the clock of the answering node, including the time of the request", num: true, of: of((it) => (it.clock_ms ? `${skew(it) > 0 ? "+" : ""}${skew(it).toFixed(2)} s` : "–")) },
    { name: "up", num: true, of: of((it) => span(it.uptime_ms / 1000)) },
  ], status.nodes, "no nodes");
}

const PARTS = [
  ["hash functions", "mphf_bytes", "Minimal perfect hash functions: the slot of each key"],
  ["Bloom gates", "gate_bytes", "Exclude absent keys, so that nothing is read for them"],
  ["offsets", "offset_bytes", "The position of each slot's record"],
  ["headers", "header_bytes", "Headers of slices"],
  ["memtable", "memtable_bytes", "Recent records that are not flushed to slices yet"],
];

function memory({ status }) {
  const up = status.nodes.filter((it) => it.reachable);
  const sum = (field) => up.reduce((all, it) => all + it[field], 0);
  const parts = PARTS.map(([name, field], i) => ({ name, value: sum(field), text: bytes(sum(field)), colour: `m${i}` }));
  const label = `Memory of all nodes: ${parts.map((it) => `${it.name} ${it.text}`).join(", ")}`;
  show($("memory-picture"), bar(parts, label), h("ul", { class: "legend" }, parts.map((it) => h("li", {}, swatch(it.colour), `${it.name} ${it.text}`))));
  const bits = (it, field) => [bytes(it[field]), it.sealed_keys ? h("small", {}, `${((8 * it[field]) / it.sealed_keys).toFixed(1)} bits per key`) : null];
  table("memory", [
    { name: "node", of: (it) => [swatch(colour(it.id)), `${it.id}`] },
    { name: "sealed keys", help: "Counted once per slice", num: true, of: (it) => count(it.sealed_keys) },
    ...PARTS.map(([name, field, help]) => ({ name, help, num: true, of: (it) => (field === "memtable_bytes" ? [bytes(it[field]), h("small", {}, `of ${bytes(it.memtable_limit_bytes)}`)] : bits(it, field)) })),
    { name: "index", help: "All but the memtable", num: true, of: (it) => bits(it, "index_bytes") },
    { name: "process", help: "Resident memory", num: true, of: (it) => bytes(it.rss_bytes) },
    { name: "slices", help: "Total, and the maximum per partition", num: true, of: (it) => [count(it.slices), h("small", {}, `${it.most_slices} at most`)] },
    { name: "on disk", help: "Slices, and the commit log", num: true, of: (it) => [bytes(it.slice_bytes), h("small", {}, `log ${bytes(it.log_bytes)}`)] },
    { name: "flushes", help: "Flushes of the memtable to slices since the start", num: true, of: (it) => count(it.flushes) },
    { name: "compactions", help: "Compactions of several slices into one since the start", num: true, of: (it) => count(it.compactions) },
  ], up, "no node is responding");
}

/// Hidden if there are no generations and no backup is running.
function generations({ status }) {
  const all = status.generations;
  const writing = status.nodes.filter((it) => it.backing_up).map((it) => it.id);
  $("generations-card").hidden = !all.length && !writing.length;
  const waits = (it) => [it.not_ready.length ? `being fetched by ${it.not_ready.join(", ")}` : "", it.unconfirmed.length ? `not known to ${it.unconfirmed.join(", ")}` : ""].filter((text) => text).join("; ");
  table("generations", [
    { name: "namespace", of: (it) => it.namespace },
    { name: "generation", num: true, of: (it) => `${it.number}` },
    { name: "state", help: "Gets read the current generation", of: (it) => h("span", { class: it.state === "current" ? "good" : "" }, it.state.replace("_", " ")) },
    { name: "records", num: true, of: (it) => count(it.records) },
    { name: "data", help: "Bytes of keys and values", num: true, of: (it) => bytes(it.payload_bytes) },
    { name: "waits for", help: "Nodes that are still fetching it, or may answer from an older one", of: (it) => waits(it) || "none" },
  ], all, "no generations");
  show($("backups"), writing.length ? `A backup is running on node ${writing.join(", ")}.` : "No backup is running.");
}

function heat({ heat, status }) {
  const all = heat.reduce((a, b) => a + b, 0);
  const busiest = heat.map((value, part) => ({ value, part })).filter((it) => it.value > 0).sort((a, b) => b.value - a.value).slice(0, 6);
  table("heat", [
    { name: heat.length === status.partitions || !heat.length ? "partition" : "part of the ring", num: true, of: (it) => count(it.part) },
    { name: "accesses", num: true, of: (it) => rate(it.value) },
    { name: "of all", num: true, of: (it) => percent(it.value / all) },
    { name: "relative to mean", help: "Accesses relative to the mean of all partitions", num: true, of: (it) => `${((it.value * heat.length) / all).toFixed(1)} ×` },
  ], busiest, "no current accesses");
  show($("heat-note"), `${rate(all)} accesses in total: gets, puts and deletes. An access 15 s ago counts half.`);
}

function hot(answer) {
  const name = (it) => (it.key !== null ? it.key : it.key_base64 !== null ? `base64 ${it.key_base64}` : `digest ${it.digest}`);
  table("hot", [
    { name: "key", kind: "key mono", of: name },
    { name: "accesses", help: "The true number is never higher. It is lower by more than the figure in brackets only with the probability stated below", num: true, of: (it) => `${count(it.estimate)} (−${count(Math.min(it.estimate, answer.error_bound))})` },
    { name: "of all", num: true, of: (it) => percent(it.share) },
    { name: "nodes", of: (it) => it.nodes.map((of) => of.node).join(", ") },
    { name: "over time", help: "Accesses over the window; each row has its own scale", of: (it) => { const course = answer.history?.keys[answer.keys.indexOf(it)]; return course ? spark(course) : null; } },
    { name: "new", help: "Not hot in the previous window", of: (it) => (it.new ? "new" : "") },
  ], answer.keys, "no accesses in this window");
  const missing = answer.nodes.filter((it) => it.problem).map((it) => it.node);
  show($("hot-note"), !answer.accesses ? "No accesses in this window." : `${count(answer.accesses)} accesses to the namespace. A count is never too low; it is too high by more than ${count(answer.error_bound)} with a probability of at most ${(100 * answer.delta).toFixed(1)} %. Every key with at least ${count(answer.complete_from)} accesses is listed.${missing.length ? ` Node ${missing.join(", ")} is missing.` : ""}`);
}

const charts = [
  new Chart($("rates"), "Requests", [
    { name: "gets", field: "gets_per_s" }, { name: "writes", field: "writes_per_s", help: "Puts and deletes" },
    { name: "batches", field: "batches_per_s", help: "Batches of gets or puts; each counts once" }, { name: "scans", field: "scans_per_s" }, { name: "Redis", field: "redis_per_s", help: "Commands of Redis clients; the times below include their gets, puts and deletes" }, { name: "errors", field: "faults_per_s", help: ERRORS },
  ], rate, false),
  ...[["gets", "get", "Time of gets"], ["writes", "write", "Time of writes"]].map(([id, kind, title]) => new Chart($(id), title, [
    { name: "50 %", field: `${kind}_p50_us`, help: "The median" }, { name: "99 %", field: `${kind}_p99_us` }, { name: "99.9 %", field: `${kind}_p999_us` },
  ], micros, true)),
];

function drawHistory() {
  // The newest sample may still lack the counts of some nodes.
  charts.forEach((it) => it.set(state.history, state.everyMs));
}

async function loadHistory() {
  const node = $("of-node").value;
  const answer = await ask(`/console/history${node ? `?node=${node}` : ""}`);
  [state.history, state.everyMs] = [answer.samples, answer.every_ms];
  show($("kept"), `One sample per ${answer.every_ms / 1000} s, at most ${count(answer.most_samples)}: ${bytes(answer.most_bytes)} per node. Times are upper bounds of buckets, at most twice too high.`);
  drawHistory();
}

/// Adds the stream's samples to the history. Replaces earlier versions, because samples may grow.
function extend(samples) {
  const known = new Map(state.history.map((it) => [it.from_ms, it]));
  samples.forEach((it) => known.set(it.from_ms, it));
  state.history = [...known.values()].sort((a, b) => a.from_ms - b.from_ms).slice(-720);
  drawHistory();
}

const busy = new Set();
/// Skips the request while an earlier one of the same name is pending.
async function once(name, work) {
  if (busy.has(name)) return;
  busy.add(name);
  try { await work(); } catch (error) { console.warn(name, error.message); } finally { busy.delete(name); }
}

const loadRing = () => once("ring", async () => { state.ring = await ask("/ring"); ring(); });
let hotAt = 0;
const loadHot = () => once("hot", async () => {
  hotAt = Date.now();
  const query = new URLSearchParams({ window: $("hot-window").value, top: 10, steps: 30, namespace: $("hot-namespace").value });
  try { hot(await ask(`/hot-keys?${query}`)); } catch (error) {
    table("hot", [{ name: "key", of: () => "" }], [], "–");
    show($("hot-note"), error.message);
  }
});

function take(now) {
  if (now.problem) return live("bad", now.problem);
  now.heat = (now.heat_milli_per_s ?? now.heat.map((it) => it * 1000)).map((it) => it / 1000);
  state.now = now;
  const { status } = now;
  live("good", "Live");
  show($("cluster"), `cluster ${status.cluster_id.slice(0, 8)}… · epoch ${count(status.epoch)} · feature level ${status.feature_level} · seen from node ${status.answered_by}`);
  const options = [h("option", { value: "" }, "the whole cluster"), ...status.nodes.map((it) => h("option", { value: it.id }, `node ${it.id}`))];
  show($("of-node"), options);
  [attention, summary, change, generations, nodes, memory, heat].forEach((part) => part(now));
  if (state.ring?.epoch === status.epoch) ring();
  else loadRing();
  const chosen = $("of-node").value;
  const own = now.nodes.find((it) => `${it.node}` === chosen);
  extend(chosen ? (own ? [own.load] : []) : now.samples);
  if (Date.now() - hotAt > HOT_EVERY_MS) loadHot();
}

// The stream: reconnects automatically, and shows when it is lost.

let source = null;
let heard = Date.now();

function live(how, text) {
  $("live").className = `pill ${how}`;
  show($("live"), text);
  $("main").classList.toggle("stale", how !== "good" && state.now !== null);
}

function lost() {
  const since = state.now ? `figures from ${clock(state.now.at_ms)}` : "no figures yet";
  live("bad", `Connection lost, ${since}. Reconnecting`);
}

function listen() {
  source?.close();
  heard = Date.now();
  source = new EventSource("/console/events");
  source.addEventListener("state", (event) => { heard = Date.now(); take(JSON.parse(event.data)); });
  source.addEventListener("open", () => { if (state.now) loadHistory().catch(() => {}); });
  source.addEventListener("error", lost);
}

setInterval(() => {
  if (Date.now() - heard < LOST_AFTER_MS) return;
  lost();
  listen();
}, 2000);

// User input.

$("of-node").addEventListener("change", () => once("history", loadHistory));
for (const id of ["hot-window", "hot-namespace"]) $(id).addEventListener("change", loadHot);

function explained(it, key) {
  const nodes = (ids) => ids.join(", ");
  const quorum = (of) => (of.of.length === 1 ? `node ${of.of[0]}` : `${of.needed} of nodes ${nodes(of.of)}`);
  const fact = (what, value, help) => [h("dt", { title: help }, what), h("dd", {}, value)];
  const what = it.holds === "value" ? `${it.fingerprint_bits ? "probably " : ""}a value of ${bytes(it.value_bytes)}, version ${it.version}` : it.holds === "tombstone" ? "a tombstone: it was deleted" : "nothing";
  const verdicts = { gate_negative: it.fingerprint_bits ? "the fingerprint in the key's slot differs" : "excluded by its Bloom gate", gate_false_positive: "passed by its Bloom gate, but another key is there", holds: "holds it", damaged: "damaged at that place", unknown: "unknown" };
  return h("dl", { class: "facts" },
    fact("key", h("span", { class: "mono" }, key)),
    fact("digest", h("span", { class: "mono" }, it.digest), "Keyed BLAKE3 of namespace and key"),
    fact("token", h("span", { class: "mono" }, it.token), "The first 64 bits of the digest: a position on the ring, marked in the picture"),
    fact("partition", `${it.partition}, ${it.stage.replaceAll("_", " ")}, epoch ${it.epoch}`),
    fact("nodes", `${nodes(it.nodes)}${it.next_nodes.length ? `, moving to ${nodes(it.next_nodes)}` : ""}; node ${it.lead} leads`),
    fact("quorums", `a read needs ${quorum(it.read_quorum)}; ${it.accept_quorums.length ? `a write ${it.accept_quorums.map(quorum).join(" and ")}` : "there are no writes"}`, "How many replicas must answer"),
    fact("held", `${what}${it.held_in ? `, in the ${it.held_in}` : ""}, according to node ${it.answered_by}`),
    it.expires_at_ms ? fact("expires", new Date(it.expires_at_ms).toISOString()) : [],
    fact("replicas", it.replicas.map((of) => h("div", {}, `node ${of.node}: ${of.problem ?? (of.version ? `${of.holds}, version ${of.version}` : of.holds)}`))),
    it.hot ? fact("accesses", `${count(it.hot.estimate)} in the last minute at node ${it.answered_by}, at most ${count(it.hot.error_bound)} too high`) : [],
    it.slices.map((of) => fact("slice", `${of.segment}/${of.row}, ${count(of.keys)} keys, slot ${of.slot}: ${verdicts[of.verdict]}`, "Immutable records of this partition with their index")));
}

$("explain-form").addEventListener("submit", (event) => {
  event.preventDefault();
  once("explain", async () => {
    const key = $("explain-key").value;
    try {
      const answer = await ask(`/console/explain?${new URLSearchParams({ key, namespace: $("explain-namespace").value })}`);
      state.found = angleOf(answer.token);
      show($("explained"), explained(answer, key));
    } catch (error) {
      state.found = null;
      show($("explained"), h("p", { class: "bad" }, error.message));
    }
    ring();
  });
});

once("history", loadHistory);
listen();
