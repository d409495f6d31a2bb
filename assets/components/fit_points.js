// Points by hand, and the polynomial of least squares through them; beside it the same as a projection: y, its foot, a right angle.
const hosts = new WeakMap();
const SVG = "http://www.w3.org/2000/svg";
const LIMIT = 2, HEIGHT = 320;

const dot = (p, q) => p.reduce((sum, x, i) => sum + x * q[i], 0);
const add = (p, q, t) => p.map((x, i) => x + t * q[i]);
const times = (p, t) => p.map((x) => x * t);
const length = (p) => Math.hypot(...p);
const value = (coefficients, x) => coefficients.reduceRight((sum, c) => sum * x + c, 0);

// Project y onto the columns 1, x, x^2, ...: orthonormal columns q, each with the polynomial whose values at the points it is.
function fit({ points, degree }) {
  const x = points.map((p) => p[0]), y = points.map((p) => p[1]), found = [];
  for (let j = 0; j <= degree; j++) {
    let q = x.map((at) => at ** j), poly = Array.from({ length: degree + 1 }, (_, i) => Number(i === j));
    const size = length(q);
    for (let pass = 0; pass < 2; pass++) for (const other of found) {
      const t = -dot(other.q, q);
      q = add(q, other.q, t);
      poly = add(poly, other.poly, t);
    }
    if (length(q) > 1e-9 * (size || 1)) found.push({ q: times(q, 1 / length(q)), poly: times(poly, 1 / length(q)) });
  }
  const none = { fitted: y.map(() => 0), poly: Array(degree + 1).fill(0) };
  const sum = found.reduce((so, { q, poly }) => ({ fitted: add(so.fitted, q, dot(q, y)), poly: add(so.poly, poly, dot(q, y)) }), none);
  return { y, fitted: sum.fitted, poly: sum.poly, residual: add(y, sum.fitted, -1) };
}

function node(name, attributes, content) {
  const element = document.createElementNS(SVG, name);
  for (const [key, entry] of Object.entries(attributes)) element.setAttribute(key, entry);
  if (content !== undefined) element.textContent = content;
  return element;
}

function draw(host) {
  const { svg, state } = host, width = Math.max(260, svg.clientWidth), found = fit(state);
  const X = (x) => width / 2 + (x / 2.25) * (width / 2), Y = (y) => HEIGHT / 2 - (y / 2.25) * (HEIGHT / 2);
  host.scale = [width / 4.5, HEIGHT / 4.5];
  const focused = svg.contains(document.activeElement) ? document.activeElement.dataset.point : undefined;
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  const lines = [-2, -1, 0, 1, 2].flatMap((k) => [
    node("line", { x1: X(k), x2: X(k), y1: 0, y2: HEIGHT, class: k ? "grid" : "axis" }),
    node("line", { x1: 0, x2: width, y1: Y(k), y2: Y(k), class: k ? "grid" : "axis" }),
  ]);
  const curve = Array.from({ length: 181 }, (_, i) => -2.25 + i / 40).map((x) => `${X(x).toFixed(1)},${Math.min(4e3, Math.max(-4e3, Y(value(found.poly, x)))).toFixed(1)}`);
  svg.replaceChildren(
    ...lines,
    node("polyline", { points: curve.join(" "), class: "curve" }),
    ...state.points.map(([x, y], i) => node("line", { x1: X(x), x2: X(x), y1: Y(y), y2: Y(found.fitted[i]), class: "residual" })),
    ...state.points.map(([x], i) => node("circle", { cx: X(x), cy: Y(found.fitted[i]), r: 4, class: "foot" })),
    ...state.points.map(([x, y], i) => node("circle", {
      cx: X(x), cy: Y(y), r: 10, class: "handle", tabindex: 0, role: "slider", "data-point": i,
      "aria-label": `Point ${i + 1}`, "aria-valuenow": y.toFixed(2), "aria-valuetext": `x ${x.toFixed(2)}, y ${y.toFixed(2)}`,
    })),
  );
  if (focused !== undefined) svg.querySelector(`[data-point="${focused}"]`)?.focus({ preventScroll: true });
  triangle(host, found);
}

