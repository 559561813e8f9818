// Elements, figures with units, and pictures. Text always becomes a text node, never markup.

const SVG = "http://www.w3.org/2000/svg";

const make = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((it) => it !== null && it !== undefined));
  return element;
};
export const h = (tag, attributes = {}, ...children) => make(document.createElement(tag), attributes, children);
export const s = (tag, attributes = {}, ...children) => make(document.createElementNS(SVG, tag), attributes, children);

/// Sets the children of an element. Keeps equal children, so that selections persist.
export function show(parent, ...children) {
  const given = children.flat(Infinity).filter((it) => it !== null && it !== undefined);
  const wanted = given.map((it) => (it instanceof Node ? it : document.createTextNode(it)));
  wanted.forEach((child, index) => {
    const there = parent.childNodes[index];
    if (!there) parent.append(child);
    else if (!there.isEqualNode(child)) {
      const alike = there.cloneNode(false).isEqualNode(child.cloneNode(false)) && there.nodeType === Node.ELEMENT_NODE;
      if (alike) show(there, [...child.childNodes]);
      else there.replaceWith(child);
    }
  });
  while (parent.childNodes.length > wanted.length) parent.lastChild.remove();
}

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
export const count = (number) => grouped.format(number);
const digits = (number) => (number >= 100 ? number.toFixed(0) : number >= 10 ? number.toFixed(1) : number.toFixed(2));
export const rate = (number) => (number >= 100 ? count(number) : number === 0 ? "0" : digits(number)) + "/s";
export function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  for (; number >= 1024 && unit < units.length - 1; unit++) number /= 1024;
  return `${unit ? digits(number) : count(number)} ${units[unit]}`;
}
export function micros(us) {
  if (us === null || us === undefined) return "–";
  return us < 1000 ? `${digits(us).replace(/\.0+$/, "")} µs` : us < 1e6 ? `${digits(us / 1e3)} ms` : `${digits(us / 1e6)} s`;
}
export function span(seconds) {
  const [d, hr, m, sec] = [seconds / 86400, (seconds / 3600) % 24, (seconds / 60) % 60, seconds % 60].map(Math.floor);
  return d ? `${d} d ${hr} h` : hr ? `${hr} h ${m} min` : m ? `${m} min ${sec} s` : `${sec} s`;
}
export const percent = (share) => `${(100 * share).toFixed(1)} %`;
export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");

// The ring: a token is an angle, clockwise from the top.

const turn = (token) => parseInt(token.padStart(16, "0").slice(0, 12), 16) / 2 ** 48;
const at = (radius, part) => {
  const angle = 2 * Math.PI * part;
  return `${(radius * Math.sin(angle)).toFixed(2)} ${(-radius * Math.cos(angle)).toFixed(2)}`;
};
function band(inner, outer, from, to) {
  // An SVG arc cannot be a full circle, because its ends would coincide.
  if (to - from > 0.9999) to = from + 0.9999;
  const large = to - from > 0.5 ? 1 : 0;
  return `M${at(outer, from)}A${outer} ${outer} 0 ${large} 1 ${at(outer, to)}L${at(inner, to)}A${inner} ${inner} 0 ${large} 0 ${at(inner, from)}Z`;
}

const HEAT_PARTS = 256;

/// Heat in at most HEAT_PARTS parts.
function coarse(heat) {
  const of = Math.max(1, Math.ceil(heat.length / HEAT_PARTS));
  const parts = [];
  for (let i = 0; i < heat.length; i += of) parts.push(heat.slice(i, i + of).reduce((a, b) => a + b, 0));
  return parts;
}

