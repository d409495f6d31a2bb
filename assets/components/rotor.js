// RoPE as turning circles. Pair i of a vector is the complex number z = v[2i] + v[2i + 1] i; at position m it is
// z e^{i m theta_i}. A query at position m meets a key at position 0: m is the distance back, and the score is
// q^T R_{-m} k = sum_i |q_i| |k_i| cos(arg k_i - arg q_i - m theta_i). No page is needed for the functions that are exported.

const TURN = 2 * Math.PI;

export const inverseFrequencies = (d, base) => Array.from({ length: d / 2 }, (_, i) => base ** (-2 * i / d));

export const times = ([a, b], [c, d]) => [a * c - b * d, a * d + b * c];

export const turner = (angle) => [Math.cos(angle), Math.sin(angle)];

export const pairOf = (vector, i) => [vector[2 * i], vector[2 * i + 1]];

export const rotate = (vector, frequencies, position) =>
  frequencies.flatMap((theta, i) => times(pairOf(vector, i), turner(position * theta)));

// The terms of the score as cosines, one per pair: the real part of conj(q_i) k_i e^{-i m theta_i}.
export function waves(q, k, frequencies, gain = 1) {
  return frequencies.map((theta, i) => {
    const [a, b] = times(pairOf(k, i), [q[2 * i], -q[2 * i + 1]]);
    return { size: gain * Math.hypot(a, b), phase: Math.atan2(b, a), theta };
  });
}

export const height = ({ size, phase, theta }, distance) => size * Math.cos(distance * theta - phase);

export const score = (q, k, frequencies, distance, gain = 1) => waves(q, k, frequencies, gain).reduce((sum, wave) => sum + height(wave, distance), 0);

// R_a and then R_b, against R_{a+b} at once: the largest difference of any component.
export function hopError(vector, frequencies, a, b) {
  const once = rotate(vector, frequencies, a + b);
  return Math.max(...rotate(rotate(vector, frequencies, a), frequencies, b).map((value, i) => Math.abs(value - once[i])));
}

// Standard normal numbers, cut to the disc's size and rounded as the link holds them; the same for the same seed.
export function seeded(d, seed) {
  let state = seed;
  const uniform = () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(TURN * uniform());
  return Array.from({ length: d }, () => rounded(Math.min(Math.max(normal() / 2, -0.7), 0.7)));
}

// Whole distances up to 2048, finer where there are few.
export function distances(farthest) {
  const step = farthest > 2048 ? Math.ceil(farthest / 2048) : 1 / Math.max(1, Math.ceil(600 / farthest));
  return Array.from({ length: Math.floor(farthest / step + 1e-9) + 1 }, (_, i) => i * step);
}

// The number of columns that makes the circles largest when every cell needs `words` pixels of height for its text.
export function columnsFor(width, high, count, words) {
  const size = (columns) => Math.min(width / columns, high / Math.ceil(count / columns) - words);
  return Array.from({ length: count }, (_, i) => i + 1).reduce((best, columns) => (size(columns) > size(best) ? columns : best), 1);
}

// ---- words and shapes

const rounded = (value, digits = 3) => Number(value.toFixed(digits)) + 0;
const signed = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(2);
const complex = ([a, b]) => `${signed(a).replace("+", "")} ${b < 0 ? "−" : "+"} ${Math.abs(b).toFixed(2)}i`;
const degrees = (angle) => ((((angle * 360) / TURN) % 360) + 360) % 360;
const short = (value) => (value < 100 ? value.toFixed(1) : value < 1e4 ? value.toFixed(0) : value < 1e7 ? `${(value / 1e3).toFixed(0)}k`
  : value.toExponential(0).replace("e+", "e"));
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const coarse = (value) => Number(value.toPrecision(3));
const LOWEST_BASE = 2, HIGHEST_BASE = 1e9;

