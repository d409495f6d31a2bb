// Vectors by hand: v and the line along a, in the plane or in space, or v and the plane of two columns.
// Everything follows the hand in here; Python hears of it when the hand lets go.
const hosts = new WeakMap();
const SVG = "http://www.w3.org/2000/svg";
const LIMIT = 3; // a tip's largest coordinate
const HEIGHT = 350, MARGIN = 14;
const TINY = 1e-9; // no hand reaches it: tips are rounded to 0.001
const FINE = 0.01, STEP = 0.1;

// ---- vectors -------------------------------------------------------------------------------------------------------
const dot = (p, q) => p.reduce((sum, x, i) => sum + x * q[i], 0);
const add = (p, q, t = 1) => p.map((x, i) => x + t * q[i]);
const times = (p, t) => p.map((x) => x * t);
const length = (p) => Math.hypot(...p);
const unit = (p) => { const size = length(p); return p.map((x) => (size ? x / size : 0)); };
const cross = ([a, b, c], [d, e, f]) => [b * f - c * e, c * d - a * f, a * e - b * d];
const rounded = (p) => p.map((x) => Math.round(x * 1000) / 1000 + 0);
const within = (p) => p.map((x) => Math.min(LIMIT, Math.max(-LIMIT, x)));
const sized = (x) => (x === 0 || (Math.abs(x) >= 0.01 && Math.abs(x) < 1e4) ? x.toFixed(2) : x.toPrecision(2));
const text = (p, digits = 2) => `(${p.map((x) => (Math.abs(x) < 0.5 * 10 ** -digits ? 0 : x).toFixed(digits)).join(", ")})`;

// Orthonormal directions of the span of the columns: none for zero columns, one where they are parallel.
function span(columns) {
  const found = [];
  for (const column of columns) {
    let left = unit(column);
    for (let pass = 0; pass < 2; pass++) for (const q of found) left = add(left, q, -dot(q, left));
    if (length(left) > 1e-15) found.push(unit(left));
  }
  return found;
}

// A unit vector off the span, as the engine chooses it: of a plane the cross product, of a line towards its smallest coordinate.
function normalTo(basis) {
  if (basis.length === 2) return unit(cross(...basis));
  if (!basis.length) return [0, 0, 0];
  const k = basis[0].map(Math.abs).reduce((least, x, i, all) => (x < all[least] ? i : least), 0);
  const axis = [0, 0, 0].map((_, i) => Number(i === k));
  return unit(add(axis, basis[0], -basis[0][k]));
}

function project(state) {
  const n = state.n, v = state.v.slice(0, n), columns = state.columns.map((c) => c.slice(0, n));
  const basis = span(columns);
  const foot = basis.reduce((sum, q) => add(sum, q, dot(q, v)), v.map(() => 0));
  const residual = add(v, foot, -1);
  const normal = n === 3 ? normalTo(basis) : null;
  const slanted = normal && basis.length ? add(foot, basis[0], Math.tan((state.slant * Math.PI) / 180) * dot(normal, v)) : foot;
  return { v, columns, basis, foot, residual, slanted, kept: length(v) ? (length(foot) / length(v)) ** 2 : NaN, chance: basis.length / n };
}

// A typed column that reaches beyond the picture is drawn shorter, one too short to be seen longer: its direction is what matters.
const most = (column) => Math.max(...column.map(Math.abs));
const tiny = (column) => most(column) > 0 && most(column) < TINY;
const shown = (column) => (most(column) > LIMIT ? column.map((x) => (LIMIT * x) / most(column)) : tiny(column) ? column.map((x) => x / most(column)) : [...column]);
const scaled = (column) => (most(column) > LIMIT ? ", drawn shorter" : tiny(column) ? ", drawn longer" : "");

// ---- drawing -------------------------------------------------------------------------------------------------------
function node(name, attributes = {}, content) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (content !== undefined) element.textContent = content;
  return element;
}