export function drawRing(ring, heat, found, colour, zone) {
  const positions = ring.positions.map((it) => ({ to: turn(it.token), node: it.node }));
  const zones = new Set(ring.nodes.map((it) => it.zone)).size > 1;
  const node = new Map(ring.nodes.map((it) => [it.node ?? it.id, it]));
  const arcs = positions.map((it, i) => {
    const from = i ? positions[i - 1].to : positions[positions.length - 1].to - 1;
    const who = node.get(it.node);
    const title = s("title", {}, `node ${it.node}, zone ${who?.zone}: ${((it.to - from) * 100).toFixed(2)} % of the ring as first replica`);
    const wide = it.to - from > 0.02;
    const mark = wide ? s("text", { class: "mark", x: at(150, (from + it.to) / 2).split(" ")[0], y: Number(at(150, (from + it.to) / 2).split(" ")[1]) + 4 }, String(it.node)) : null;
    const zoned = zones ? s("path", { class: `fill ${zone(who?.zone)}`, d: band(172, 178, from, it.to) }) : null;
    return s("g", {}, title, s("path", { class: `fill ${colour(it.node)}`, d: band(134, 167, from, it.to), stroke: "var(--card)", "stroke-width": 0.6 }), zoned, mark);
  });
  const parts = coarse(heat);
  const most = Math.max(...parts, 0);
  const warm = parts.map((it, i) => {
    if (!it) return null;
    const path = { class: "heat", "fill-opacity": (0.12 + (0.88 * it) / most).toFixed(2), d: band(104, 128, i / parts.length, (i + 1) / parts.length) };
    return s("path", path, s("title", {}, `part ${i} of ${parts.length}: ${rate(it)} accesses`));
  });
  const moving = ring.moving.map((it) => {
    const part = (it.partition % ring.partitions) / ring.partitions;
    const comes = it.next_nodes.find((id) => !it.nodes.includes(id)) ?? it.next_nodes[0];
    const [a, b] = [at(183, part).split(" "), at(195, part).split(" ")];
    return s("line", { class: `moving stroke ${colour(comes)}`, x1: a[0], y1: a[1], x2: b[0], y2: b[1] }, s("title", {}, `partition ${it.partition} moves to node ${comes}: ${it.stage.replaceAll("_", " ")}`));
  });
  const marker = found ? s("path", { class: "found", d: `M${at(100, found)}L${at(86, found - 0.012)}L${at(86, found + 0.012)}Z` }, s("title", {}, "the explained key")) : null;
  const label = `Ring of ${ring.partitions} partitions with ${ring.replicas} replicas over ${ring.nodes.length} nodes; the table below has the figures`;
  return s("svg", { viewBox: "-200 -200 400 400", role: "img", "aria-label": label },
    s("circle", { class: "cold", r: 128 }), s("circle", { r: 104, fill: "var(--card)" }),
    arcs, warm, moving, marker,
    s("text", { class: "big", y: -6 }, count(ring.partitions)),
    s("text", { class: "soft", y: 16 }, "partitions"),
    s("text", { class: "soft", y: 35 }, `× ${ring.replicas} ${ring.replicas === 1 ? "replica" : "replicas"}`));
}

export const angleOf = turn;

// Charts over the last hour: one scale for all lines of a chart.

const HEIGHT = 100;
/// Time spans of a chart in minutes: the smallest one that fits its samples is used.
const SPANS = [5, 15, 60];