const ICONS = { play: "M3 1 L15 8 L3 15 Z", pause: "M3 1 H7 V15 H3 Z M9 1 H13 V15 H9 Z" };
const mark = (shape, words, name = "") => `<span class="${name}"><svg viewBox="0 0 18 16" aria-hidden="true">${shape}</svg>${words}</span>`;
const PAGE = `
  <div class="rows">
    <button class="play" type="button"><svg viewBox="0 0 16 16" aria-hidden="true"><path></path></svg></button>
    <span>Position</span><input class="position" type="range" min="0" step="any" aria-label="Position">
    <input class="number typed-position" type="number" min="0" step="1" aria-label="Position, typed">
    <span class="wide">First hop a</span><input class="first" type="range" min="0" step="any" aria-label="First hop"><output class="hop"></output>
    <span class="wide">Base (log)</span><input class="base" type="range" step="any" aria-label="Base">
    <input class="number typed-base" type="number" step="any" aria-label="Base, typed">
    <div class="kinds" role="radiogroup" aria-label="Query and key">
      <label><input type="radio" value="same">q = k</label><label><input type="radio" value="random">random</label>
      <label><input type="radio" value="dragged">dragged (take a point)</label>
      <span class="drawn faint"></span>
    </div>
  </div>
  <p class="legend">
    ${mark('<circle class="query" cx="9" cy="8" r="6"/>', "q")}
    ${mark('<circle class="key" cx="9" cy="8" r="6"/>', "k")}
    ${mark('<circle class="plain" cx="9" cy="8" r="5"/>', "q, no law", "bent")}
    ${mark('<circle class="ghost" cx="9" cy="8" r="5"/>', "q after a")}
    ${mark('<g class="unfinished"><circle class="rim" cx="9" cy="8" r="7"/></g>', "unfinished")}
    ${mark('<path class="saw" d="M1 8 H17"/>', "angles seen in training")}
  </p>
  <svg class="circles"></svg>
  <p class="reading turn"></p><p class="reading hops"></p><p class="reading title"></p>
  <svg class="score" role="img"></svg>`;

function svg(parent, tag, name, attributes = {}) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  node.setAttribute("class", name);
  set(node, attributes);
  return parent.appendChild(node);
}

function set(node, attributes) {
  for (const name in attributes) node.setAttribute(name, attributes[name]);
}

// From one angle anticlockwise to another (clockwise if it is smaller), at most once around.
function arc({ x, y }, radius, from, to) {
  const span = clamp(to - from, -TURN + 1e-3, TURN - 1e-3);
  const at = (angle) => `${(x + radius * Math.cos(angle)).toFixed(2)} ${(y - radius * Math.sin(angle)).toFixed(2)}`;
  return `M ${at(from)} A ${radius} ${radius} 0 ${Math.abs(span) > Math.PI ? 1 : 0} ${span > 0 ? 0 : 1} ${at(from + span)}`;
}

// ---- what is shown

// The law's frequencies hold for the base that they were computed for; another base has none until the hand lets go.
function frequenciesOf({ data, state }) {
  const own = state.base === data.base;
  const plain = (own && data.inv_freq) || inverseFrequencies(data.d, state.base);
  const law = own ? data.scaled_inv_freq : plain;
  const gain = own ? (data.attention_factor ?? 1) ** 2 : 1; // cos and sin, of query and key, are multiplied by the attention factor
  return { plain, law, gain, bent: gain !== 1 || law.some((theta, i) => Math.abs(theta - plain[i]) > 1e-9 * plain[i]) };
}

function drawGrid(view) {
  view.unit = parseFloat(getComputedStyle(view.root).fontSize) / 13; // larger in the projector's view
  const { circles, unit, data } = view, { clientWidth: width, clientHeight: high } = circles;
  const count = data.d / 2, words = 36 * unit, columns = columnsFor(width, high, count, words);
  const cell = { width: width / columns, height: high / Math.ceil(count / columns) };
  view.radius = Math.max(8, Math.min(cell.width, cell.height - words) / 2 - 11);
  view.roomy = cell.width > 96 * unit; // for two wavelengths
  circles.replaceChildren();
  view.pairs = Array.from({ length: count }, (_, i) => {
    const x = ((i % columns) + 0.5) * cell.width, y = Math.floor(i / columns) * cell.height + (cell.height - words) / 2;
    return makePair(view, i, { x, y }, y + view.radius + 11);
  });
}