// How a point of space lands on the screen: orthographic, seen from azimuth and elevation in degrees. Every tip that the hand
// can reach is in the picture, and so is the oblique projection, however far it lands.
function camera(state, width) {
  const room = [width / 2 - MARGIN, HEIGHT / 2 - MARGIN];
  if (state.n === 2) {
    const scale = Math.min(...room) / LIMIT;
    return { scale, right: [1, 0], up: [0, 1], at: ([x, y]) => [width / 2 + scale * x, HEIGHT / 2 - scale * y] };
  }
  const [az, el] = state.view.map((angle) => (angle * Math.PI) / 180);
  const right = [-Math.sin(az), Math.cos(az), 0];
  const up = [-Math.sin(el) * Math.cos(az), -Math.sin(el) * Math.sin(az), Math.cos(el)];
  const corner = (way) => LIMIT * way.reduce((sum, x) => sum + Math.abs(x), 0);
  const { foot, slanted } = project(state), reach = [right, up].map((way) => Math.max(corner(way), ...[foot, slanted].map((p) => Math.abs(dot(p, way)))));
  const scale = Math.min(room[0] / reach[0], room[1] / reach[1]);
  return { scale, right, up, at: (p) => [width / 2 + scale * dot(p, right), HEIGHT / 2 - scale * dot(p, up)] };
}

function painter(svg, view, names) {
  const points = (list) => list.map((p) => view.at(p).map((x) => x.toFixed(1)).join(",")).join(" ");
  return {
    line: (p, q, kind) => svg.append(node("polyline", { points: points([p, q]), class: kind })),
    shape: (list, kind) => svg.append(node("polygon", { points: points(list), class: kind })),
    path: (list, kind) => svg.append(node("polyline", { points: points(list), class: kind })),
    arrow(p, q, kind) {
      const [from, to] = [view.at(p), view.at(q)];
      const along = unit(add(to, from, -1)), size = length(add(to, from, -1));
      if (size < 1) return;
      const head = Math.min(13, size), base = add(to, along, -head), across = [-along[1], along[0]];
      const corners = [to, add(base, across, 0.45 * head), add(base, across, -0.45 * head)].map((c) => c.map((x) => x.toFixed(1)).join(","));
      svg.append(node("polyline", { points: [from, add(to, along, -0.8 * head)].map((c) => c.join(",")).join(" "), class: `shaft ${kind}` }));
      svg.append(node("polygon", { points: corners.join(" "), class: `head ${kind}` }));
    },
    word(p, content, kind, away = [0, 0, 0]) {
      const at = view.at(p);
      names.push({ at, off: unit(add(at, view.at(away), -1)), content, kind });
    },
  };
}

// Names stand beside their points, on the side named, or the nearest side where they stay in the picture and clear of the rest.
function placeNames(svg, names, tips, width) {
  const taken = tips.map(([x, y]) => [x - 12, y - 12, x + 12, y + 12]);
  for (const { at, off, content, kind } of names) {
    const half = [4.4 * content.length + 3, 10], sides = [];
    for (const far of [14, 26, 40]) for (const turn of [0, 0.6, -0.6, 1.2, -1.2, 1.8, -1.8, 2.4, -2.4, Math.PI]) {
      const [c, s] = [Math.cos(turn), Math.sin(turn)], way = length(off) ? [c * off[0] - s * off[1], s * off[0] + c * off[1]] : [s, c];
      const middle = at.map((x, i) => x + way[i] * (far + half[i]));
      const inside = middle.map((x, i) => Math.min([width, HEIGHT][i] - half[i] - 2, Math.max(half[i] + 2, x)));
      const box = [inside[0] - half[0], inside[1] - half[1], inside[0] + half[0], inside[1] + half[1]];
      const cost = taken.filter((t) => box[0] < t[2] && t[0] < box[2] && box[1] < t[3] && t[1] < box[3]).length;
      sides.push({ inside, box, cost: 1000 * cost + 10 * length(add(inside, middle, -1)) + 10 * Math.abs(turn) + far });
    }
    const best = sides.reduce((least, side) => (side.cost < least.cost ? side : least));
    taken.push(best.box);
    svg.append(node("text", { x: best.inside[0].toFixed(1), y: (best.inside[1] + 5).toFixed(1), class: `name ${kind}`, "text-anchor": "middle" }, content));
  }
}