export class Chart {
  constructor(figure, title, lines, format, log) {
    Object.assign(this, { figure, title, lines, format, log, samples: [], picked: null, minutes: SPANS[0], width: 60 });
    figure.tabIndex = 0;
    figure.setAttribute("aria-label", `${title} in the last hour. Use the arrow keys to step through the samples.`);
    figure.addEventListener("pointermove", (event) => {
      const box = figure.querySelector("svg").getBoundingClientRect();
      this.pick(Math.round(((event.clientX - box.left) / box.width) * (this.width - 1)));
    });
    for (const leave of ["pointerleave", "blur"]) figure.addEventListener(leave, () => this.pick(null));
    figure.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -12, PageDown: 12 }[event.key];
      if (!step) return;
      event.preventDefault();
      this.pick((this.picked ?? this.width) + step);
    });
  }

  pick(slot) {
    this.picked = slot === null ? null : Math.min(this.width - 1, Math.max(0, slot));
    this.draw();
  }

  set(samples, everyMs) {
    const last = samples.at(-1)?.from_ms ?? 0;
    const minutes = (last - (samples[0]?.from_ms ?? 0)) / 60_000;
    this.minutes = SPANS.find((it) => it >= minutes) ?? SPANS.at(-1);
    this.width = (this.minutes * 60_000) / everyMs;
    this.first = last - (this.width - 1) * everyMs;
    this.every = everyMs;
    this.samples = Array(this.width).fill(null);
    for (const it of samples) {
      const slot = Math.round((it.from_ms - this.first) / everyMs);
      if (slot >= 0 && slot < this.width) this.samples[slot] = it;
    }
    this.draw();
  }

  scale() {
    const values = this.samples.flatMap((it) => (it ? this.lines.map((line) => it[line.field]) : [])).filter((it) => it !== null);
    const most = Math.max(...values, this.log ? 100 : 1);
    if (this.log) {
      const [low, high] = [10, 10 ** Math.ceil(Math.log10(most))];
      const decades = Math.log10(high / low);
      const ticks = Array.from({ length: Math.round(decades) + 1 }, (_, i) => low * 10 ** i);
      return { ticks, y: (value) => HEIGHT * (1 - Math.log10(Math.max(value, low) / low) / decades) };
    }
    const step = 10 ** Math.floor(Math.log10(most));
    const high = [1, 2, 5, 10].map((it) => it * step).find((it) => it >= most);
    return { ticks: [0, high / 2, high], y: (value) => HEIGHT * (1 - value / high) };
  }

  draw() {
    const { ticks, y } = this.scale();
    const at = this.picked ?? this.samples.findLastIndex((it) => it !== null);
    const sample = this.samples[at];
    const legend = this.lines.map((line, i) => h("span", { title: line.help }, h("i", { class: `swatch s${i}` }), `${line.name} `, h("b", {}, sample ? this.format(sample[line.field]) : "–")));
    const when = this.picked === null ? "now" : clock(this.first + at * this.every);
    const path = (field) => {
      let pen = "M";
      return this.samples.map((it, x) => {
        if (!it || it[field] === null) { pen = "M"; return ""; }
        const point = `${pen}${x} ${y(it[field]).toFixed(1)}`;
        // An isolated sample is drawn as a dot.
        const dot = pen === "M" && !(this.samples[x + 1] && this.samples[x + 1][field] !== null) ? "h0.8" : "";
        pen = "L";
        return point + dot;
      }).join("");
    };
    const svg = s("svg", { viewBox: `0 -2 ${this.width} ${HEIGHT + 4}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      ticks.map((tick) => s("line", { class: "gridline", x1: 0, x2: this.width, y1: y(tick), y2: y(tick) })),
      this.lines.map((line, i) => s("path", { class: `line s${i}`, d: path(line.field) || "M0 0" })).reverse(),
      this.picked === null ? null : s("line", { class: "cursor", x1: at, x2: at, y1: 0, y2: HEIGHT }));
    show(this.figure,
      h("figcaption", {}, h("strong", {}, this.title), legend, h("span", { class: "at" }, when)),
      h("div", { class: "plot" },
        h("div", { class: "axis", "aria-hidden": "true" }, [...ticks].reverse().map((tick) => h("span", {}, tick === 0 ? "0" : this.format(tick)))),
        svg,
        h("div", { class: "times", "aria-hidden": "true" }, [`${this.minutes} min ago`, "now"].map((it) => h("span", {}, it)))));
  }
}

/// A line of values, scaled from 0 to their maximum, without axes.
export function spark(values) {
  const most = Math.max(...values, 1e-9);
  const points = values.map((it, i) => `${((100 * i) / Math.max(1, values.length - 1)).toFixed(1)},${(19 - (18 * it) / most).toFixed(1)}`);
  return s("svg", { class: "spark", viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true" }, s("polyline", { points: points.join(" ") }));
}

/// A bar divided in proportion to its parts.
export function bar(parts, label) {
  const all = parts.reduce((sum, it) => sum + it.value, 0) || 1;
  let x = 0;
  const rects = parts.map((it) => {
    const width = (1000 * it.value) / all;
    const rect = s("rect", { class: `fill ${it.colour}`, x: x.toFixed(1), width: width.toFixed(1), height: 14 }, s("title", {}, `${it.name}: ${it.text}`));
    x += width;
    return rect;
  });
  return s("svg", { viewBox: "0 0 1000 14", preserveAspectRatio: "none", height: 14, role: "img", "aria-label": label }, rects);
}