function makePair(view, i, centre, below) {
  const group = svg(view.circles, "g", "pair"), { radius, unit } = view;
  const pair = { group, centre };
  const add = (key, tag, name, attributes) => { pair[key] = svg(group, tag, name, attributes); };
  add("rim", "circle", "rim", { cx: centre.x, cy: centre.y, r: radius });
  add("saw", "path", "arc saw");
  pair.trail = Array.from({ length: 6 }, (_, j) => svg(group, "path", "trail", { "stroke-opacity": (j + 1) / 9 }));
  for (const name of ["first-hop", "second-hop"]) add(name, "path", name);
  add("spoke", "path", "spoke");
  for (const [name, size] of [["ghost", 6], ["plain", 6], ["key", 8], ["query", 6]]) add(name, "circle", name, { r: size * unit });
  for (const name of ["k", "q"]) pair[name] = makeHandle(view, group, name, i);
  add("angle", "text", "middle angle", { x: centre.x, y: below + 11 * unit });
  add("wave", "text", "middle faint", { x: centre.x, y: below + 25 * unit });
  group.addEventListener("pointerenter", () => choose(view, i));
  group.addEventListener("focusin", () => choose(view, i));
  return pair;
}

function choose(view, i) {
  view.chosen = i;
  refresh(view, "curves");
}

const pixel = (view, { centre }, [a, b]) => ({ cx: centre.x + (a / view.scale) * view.radius, cy: centre.y - (b / view.scale) * view.radius });

function drawPairs(view) {
  const { state, data, first, tail } = view, { plain, law, bent } = view.frequencies, { position } = state;
  view.pairs.forEach((pair, i) => {
    const z = pairOf(state.q, i), from = Math.atan2(z[1], z[0]), at = (m, theta = law[i]) => from + m * theta;
    const unfinished = TURN / plain[i] > data.original_context;
    const query = pixel(view, pair, times(z, turner(position * law[i]))), key = pixel(view, pair, pairOf(state.k, i));
    const orbit = (Math.hypot(...z) / view.scale) * view.radius;
    pair.group.setAttribute("class", `pair${unfinished ? " unfinished" : ""}${i === view.chosen ? " chosen" : ""}`);
    pair.saw.setAttribute("d", unfinished ? arc(pair.centre, view.radius, from, from + data.original_context * plain[i]) : "");
    drawTrail(pair, orbit, at(tail), at(position));
    pair.spoke.setAttribute("d", `M ${pair.centre.x} ${pair.centre.y} L ${query.cx} ${query.cy}`);
    pair["first-hop"].setAttribute("d", first ? arc(pair.centre, 0.3 * view.radius, from, at(first)) : "");
    pair["second-hop"].setAttribute("d", first ? arc(pair.centre, 0.42 * view.radius, at(first), at(position)) : "");
    set(pair.query, query), set(pair.q, query), set(pair.key, key), set(pair.k, key);
    set(pair.plain, { ...pixel(view, pair, times(z, turner(position * plain[i]))), visibility: bent ? "visible" : "hidden" });
    set(pair.ghost, { ...pixel(view, pair, times(z, turner(first * law[i]))), visibility: first ? "visible" : "hidden" });
    pair.angle.textContent = `${i + 1} · ${degrees(position * law[i]).toFixed(1)}°`;
    const lengths = [plain[i], law[i]].map((theta) => short(TURN / theta));
    pair.wave.textContent = `λ ${lengths[0] === lengths[1] || !view.roomy ? lengths[1] : lengths.join("→")}`;
    describeHandle(pair.q, times(z, turner(position * law[i])));
    describeHandle(pair.k, pairOf(state.k, i));
  });
}

function drawTrail(pair, orbit, from, to) {
  const begin = to - clamp(to - from, -0.8 * TURN, 0.8 * TURN), step = (to - begin) / pair.trail.length;
  const still = Math.abs(to - begin) < 0.01;
  pair.trail.forEach((node, j) => node.setAttribute("d", still ? "" : arc(pair.centre, orbit, begin + j * step, begin + (j + 1) * step)));
}