function grid(draw, n) {
  const at = (x, y) => (n === 2 ? [x, y] : [x, y, 0]);
  for (let k = -LIMIT; k <= LIMIT; k++) {
    const far = n === 2 ? 12 : LIMIT;
    draw.line(at(k, -far), at(k, far), "grid");
    draw.line(at(-far, k), at(far, k), "grid");
  }
  if (n === 2) for (let k = LIMIT + 1; k < 12; k++) for (const s of [-1, 1]) draw.line(at(s * k, -12), at(s * k, 12), "grid");
  draw.line(at(-12, 0), at(12, 0), n === 2 ? "axis" : "none");
  draw.line(at(0, -12), at(0, 12), n === 2 ? "axis" : "none");
  if (n === 3) [[LIMIT, 0, 0], [0, LIMIT, 0], [0, 0, LIMIT]].forEach((tip, i) => {
    draw.line([0, 0, 0], tip, "axis");
    draw.word(tip, "xyz"[i], "quiet", [0, 0, 0]);
  });
}

function rightAngle(draw, found, view) {
  const { foot, residual, basis } = found;
  const size = 13 / view.scale;
  if (!basis.length || length(residual) < 2 * size) return;
  const inside = length(foot) > 1e-9 ? times(unit(foot), -1) : basis[0];
  const a = times(inside, size), b = times(unit(residual), size);
  draw.path([add(foot, a), add(add(foot, a), b), add(foot, b)], "corner");
}

function drawScene(host) {
  const { svg, state } = host, width = Math.max(280, svg.clientWidth || svg.parentElement.clientWidth);
  const view = (host.view = camera(state, width)), found = project(state);
  const zero = Array(state.n).fill(0), focused = svg.contains(document.activeElement) ? document.activeElement.dataset.tip : null;
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  svg.replaceChildren();
  const names = [], draw = painter(svg, view, names);
  grid(draw, state.n);
  const columns = host.state.columns.map((column) => shown(column).slice(0, state.n));
  const { v, basis, foot, slanted } = found, far = state.n === 2 ? 12 : 1.35 * LIMIT;
  if (basis.length === 2 && state.n === 3) {
    draw.shape([[1, 1], [1, -1], [-1, -1], [-1, 1]].map(([s, t]) => add(times(basis[0], s * LIMIT), basis[1], t * LIMIT)), "plane");
  } else if (basis.length) draw.line(times(basis[0], -far), times(basis[0], far), "span");
  if (state.n === 3) for (const tip of [v, ...columns]) draw.line(tip, [tip[0], tip[1], 0], "drop");
  columns.forEach((column) => draw.arrow(zero, column, "a"));
  draw.arrow(zero, foot, "p");
  draw.line(foot, v, "residual");
  rightAngle(draw, found, view);
  if (state.slant !== null) {
    draw.line(slanted, v, "slanted");
    draw.arrow(zero, slanted, "o");
    if (length(add(slanted, foot, -1)) > 0.3) draw.word(slanted, "oblique", "o", foot);
  }
  draw.arrow(zero, v, "v");
  if (length(foot) > 0.3 && length(found.residual) > 0.25) draw.word(foot, "projection", "p", v);
  handles(host, draw, { v, columns }, focused);
  placeNames(svg, names.reverse(), [v, ...columns].map(view.at), width);
  readOut(host, found);
}

