// A target drawn by hand on [-2, 2], and the curve that a network fits to it, scrubbed or played through its training.
const SVG = "http://www.w3.org/2000/svg";
const LIMIT = 2, KNOTS = 17, NUDGE = 0.05, FAR = 0.25;
const PLAY_MS = 3000, SETTLE_MS = 700;
const MARGIN = { left: 34, right: 10, top: 8, bottom: 30 };
const hosts = new WeakMap();

const make = (name, attributes, parent) => {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  parent.appendChild(element);
  return element;
};
const clamp = (value) => Math.max(-LIMIT, Math.min(LIMIT, value));
const round = (value) => Math.round(value * 1000) / 1000;

function build(host) {
  host.root.innerHTML = `
    <div class="sketch-legend"><span class="sketch-fit"></span><span class="sketch-target">target: draw it, or move its points</span></div>
    <svg class="sketch-plot" role="group"></svg>
    <div class="sketch-training">
      <button type="button"></button>
      <input type="range" min="0" step="1" aria-label="Training step">
      <output></output>
    </div>`;
  const find = (selector) => host.root.querySelector(selector);
  Object.assign(host, { svg: find("svg"), fitName: find(".sketch-fit"), button: find("button"), slider: find("input"), output: find("output") });
  host.grid = make("g", { class: "sketch-grid" }, host.svg);
  host.area = make("rect", { class: "sketch-area" }, host.svg);
  host.switches = make("g", { class: "sketch-switches" }, host.svg);
  host.target = make("path", { class: "sketch-target-line" }, host.svg);
  host.fit = make("path", { class: "sketch-fit-line" }, host.svg);
  host.handles = make("g", { class: "sketch-handles" }, host.svg);
  listen(host);
}

function listen(host) {
  host.area.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false }); // shapes inside an SVG have no touch-action
  host.area.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    event.preventDefault();
    host.area.setPointerCapture(event.pointerId);
    stop(host, false);
    host.last = undefined;
    host.busy = true;
    stroke(host, event);
  });
  host.area.addEventListener("pointermove", (event) => host.busy && stroke(host, event));
  for (const kind of ["pointerup", "pointercancel"]) host.area.addEventListener(kind, () => host.busy && release(host));
  host.handles.addEventListener("keydown", (event) => nudge(host, event));
  host.button.addEventListener("click", () => (host.playing ? stop(host, true) : play(host)));
  host.slider.addEventListener("input", () => { stop(host, false); host.scrubbing = true; show(host, Number(host.slider.value)); });
  host.slider.addEventListener("change", () => report(host));
}

// Points between the last place of the pointer and this one take their height from the straight line between the two.
function stroke(host, event) {
  const box = host.svg.getBoundingClientRect();
  const here = { x: clamp(host.toX(event.clientX - box.left)), y: clamp(host.toY(event.clientY - box.top)) };
  const from = host.last ?? here;
  const [low, high] = [Math.min(from.x, here.x), Math.max(from.x, here.x)];
  let reached = false;
  for (const point of host.points) {
    if (point[0] < low || point[0] > high) continue;
    const part = here.x === from.x ? 1 : (point[0] - from.x) / (here.x - from.x);
    point[1] = from.y + part * (here.y - from.y);
    reached = true;
  }
  if (!host.last && !reached) { // a press near a point takes hold of it
    const nearest = host.points.reduce((best, point) => (Math.abs(point[0] - here.x) < Math.abs(best[0] - here.x) ? point : best));
    nearest[1] = here.y;
  }
  host.last = here;
  host.drawn = true;
  paintTarget(host);
}

function nudge(host, event) {
  const index = Number(event.target.dataset.index);
  const by = event.shiftKey ? FAR : NUDGE;
  if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
    const next = Math.max(0, Math.min(host.points.length - 1, index + (event.key === "ArrowRight" ? 1 : -1)));
    host.focus = next;
    paintTarget(host);
    host.handles.children[next].focus();
  } else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
    host.points[index][1] = clamp(host.points[index][1] + (event.key === "ArrowUp" ? by : -by));
    host.drawn = host.busy = true;
    paintTarget(host);
    clearTimeout(host.settle);
    host.settle = setTimeout(() => release(host), SETTLE_MS);
  } else {
    return;
  }
  event.preventDefault();
}

function release(host) {
  host.busy = false;
  host.awaiting = true; // the next curves are this drawing's: they are shown from the first step on
  const steps = host.data.steps[host.data.steps.length - 1];
  host.send("release", { target: "drawn", drawing: host.points.flat().map(round).join(","), steps });
}

function report(host) {
  host.scrubbing = false;
  host.send("release", { steps: host.data.steps[host.index] });
}

function play(host) {
  const last = host.data.curves.length - 1;
  const start = host.index >= last ? 0 : host.index;
  let began;
  host.playing = true;
  host.button.textContent = "Stop";
  const frame = (now) => {
    if (!host.playing) return;
    began ??= now;
    const index = Math.min(last, start + Math.floor(((now - began) / PLAY_MS) * last));
    show(host, index);
    if (index < last) host.frame = requestAnimationFrame(frame);
    else stop(host, host.data.steps[index] !== host.data.step);
  };
  host.frame = requestAnimationFrame(frame);
}

function stop(host, tell) {
  cancelAnimationFrame(host.frame);
  if (host.playing && tell) report(host);
  host.playing = false;
  host.button.textContent = "Replay";
}