function drawCurves(view) {
  const { plot, data, state, unit } = view, { plain, law, gain, bent } = view.frequencies;
  const width = plot.clientWidth, high = plot.clientHeight, left = 44 * unit, right = width - 10, top = 6 * unit, bottom = high - 20 * unit;
  const all = waves(state.q, state.k, law, gain), steps = distances(data.farthest);
  if (!view.held) view.most = Math.max(1e-9, all.reduce((sum, { size }) => sum + size, 0));
  const x = (m) => left + (m / data.farthest) * (right - left), y = (v) => (top + bottom) / 2 - (v / view.most) * (bottom - top) / 2;
  const tenth = (value) => Math.round(10 * value) / 10; // cheaper than toFixed, and this is most of the work
  const curve = (name, terms) => {
    const fastest = Math.max(...terms.map(({ theta }) => theta)), every = clamp(Math.floor(0.2 / (fastest * steps[1])), 1, 16);
    const words = steps.filter((_, j) => j % every === 0 || j === steps.length - 1).map((m) => {
      const total = terms.reduce((sum, wave) => sum + height(wave, m), 0);
      return `${tenth(x(m))} ${tenth(clamp(y(total), top, bottom))}`;
    });
    svg(plot, "path", `curve ${name}`, { d: `M${words.join("L")}` });
  };
  plot.replaceChildren();
  drawAxes(view, { x, y, left, right, top, bottom });
  all.forEach((wave, i) => i !== view.chosen && curve("", [wave]));
  curve("chosen", [all[view.chosen]]);
  if (bent) curve("unlaw", waves(state.q, state.k, plain));
  curve("sum", all);
  view.now = svg(plot, "line", "now", { y1: top, y2: bottom });
  view.dot = svg(plot, "circle", "query", { r: 5 * unit });
  view.at = (m) => ({ x: x(m), y: clamp(y(all.reduce((total, wave) => total + height(wave, m), 0)), top, bottom) });
}

function drawAxes({ plot, data, most, unit }, { x, y, left, right, top, bottom }) {
  const word = (text, name, at, on) => { svg(plot, "text", `faint ${name}`, { x: at, y: on }).textContent = text; };
  for (const value of [most, 0, -most]) {
    svg(plot, "line", "axis", { x1: left, x2: right, y1: y(value), y2: y(value) });
    word(signed(value).replace("+", ""), "right", left - 5, y(value) + 4 * unit);
  }
  const under = bottom + 15 * unit, trained = data.original_context, room = x(trained) - left > 60 * unit && right - x(trained) > 90 * unit;
  word("0", "middle", left, under);
  word(`${data.farthest} back`, "right", right, under);
  if (trained >= data.farthest) return;
  svg(plot, "line", "axis trained", { x1: x(trained), x2: x(trained), y1: top, y2: bottom });
  if (room) word(`trained ${trained}`, "middle", x(trained), under);
}

function drawWords(view) {
  const { state, root, first, chosen } = view, { law, gain } = view.frequencies, { position } = state;
  const z = pairOf(state.q, chosen), angle = position * law[chosen], m = rounded(position, 1), b = rounded(position - first, 1);
  const value = score(state.q, state.k, law, position, gain);
  root.querySelector(".turn").textContent = `Pair ${chosen + 1}: z = ${complex(z)}; z · exp(i mθ) with mθ = ${m} × ${law[chosen].toPrecision(3)}`
    + ` = ${angle.toFixed(2)} is ${complex(times(z, turner(angle)))}`;
  root.querySelector(".hops").textContent = first
    ? `R(b) R(a) q = R(a + b) q with a = ${rounded(first, 1)}, b = ${b}: they differ by ${hopError(state.q, law, first, position - first).toExponential(0)}`
    : "Two hops a + b: move the first and see where both land.";
  root.querySelector(".title").textContent = `Score ${m} back: ${signed(value)}, the sum of the thin cosines${gain === 1 ? "" : `, attention factor² = ${gain.toFixed(2)} included`}`;
  const at = view.at(position);
  set(view.now, { x1: at.x, x2: at.x });
  set(view.dot, { cx: at.x, cy: at.y });
  root.querySelector(".hop").textContent = first ? `${rounded(first, 1)} + ${b}` : "none";
}