function handles(host, draw, { v, columns }, focused) {
  const tips = [["v", v], ...columns.map((column, i) => [columns.length > 1 ? `a${i + 1}` : "a", column])];
  for (const [name, tip] of tips) {
    const [x, y] = host.view.at(tip);
    const handle = node("circle", { cx: x, cy: y, r: 11, class: `handle ${name[0]}`, tabindex: 0, role: "slider", "data-tip": name });
    handle.setAttribute("aria-label", `Tip of ${name}`);
    handle.setAttribute("aria-valuetext", text(tip));
    handle.setAttribute("aria-valuenow", tip[0].toFixed(2));
    host.svg.append(handle);
    draw.word(tip, name, name[0], length(tip) > 0.3 ? tip.map(() => 0) : times(add(tip, [0, -1, 0]), 1));
    if (name === focused) handle.focus({ preventScroll: true });
  }
}

// ---- what is read off ----------------------------------------------------------------------------------------------
function readOut(host, found) {
  const { v, columns, foot, residual, kept, chance, basis } = found, engine = host.data.engine;
  const squares = [foot, residual, v].map((p) => dot(p, p));
  const off = Math.max(...foot.map((x, i) => Math.abs(x - engine.foot[i])));
  const rows = [
    ["v", "v", text(v)],
    ...columns.map((column, i) => ["a", columns.length > 1 ? `a${i + 1}` : "a", `(${column.map(sized).join(", ")})${scaled(column)}`]),
    ["p", "projection", text(foot)],
    ["r", "residual, length", length(residual).toFixed(3)],
  ];
  if (host.state.slant !== null) rows.push(["o", "oblique, distance to v", length(add(v, found.slanted, -1)).toFixed(3)]);
  host.table.replaceChildren(...rows.map(([kind, name, value]) => {
    const row = document.createElement("tr");
    row.innerHTML = `<th class="${kind}"></th><td></td>`;
    row.firstChild.textContent = name;
    row.lastChild.textContent = value;
    return row;
  }));
  host.kept.style.width = `${(100 * (kept || 0)).toFixed(2)}%`;
  host.tick.style.left = `${(100 * chance).toFixed(2)}%`;
  host.sum.textContent = `|p|² ${squares[0].toFixed(3)}  +  |r|² ${squares[1].toFixed(3)}  =  |v|² ${squares[2].toFixed(3)}`;
  host.share.textContent = `kept ${kept >= 0 ? `${(100 * kept).toFixed(1)} %` : "—, v has no energy"}, chance ${(100 * chance).toFixed(1)} %`;
  const confirmed = `The engine's foot is ${text(engine.foot, 4)}; ${engine.error.toExponential(0)} from exact fractions.`;
  host.engine.textContent = host.grip || host.moved.size || !same(host, host.data) ? "Let go, and the engine computes it as well."
    : confirmed + (off > 1e-6 ? ` The browser's is ${off.toExponential(0)} away: its columns are close to parallel.` : "");
  if (host.curve) distanceCurve(host, basis.length ? dot(basis[0], v) : null, length(residual));
}

// |v - t a/|a|| over t: a valley whose bottom is the foot. The axes hold every v and a that the hand can reach; a = 0 has no line.
function distanceCurve(host, bottom, depth) {
  const svg = host.curve, width = Math.max(240, svg.clientWidth || 300), height = 150, ends = 5.5, top = 11;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  if (bottom === null) {
    svg.replaceChildren(node("text", { x: 4, y: 17, class: "caption" }, "Distance from v, along the line: — (a = 0, no line)"));
    return;
  }
  const x = (t) => 34 + ((t + ends) / (2 * ends)) * (width - 44), y = (d) => height - 22 - (d / top) * (height - 42);
  const valley = Array.from({ length: 89 }, (_, i) => -ends + i / 8).map((t) => `${x(t).toFixed(1)},${y(Math.hypot(depth, t - bottom)).toFixed(1)}`);
  svg.replaceChildren(
    node("text", { x: 4, y: 17, class: "caption" }, "Distance from v, along the line"),
    node("line", { x1: x(-ends), x2: x(ends), y1: y(0), y2: y(0), class: "axis" }),
    node("line", { x1: x(0), x2: x(0), y1: y(0), y2: y(top), class: "grid" }),
    ...[-4, -2, 0, 2, 4].map((t) => node("text", { x: x(t), y: height - 6, class: "quiet", "text-anchor": "middle" }, t)),
    ...[4, 8].map((d) => node("text", { x: 28, y: y(d) + 4, class: "quiet", "text-anchor": "end" }, d)),
    node("polyline", { points: valley.join(" "), class: "valley" }),
    node("line", { x1: x(bottom), x2: x(bottom), y1: y(depth), y2: y(0), class: "residual" }),
    node("circle", { cx: x(bottom), cy: y(depth), r: 6, class: "bottom" }),
    node("text", { x: Math.min(width - 48, Math.max(82, x(bottom))), y: y(depth) - 12, class: "name p", "text-anchor": "middle" }, `${depth.toFixed(2)} at ${bottom.toFixed(2)}`),
  );
}