function layout(host) {
  const width = Math.max(240, host.svg.clientWidth), height = host.svg.clientHeight;
  const wide = width - MARGIN.left - MARGIN.right, high = height - MARGIN.top - MARGIN.bottom;
  host.x = (v) => MARGIN.left + ((v + LIMIT) / (2 * LIMIT)) * wide;
  host.y = (v) => MARGIN.top + ((LIMIT - v) / (2 * LIMIT)) * high;
  host.toX = (v) => ((v - MARGIN.left) / wide) * 2 * LIMIT - LIMIT;
  host.toY = (v) => LIMIT - ((v - MARGIN.top) / high) * 2 * LIMIT;
  for (const [key, value] of Object.entries({ x: MARGIN.left, y: MARGIN.top, width: wide, height: high })) host.area.setAttribute(key, value);
  host.grid.replaceChildren();
  for (const v of [-2, -1, 0, 1, 2]) {
    make("line", { x1: host.x(v), x2: host.x(v), y1: host.y(-LIMIT), y2: host.y(LIMIT) }, host.grid);
    make("line", { x1: host.x(-LIMIT), x2: host.x(LIMIT), y1: host.y(v), y2: host.y(v) }, host.grid);
    make("text", { x: host.x(v), y: host.y(-LIMIT) + 22, "text-anchor": "middle" }, host.grid).textContent = `${v}`.replace("-", "−");
    make("text", { x: MARGIN.left - 8, y: host.y(v) + 5, "text-anchor": "end" }, host.grid).textContent = `${v}`.replace("-", "−");
  }
  paintTarget(host);
  show(host, host.index);
}

const path = (host, xs, ys) => xs.map((x, i) => `${i ? "L" : "M"}${host.x(x).toFixed(1)} ${host.y(Math.max(-9, Math.min(9, ys[i]))).toFixed(1)}`).join("");

function paintTarget(host) {
  const { target } = host.data, n = target.length;
  const even = Array.from({ length: n }, (_, i) => -LIMIT + (2 * LIMIT * i) / (n - 1));
  const [first, last] = [host.points[0], host.points[host.points.length - 1]];
  const line = [[-LIMIT, first[1]], ...host.points, [LIMIT, last[1]]];
  const own = host.drawn ? path(host, line.map((p) => p[0]), line.map((p) => p[1])) : path(host, even, target);
  host.target.setAttribute("d", own);
  host.svg.classList.toggle("stale", host.busy || Boolean(host.awaiting));
  while (host.handles.children.length > host.points.length) host.handles.lastChild.remove();
  host.points.forEach(([x, y], i) => {
    const handle = host.handles.children[i] ?? make("circle", { r: 5, role: "slider", "aria-valuemin": -LIMIT, "aria-valuemax": LIMIT }, host.handles);
    const marks = { cx: host.x(x), cy: host.y(y), "data-index": i, tabindex: i === host.focus ? 0 : -1 };
    const words = { "aria-label": `Target at x = ${round(x)}; up and down to move it, left and right for its neighbours`, "aria-valuenow": round(y) };
    for (const [key, value] of Object.entries({ ...marks, ...words })) handle.setAttribute(key, value);
  });
}

function show(host, index) {
  const { curves, steps, switches, name } = host.data;
  host.index = Math.max(0, Math.min(curves.length - 1, index));
  const ys = curves[host.index], n = ys.length;
  host.fit.setAttribute("d", path(host, ys.map((_, i) => -LIMIT + (2 * LIMIT * i) / (n - 1)), ys));
  host.switches.replaceChildren();
  for (const x of switches[host.index]) {
    const at = host.x(x), foot = host.y(-LIMIT);
    make("path", { d: `M${at - 5} ${foot + 1}h10l-5 -10z` }, host.switches);
  }
  host.slider.max = curves.length - 1;
  if (!host.scrubbing) host.slider.value = host.index;
  host.slider.setAttribute("aria-valuetext", `step ${steps[host.index]}`);
  host.output.textContent = `step ${steps[host.index]}`;
  host.fitName.textContent = `${name}, the fit; ▲ a switch`;
}

// New numbers are adopted when they differ, never while a hand is at work.
function adopt(host, data) {
  if (host.busy || host.scrubbing) return;
  const fresh = JSON.stringify(data);
  if (fresh === host.adopted) return;
  const [learned, moved] = [data.curvesKey !== host.data?.curvesKey, data.step !== host.data?.step];
  if (host.playing && !learned) return;
  host.adopted = fresh;
  host.data = { ...data, ...JSON.parse(data.course) };
  if (learned || !host.points) {
    stop(host, false);
    host.points = data.points.map((point) => [...point]);
    host.drawn = data.drawn;
  }
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  if (learned || moved || host.index === undefined) host.index = data.steps.indexOf(data.step);
  const replay = host.awaiting && learned && !calm;
  if (learned) host.awaiting = false;
  if (replay) host.index = 0;
  layout(host);
  if (replay) play(host);
}

export default function ({ parentElement, data: bytes, setTriggerValue }) {
  const data = JSON.parse(new TextDecoder().decode(bytes));
  let host = hosts.get(parentElement);
  if (!host) {
    host = { root: parentElement.querySelector(".sketch"), focus: Math.floor(KNOTS / 2) };
    hosts.set(parentElement, host);
    build(host);
    stop(host, false);
    host.size = new ResizeObserver(() => host.data && layout(host));
    host.size.observe(host.svg);
  }
  host.send = setTriggerValue;
  host.svg.setAttribute("aria-label", data.label);
  adopt(host, data);
  return () => {
    stop(host, false);
    clearTimeout(host.settle);
    host.size.disconnect();
    hosts.delete(parentElement);
  };
}