function drawControls(view) {
  const { root, state, playing } = view, put = (selector, value) => {
    const field = root.querySelector(selector);
    if (field !== document.activeElement || !view.typing) field.value = value;
    return field;
  };
  const position = put(".position", state.position), base = put(".base", Math.log10(state.base)), first = put(".first", view.first);
  position.setAttribute("aria-valuetext", `position ${rounded(state.position, 1)}`);
  first.setAttribute("aria-valuetext", `first ${rounded(view.first, 1)}, then ${rounded(state.position - view.first, 1)}`);
  base.setAttribute("aria-valuetext", `base ${state.base}`);
  put(".typed-position", rounded(state.position, 1));
  put(".typed-base", state.base);
  root.querySelectorAll(".kinds input").forEach((radio) => { radio.checked = radio.value === state.kind; });
  root.querySelector(".play path").setAttribute("d", ICONS[playing ? "pause" : "play"]);
  root.querySelector(".play").setAttribute("aria-label", playing ? "Pause" : "Play");
}

// ---- time

// Ask for one drawing before the next picture; `grid` and `curves` say what has to be laid out again.
function refresh(view, ...stale) {
  for (const what of stale) view.stale.add(what);
  view.frame ??= requestAnimationFrame((now) => { view.frame = undefined; draw(view, now); });
}

function draw(view, now) {
  const passed = Math.min((now - (view.drawn ?? now)) / 1000, 0.1);
  view.drawn = now;
  if (view.playing) advance(view, passed);
  const lag = view.state.position - view.tail;
  view.tail = view.calm.matches || Math.abs(lag) < 0.02 ? view.state.position : view.tail + lag * (1 - Math.exp(-passed / 0.3));
  if (view.circles.clientWidth && view.circles.clientHeight) paint(view);
  if (view.playing || view.tail !== view.state.position) refresh(view);
  else view.drawn = undefined;
}

function paint(view) {
  view.frequencies = frequenciesOf(view);
  if (view.stale.has("grid")) drawGrid(view);
  if (view.stale.size) drawCurves(view);
  view.stale.clear();
  drawPairs(view);
  drawWords(view);
  drawControls(view);
  view.root.dataset.frames = Number(view.root.dataset.frames ?? 0) + 1;
}

// A whole position twice a second for who asked for less motion; else smoothly, the range within a minute.
function advance(view, passed) {
  const { state, data } = view, speed = view.calm.matches ? 2 : Math.max(2, data.farthest / 60);
  view.played = Math.min(view.played + passed * speed, data.farthest);
  state.position = view.calm.matches ? Math.floor(view.played) : view.played;
  if (view.played >= data.farthest) pause(view);
}

function play(view) {
  view.playing = true;
  view.played = view.tail = view.state.position >= view.data.farthest ? 0 : view.state.position;
  refresh(view);
}

function pause(view) {
  if (!view.playing) return;
  view.playing = false;
  release(view);
}

// ---- the hand

// What the page is told: only what changed, once, a moment after the hand lets go (keys follow each other quickly).
function release(view) {
  view.state.position = Math.round(view.state.position); // tokens stand at whole positions
  view.first = Math.min(view.first, view.state.position);
  clearTimeout(view.pending);
  view.pending = setTimeout(() => {
    view.pending = undefined;
    if (view.held || view.playing) return; // the hand is at it again, and will let go again
    const shared = sharing(view.state);
    const changed = Object.keys(shared).filter((name) => shared[name] !== view.shared[name]);
    if (changed.some((name) => "kind q k".split(" ").includes(name))) changed.push("kind", "q", "k");
    view.shared = shared;
    if (changed.length) view.send("release", Object.fromEntries(changed.map((name) => [name, shared[name]])));
  }, 250);
  refresh(view, "curves");
}