// ---- the hand ------------------------------------------------------------------------------------------------------
const tipOf = (state, name) => (name === "v" ? state.v : state.columns[name === "a2" ? 1 : 0]);

// The tip that the hand has taken: from here on it is where it is drawn, and it alone is written when the hand lets go.
function taken(host, name) {
  const tip = tipOf(host.state, name);
  if (name !== "v") shown(tip).forEach((x, i) => { tip[i] = x; });
  host.moved.add(name);
  return tip;
}

function moveTip(host, name, byRight, byUp, byZ = 0) {
  const { view } = host, tip = taken(host, name);
  const moved = view.right.map((_, i) => tip[i] + byRight * view.right[i] + byUp * view.up[i] + (i === 2 ? byZ : 0));
  within(moved).forEach((x, i) => { tip[i] = x; });
}

function turn(host, byAzimuth, byElevation) {
  const [az, el] = host.state.view;
  host.moved.add("angles");
  host.state.view = [((az + byAzimuth + 540) % 360) - 180, Math.min(85, Math.max(-85, el + byElevation))];
}

function redraw(host) {
  if (host.frame) return;
  host.frame = requestAnimationFrame(() => { host.frame = 0; drawScene(host); });
}

function release(host) {
  clearTimeout(host.resting);
  const { state } = host;
  const { moved } = host, values = {};
  for (const name of ["v", "a", "a1", "a2"]) if (moved.has(name)) { const tip = tipOf(state, name); rounded(tip).forEach((x, i) => { tip[i] = x; }); }
  state.view = state.view.map((angle) => Math.round(angle * 10) / 10);
  if (moved.has("v")) values.v = state.v.join(",");
  if (moved.has("angles")) values.angles = state.view.join(",");
  if (["a", "a1", "a2"].some((name) => moved.has(name))) {
    if (host.data.mode === "line") values.a = state.columns[0].join(",");
    else values.matrix = [0, 1, 2].map((row) => state.columns.map((column) => column[row]).join(",")).join(";");
  }
  moved.clear();
  const changed = Object.fromEntries(Object.entries(values).filter(([name, value]) => value !== host.known[name]));
  redraw(host);
  if (!Object.keys(changed).length) return;
  Object.assign(host.known, changed);
  host.sent = performance.now();
  host.send("release", changed);
}