// y as an arrow of length 1; the horizontal is what the columns can reach. The foot lies on the circle over y (Thales).
function triangle(host, { y, fitted, residual }) {
  const svg = host.triangle, width = Math.max(240, svg.clientWidth), height = 210;
  const size = length(y), cosine = size ? length(fitted) / size : 0, sine = size ? length(residual) / size : 0;
  const unit = Math.min(width - 90, 190), x0 = 30, y0 = height - 22, x1 = x0 + unit * cosine, y1 = y0 - unit * sine;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const corner = Math.min(11, unit * cosine, unit * sine);
  svg.replaceChildren(
    node("path", { d: `M ${x0 + unit} ${y0} A ${unit} ${unit} 0 0 0 ${x0} ${y0 - unit}`, class: "grid" }),
    node("line", { x1: 0, x2: width, y1: y0, y2: y0, class: "axis" }),
    node("polyline", { points: `${x1 - corner},${y0} ${x1 - corner},${y0 - corner} ${x1},${y0 - corner}`, class: "corner" }),
    node("line", { x1: x0, y1: y0, x2: x1, y2: y0, class: "projection" }),
    node("line", { x1, y1: y0, x2: x1, y2: y1, class: "residual" }),
    node("line", { x1: x0, y1: y0, x2: x1, y2: y1, class: "target" }),
    node("circle", { cx: x1, cy: y1, r: 5, class: "tip" }),
    node("text", { x: x1 + 10, y: y1 + 4, class: "name" }, "y"),
    node("text", { x: x0, y: height - 4, class: "quiet" }, "what 1, x, x², … can reach"),
  );
  const squares = [fitted, residual, y].map((p) => dot(p, p).toFixed(3));
  host.sum.textContent = `|Py|² ${squares[0]}  +  |r|² ${squares[1]}  =  |y|² ${squares[2]}`;
  const off = host.data.engine.fitted.length === fitted.length ? Math.max(...fitted.map((f, i) => Math.abs(f - host.data.engine.fitted[i]))) : 1;
  host.engine.textContent = host.grip || off > 1e-6 ? "Let go, and the engine computes it as well."
    : `The engine's fit is the same; largest cosine between the residual and a column: ${host.data.engine.cosine.toExponential(0)}.`;
}

function redraw(host) {
  if (host.frame) return;
  host.frame = requestAnimationFrame(() => { host.frame = 0; draw(host); });
}

function move(host, i, dx, dy) {
  const clip = (x) => Math.min(LIMIT, Math.max(-LIMIT, x));
  host.state.points[i] = [clip(host.state.points[i][0] + dx), clip(host.state.points[i][1] + dy)];
  redraw(host);
}

function release(host) {
  clearTimeout(host.resting);
  host.state.points = host.state.points.map((p) => p.map((x) => Math.round(x * 100) / 100 + 0));
  const points = host.state.points.flat().join(",");
  redraw(host);
  if (points === host.known) return;
  host.known = points;
  host.sent = performance.now();
  host.send("release", { points });
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

function listen(host) {
  const { svg } = host;
  svg.addEventListener("touchstart", (event) => event.target.dataset?.point && event.preventDefault(), { passive: false }); // shapes inside an SVG have no touch-action
  svg.addEventListener("pointerdown", (event) => {
    const i = event.target.dataset?.point;
    if (i === undefined) return;
    event.preventDefault();
    svg.setPointerCapture(event.pointerId);
    event.target.focus({ preventScroll: true });
    host.grip = { i: Number(i), x: event.clientX, y: event.clientY };
  });
  svg.addEventListener("pointermove", (event) => {
    const grip = host.grip;
    if (!grip) return;
    move(host, grip.i, (event.clientX - grip.x) / host.scale[0], -(event.clientY - grip.y) / host.scale[1]);
    Object.assign(grip, { x: event.clientX, y: event.clientY });
  });
  for (const end of ["pointerup", "pointercancel"]) svg.addEventListener(end, () => {
    if (!host.grip) return;
    host.grip = null;
    release(host);
  });
  svg.addEventListener("keydown", (event) => {
    const way = ARROWS[event.key], i = event.target.dataset?.point;
    if (!way || i === undefined) return;
    event.preventDefault();
    const step = event.shiftKey ? 0.01 : 0.1;
    move(host, Number(i), way[0] * step, way[1] * step);
    clearTimeout(host.resting);
    host.resting = setTimeout(() => release(host), 250); // keys held down are one move of the hand
  });
}

function adopt(host, data) {
  const key = JSON.stringify([data.points, data.degree]);
  host.data = data;
  if (host.state) host.state.degree = data.degree;
  if (key === host.key || host.grip) return;
  const wait = host.sent ? host.sent + 1500 - performance.now() : 0;
  if (wait > 0 && data.known !== host.known) { // what the server said before it heard of the last move
    clearTimeout(host.later);
    host.later = setTimeout(() => { adopt(host, host.data); redraw(host); }, wait);
    return;
  }
  Object.assign(host, { key, known: data.known, state: { points: data.points.map((p) => [...p]), degree: data.degree } });
}

export default function ({ parentElement, data: bytes, setTriggerValue }) {
  const data = JSON.parse(new TextDecoder().decode(bytes));
  let host = hosts.get(parentElement);
  if (!host) {
    const root = parentElement.querySelector(".fit_points");
    root.innerHTML = `<svg class="scene" role="group"></svg><div class="reads"><svg class="triangle" aria-hidden="true"></svg><p class="sum"></p><p class="engine"></p></div>`;
    const find = (kind) => root.querySelector(kind);
    host = { svg: find(".scene"), triangle: find(".triangle"), sum: find(".sum"), engine: find(".engine") };
    hosts.set(parentElement, host);
    listen(host);
    host.size = new ResizeObserver(() => host.state && redraw(host));
    host.size.observe(root);
  }
  host.send = setTriggerValue;
  adopt(host, data);
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