const sharing = ({ position, base, kind, q, k }) => ({ position, base, kind, q: q.map((v) => rounded(v)).join(","), k: k.map((v) => rounded(v)).join(",") });

function moveTo(view, position) {
  view.playing = false;
  view.state.position = clamp(position, 0, view.data.farthest);
  view.first = Math.min(view.first, view.state.position);
  refresh(view);
}

function baseTo(view, base) {
  view.state.base = clamp(base, view.lowest, view.highest);
  refresh(view, "curves");
}

function become(view, kind) {
  const { state, data } = view;
  state.kind = kind;
  if (kind === "same") state.k = [...state.q];
  if (kind === "random") [state.q, state.k] = [seeded(data.d, 1), seeded(data.d, 2)];
  release(view);
}

function makeHandle(view, group, name, i) {
  const handle = svg(group, "circle", "handle", { r: 16, tabindex: 0, role: "slider", "aria-valuemin": 0, "aria-valuemax": 360,
    "aria-label": `${name === "q" ? "Query" : "Key"}, pair ${i + 1}` });
  handle.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false }); // shapes inside an SVG have no touch-action
  handle.onpointerdown = (event) => {
    handle.setPointerCapture(event.pointerId);
    view.held = nearest(view, i, event);
    view.playing = false;
  };
  handle.onpointermove = (event) => handle.hasPointerCapture(event.pointerId) && dragTo(view, view.held, i, event);
  handle.onlostpointercapture = () => { view.held = undefined; release(view); };
  handle.onkeydown = (event) => {
    const by = { ArrowLeft: [5, 0], ArrowRight: [-5, 0], ArrowUp: [0, 0.05], ArrowDown: [0, -0.05] }[event.key];
    if (!by) return;
    event.preventDefault();
    const [a, b] = pairOf(view.state[name], i), size = clamp(Math.hypot(a, b) + by[1], 0.05, view.scale);
    const turned = turner(Math.atan2(b, a) + (by[0] * (event.shiftKey ? 3 : 1) * TURN) / 360);
    place(view, name, i, turned.map((part) => part * size));
    release(view);
  };
  return handle;
}

// Where the areas of the two points of a pair overlap, the hand takes the point that it is closer to.
function nearest(view, i, event) {
  const [q, k] = ["q", "k"].map((name) => {
    const box = view.pairs[i][name].getBoundingClientRect();
    return Math.hypot(event.clientX - box.left - box.width / 2, event.clientY - box.top - box.height / 2);
  });
  return k < q ? "k" : "q";
}

function describeHandle(handle, [a, b]) {
  const angle = degrees(Math.atan2(b, a)).toFixed(0);
  set(handle, { "aria-valuenow": angle, "aria-valuetext": `${angle} degrees, length ${Math.hypot(a, b).toFixed(2)}` });
}

// The query is taken where it has been turned to: turn it back to position 0.
function dragTo(view, name, i, event) {
  const box = view.circles.getBoundingClientRect(), { x, y } = view.pairs[i].centre, unit = view.scale / view.radius;
  const z = [(event.clientX - box.left - x) * unit, (y - event.clientY + box.top) * unit];
  const shrink = Math.min(1, view.scale / Math.hypot(...z));
  const back = name === "q" ? turner(-view.state.position * view.frequencies.law[i]) : [1, 0];
  place(view, name, i, times(z.map((part) => part * shrink), back));
}

function place(view, name, i, [a, b]) {
  const vector = [...view.state[name]];
  vector.splice(2 * i, 2, rounded(a), rounded(b));
  view.state[name] = vector;
  view.state.kind = "dragged";
  refresh(view, "curves");
}