function listen(host) {
  const { svg } = host;
  svg.addEventListener("touchstart", (event) => event.target.dataset?.tip && event.preventDefault(), { passive: false }); // shapes inside an SVG have no touch-action
  svg.addEventListener("pointerdown", (event) => {
    const name = event.target.dataset?.tip;
    if (!name && host.state.n === 2) return;
    event.preventDefault();
    svg.setPointerCapture(event.pointerId);
    if (name) event.target.focus({ preventScroll: true });
    host.grip = { name, x: event.clientX, y: event.clientY };
  });
  svg.addEventListener("pointermove", (event) => {
    const grip = host.grip;
    if (!grip) return;
    const dx = event.clientX - grip.x, dy = event.clientY - grip.y;
    Object.assign(grip, { x: event.clientX, y: event.clientY });
    if (grip.name) moveTip(host, grip.name, dx / host.view.scale, -dy / host.view.scale);
    else turn(host, -dx / 2, dy / 2);
    redraw(host);
  });
  for (const end of ["pointerup", "pointercancel"]) svg.addEventListener(end, () => {
    if (!host.grip) return;
    host.grip = null;
    release(host);
  });
  svg.addEventListener("keydown", (event) => keyed(host, event));
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

function keyed(host, event) {
  const name = event.target.dataset?.tip, way = ARROWS[event.key];
  const depth = host.state.n === 3 && name ? { PageUp: 1, PageDown: -1 }[event.key] : undefined;
  if ((!way && !depth) || (!name && host.state.n === 2)) return;
  event.preventDefault();
  const step = event.shiftKey ? FINE : STEP;
  if (depth) moveTip(host, name, 0, 0, depth * step);
  else if (!name) turn(host, 5 * way[0], 5 * way[1]);
  else if (host.state.n === 2) moveTip(host, name, way[0] * step, way[1] * step);
  else { const tip = taken(host, name); tip[0] = within([tip[0] + way[0] * step])[0]; tip[1] = within([tip[1] + way[1] * step])[0]; }
  redraw(host);
  clearTimeout(host.resting);
  host.resting = setTimeout(() => release(host), 250); // keys held down are one move of the hand
}

// ---- life ----------------------------------------------------------------------------------------------------------
function build(root, data) {
  root.innerHTML = `<svg class="scene" tabindex="0" role="group"></svg>
    <div class="reads"><svg class="curve" aria-hidden="true"></svg><table></table>
      <div class="bar"><div class="kept"></div><div class="tick"></div></div>
      <p class="sum"></p><p class="share"></p><p class="engine"></p></div>`;
  const find = (kind) => root.querySelector(kind);
  if (data.mode !== "line") find(".curve").remove();
  const parts = { svg: find(".scene"), curve: find(".curve"), table: find("table"), kept: find(".kept"), tick: find(".tick") };
  return { ...parts, sum: find(".sum"), share: find(".share"), engine: find(".engine") };
}

function adopt(host, data) {
  const key = JSON.stringify([data.n, data.v, data.columns, data.view, data.slant]);
  host.data = data;
  if (key === host.key || host.grip || host.moved?.size) return;
  const wait = host.sent ? host.sent + 1500 - performance.now() : 0;
  if (wait > 0 && !same(host, data)) { // what the server said before it heard of the last move
    clearTimeout(host.later);
    host.later = setTimeout(() => { adopt(host, host.data); redraw(host); }, wait);
    return;
  }
  host.key = key;
  host.known = { ...data.known };
  host.moved = new Set();
  host.state = { n: data.n, v: [...data.v], columns: data.columns.map((column) => [...column]), view: [...data.view], slant: data.slant };
}

const same = (host, data) => Object.entries(data.known).every(([name, value]) => host.known[name] === value);

export default function ({ parentElement, data: bytes, setTriggerValue }) {
  const data = JSON.parse(new TextDecoder().decode(bytes));
  let host = hosts.get(parentElement);
  if (!host) {
    const root = parentElement.querySelector(".arrows");
    host = { ...build(root, data), data };
    hosts.set(parentElement, host);
    adopt(host, data);
    listen(host);
    host.size = new ResizeObserver(() => redraw(host));
    host.size.observe(root);
  }
  host.send = setTriggerValue;
  adopt(host, data);
  host.svg.classList.toggle("turns", host.state.n === 3);
  host.svg.setAttribute("aria-label", data.label);
  redraw(host);
  return () => {
    cancelAnimationFrame(host.frame);
    clearTimeout(host.resting);
    clearTimeout(host.later);
    host.size.disconnect();
    hosts.delete(parentElement);
  };
}
