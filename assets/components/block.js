// A block (batch, tokens, features) before and after a norm: point at an entry, and the numbers averaged with it light up.
const states = new WeakMap();
const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, GAP] = [520, 250, 10];
const FULL = 3; // entries beyond this size are drawn in full colour
const ARROWS = { ArrowUp: [0, -1, 0], ArrowDown: [0, 1, 0], ArrowLeft: [0, 0, -1], ArrowRight: [0, 0, 1], PageUp: [-1, 0, 0], PageDown: [1, 0, 0] };

function node(parent, name, attributes = {}, text) {
  const made = parent.appendChild(document.createElementNS(SVG, name));
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Where the entries are: one card per sample, a row per token, a column per feature.
function grid([batch, tokens, features]) {
  const columns = batch * tokens > 16 ? 2 : 1;
  const rows = Math.ceil(batch / columns);
  const w = (WIDTH - GAP * (columns - 1)) / columns / features;
  const h = Math.min((HEIGHT - GAP * (rows - 1)) / rows / tokens, 34);
  const place = ([b, t, f]) => [(b % columns) * (w * features + GAP) + f * w, Math.floor(b / columns) * (h * tokens + GAP) + t * h];
  return { w, h, place, columns, height: rows * h * tokens + GAP * (rows - 1) };
}

const together = (axes, a, b) => a.every((index, axis) => axes.includes(axis) || index === b[axis]);
const inSet = (statistic, axes, at) => at.reduce((part, index, axis) => part[axes.includes(axis) ? 0 : index], statistic);
const entry = (values, at) => at.reduce((part, index) => part[index], values);
const shown = (value) => (Math.abs(value) < 0.005 ? 0 : value).toFixed(2);

function light(state) {
  const { data, at, panels } = state;
  for (const { cells, set, picked, place } of panels) {
    for (const { rect, where } of cells) rect.classList.toggle("lit", together(data.axes, at, where));
    const lit = cells.filter(({ where }) => together(data.axes, at, where));
    const { w, h } = state.grid;
    set.setAttribute("d", lit.map(({ where }) => { const [x, y] = place(where); return `M${x} ${y}h${w}v${h}h${-w}z`; }).join(""));
    const [x, y] = place(at);
    for (const [key, value] of Object.entries({ x, y, width: w, height: h })) picked.setAttribute(key, value);
  }
  const s = Object.fromEntries(Object.entries(data.statistics).map(([name, values]) => [name, inSet(values, data.axes, at)]));
  state.readout.textContent =
    `Sample ${at[0]}, token ${at[1]}, feature ${data.features[at[2]]}: ${shown(entry(data.before, at))} → ${shown(entry(data.after, at))}. ` +
    `Its set of ${data.size}: mean ${shown(s.before_mean)} → ${shown(s.after_mean)}, RMS ${shown(s.before_rms)} → ${shown(s.after_rms)}.`;
}

function drawCells(state, root, title, values) {
  const { data, grid: { w, h, place, height } } = state;
  const figure = root.appendChild(document.createElement("figure"));
  figure.appendChild(document.createElement("figcaption")).textContent = title;
  const svg = node(figure, "svg", { class: "cells", viewBox: `-2 -2 ${WIDTH + 4} ${height + 4}`, tabindex: 0, role: "img", "aria-label": `${title}: ${data.label}` });
  const cells = [];
  for (let b = 0; b < data.shape[0]; b += 1) {
    for (let t = 0; t < data.shape[1]; t += 1) {
      for (let f = 0; f < data.shape[2]; f += 1) {
        const value = values[b][t][f];
        const [x, y] = place([b, t, f]);
        const rect = node(svg, "rect", { class: "cell", x: x + 0.5, y: y + 0.5, width: w - 1, height: h - 1 });
        rect.setAttribute("fill", value < 0 ? data.colours[1] : data.colours[0]);
        rect.setAttribute("fill-opacity", Math.min(1, Math.abs(value) / FULL).toFixed(3));
        cells.push({ rect, where: [b, t, f] });
      }
    }
    const [x, y] = place([b, 0, 0]);
    node(svg, "rect", { class: "card", x, y, width: w * data.shape[2], height: h * data.shape[1], rx: 2 });
  }
  const panel = { cells, place, set: node(svg, "path", { class: "set" }), picked: node(svg, "rect", { class: "picked" }) };
  listen(state, svg, cells);
  return panel;
}

function listen(state, svg, cells) {
  const { w, h } = state.grid;
  const point = (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const found = cells.find(({ where }) => { const [x, y] = state.grid.place(where); return at.x >= x && at.x < x + w && at.y >= y && at.y < y + h; });
    if (!found) return;
    state.at = found.where;
    light(state);
  };
  svg.addEventListener("pointerdown", (event) => { svg.setPointerCapture(event.pointerId); point(event); });
  svg.addEventListener("pointermove", point);
  svg.addEventListener("keydown", (event) => {
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    state.at = state.at.map((index, axis) => Math.min(Math.max(index + step[axis], 0), state.data.shape[axis] - 1));
    light(state);
  });
}

// The block as a solid, with one set of numbers filled in.
function drawCube(root, axes) {
  const figure = root.appendChild(document.createElement("figure"));
  figure.className = "cube";
  figure.appendChild(document.createElement("figcaption")).textContent = "averaged over";
  const svg = node(figure, "svg", { viewBox: "0 0 150 150", role: "img", "aria-label": "The block, with the numbers that are averaged together filled in" });
  const corner = (b, t, f) => `${22 + 82 * f + 36 * b},${50 + 70 * t - 34 * b}`; // batch goes back, tokens down, features right
  const solid = (lo, hi, kind) => {
    const faces = [
      [[lo[0], lo[1], lo[2]], [lo[0], lo[1], hi[2]], [lo[0], hi[1], hi[2]], [lo[0], hi[1], lo[2]]],
      [[lo[0], lo[1], lo[2]], [lo[0], lo[1], hi[2]], [hi[0], lo[1], hi[2]], [hi[0], lo[1], lo[2]]],
      [[lo[0], lo[1], hi[2]], [hi[0], lo[1], hi[2]], [hi[0], hi[1], hi[2]], [lo[0], hi[1], hi[2]]],
    ];
    for (const face of faces) node(svg, "polygon", { class: kind, points: face.map((p) => corner(...p)).join(" ") });
  };
  solid([0, 0, 0], [1, 1, 1], "edge");
  solid(...[0, 1].map((end) => [0, 1, 2].map((axis) => (axes.includes(axis) ? end : [0, 0.4, 0.4][axis] + 0.2 * end))), "slab");
  node(svg, "text", { x: 63, y: 138, "text-anchor": "middle" }, "features");
  node(svg, "text", { x: 14, y: 88, "text-anchor": "middle", transform: "rotate(-90 14 88)" }, "tokens");
  node(svg, "text", { x: 32, y: 26, "text-anchor": "middle", transform: "rotate(-43 32 26)" }, "batch");
}

export default function ({ parentElement, data: bytes }) {
  const data = JSON.parse(new TextDecoder().decode(bytes));
  const root = parentElement.querySelector(".block");
  const key = JSON.stringify(data);
  const state = states.get(parentElement) ?? {};
  if (state.key === key) return;
  states.set(parentElement, Object.assign(state, { key, data, at: data.at, grid: grid(data.shape) }));
  root.replaceChildren();
  drawCube(root, data.axes);
  state.panels = [drawCells(state, root, "before", data.before), drawCells(state, root, `after ${data.norm}`, data.after)];
  state.readout = root.appendChild(document.createElement("div"));
  state.readout.className = "readout";
  state.readout.setAttribute("aria-live", "polite");
  light(state);
}