function listen(view) {
  const { root } = view, on = (selector, events) => Object.assign(root.querySelector(selector), events);
  const done = () => { view.held = view.typing = undefined; release(view); };
  const slider = (selector, move, keys) => {
    const field = on(selector, { oninput: () => { view.held = field; move(Number(field.value)); }, onchange: done, onpointerup: done, onpointercancel: done });
    field.onkeydown = (event) => {
      const way = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
      if (!way) return;
      event.preventDefault();
      keys(way * (event.shiftKey ? 10 : 1));
      done();
    };
  };
  const hop = (first) => { view.first = clamp(first, 0, view.state.position); refresh(view); };
  slider(".position", (value) => moveTo(view, value), (by) => moveTo(view, Math.round(view.state.position) + by));
  slider(".first", hop, (by) => hop(Math.round(view.first) + by));
  slider(".base", (value) => baseTo(view, coarse(10 ** value)), (by) => baseTo(view, coarse(view.state.base * 10 ** (by / 20))));
  const typed = (selector, take) => on(selector, {
    oninput: () => { view.typing = true; },
    onchange: (event) => { if (event.target.value !== "") take(Number(event.target.value)); done(); },
  });
  typed(".typed-position", (value) => moveTo(view, Math.round(value)));
  typed(".typed-base", (value) => baseTo(view, rounded(value, 2)));
  on(".play", { onclick: () => (view.playing ? pause(view) : play(view)) });
  root.querySelectorAll(".kinds input").forEach((radio) => { radio.onchange = () => become(view, radio.value); });
}

// ---- the page

const views = new WeakMap();

// Take over what the page says anew; while the hand is at work the page is behind it, and only the law is taken.
function adopt(view, data) {
  const before = view.data, busy = view.playing || view.held || view.typing || view.pending;
  if (before && JSON.stringify(before) === JSON.stringify(data)) return;
  view.data = data;
  if (!before || before.d !== data.d) view.state = undefined;
  const names = ["position", "base", "kind", "q", "k"].filter((name) => !view.state || (!busy && String(before[name]) !== String(data[name])));
  view.state = { ...view.state, ...Object.fromEntries(names.map((name) => [name, data[name]])) };
  view.state.position = clamp(view.state.position, 0, data.farthest);
  view.shared = sharing(data);
  view.scale = Math.max(1, ...[data.q, data.k].flatMap((v) => inverseFrequencies(data.d, 2).map((_, i) => Math.hypot(...pairOf(v, i)))));
  [view.lowest, view.highest] = [Math.min(LOWEST_BASE, data.base), Math.max(HIGHEST_BASE, data.base)];
  view.chosen = Math.min(view.chosen, data.d / 2 - 1);
  view.tail ??= view.state.position;
  Object.assign(view.root.querySelector(".base"), { min: Math.log10(view.lowest), max: Math.log10(view.highest) });
  for (const name of [".position", ".first"]) view.root.querySelector(name).max = data.farthest;
  view.root.querySelector(".bent").hidden = !frequenciesOf({ data, state: data }).bent;
  view.root.toggleAttribute("data-many", data.d > 8);
  view.root.querySelector(".drawn").textContent = data.drawn ?? "";
  view.root.setAttribute("aria-label", data.label);
  refresh(view, before?.d === data.d ? "curves" : "grid"); // the circles stay while their number does: one may have the focus
}

function create(root) {
  root.innerHTML = PAGE;
  root.setAttribute("role", "group");
  const view = { root, circles: root.querySelector(".circles"), plot: root.querySelector(".score"), stale: new Set(), chosen: 0, first: 0 };
  view.calm = matchMedia("(prefers-reduced-motion: reduce)");
  view.size = new ResizeObserver(() => refresh(view, "grid"));
  view.size.observe(root);
  listen(view);
  return view;
}

export default function ({ parentElement, data: bytes, setTriggerValue }) {
  const data = JSON.parse(new TextDecoder().decode(bytes));
  const view = views.get(parentElement) ?? create(parentElement.querySelector(".rotor"));
  views.set(parentElement, view);
  view.send = setTriggerValue;
  adopt(view, data);
  return () => {
    cancelAnimationFrame(view.frame);
    clearTimeout(view.pending);
    view.size.disconnect();
    views.delete(parentElement);
  };
}
