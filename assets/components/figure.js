// Hosts a plotly figure: Plotly.react in one node, so that zoom, selection and the node itself survive new data.
const hosts = new WeakMap();
const NARROW = 640;
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
let library;

function load(path) {
  library ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL(path, document.baseURI).href;
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => { library = undefined; reject(new Error(`cannot load ${path}`)); };
    document.head.appendChild(script);
  });
  return library;
}

// Text, grid and hover colours come from the page's theme; data colours from the figure.
function themeOf(element) {
  const style = getComputedStyle(element);
  const css = (name, fallback) => style.getPropertyValue(name).trim() || fallback;
  return {
    text: css("--st-text-color", "#333"),
    grid: css("--st-border-color", "rgba(128, 128, 128, 0.25)"),
    surface: css("--st-secondary-background-color", "#f5f5f5"),
    family: css("--st-font", "sans-serif"),
    scale: parseFloat(getComputedStyle(document.documentElement).fontSize) / 16, // larger in the projector's view
  };
}

function themed(layout, { text, grid, surface, family, scale }) {
  const full = {
    ...layout,
    uirevision: layout.uirevision ?? "keep",
    autosize: true,
    font: { ...layout.font, size: layout.font.size * scale, color: text, family },
    title: { ...layout.title, font: { size: layout.title.font.size * scale } },
    legend: { ...layout.legend, font: { size: layout.legend.font.size * scale } },
    margin: Object.fromEntries(Object.entries(layout.margin).map(([side, width]) => [side, width * scale])),
    modebar: { bgcolor: "rgba(0, 0, 0, 0)", color: text, activecolor: text },
    hoverlabel: { bgcolor: surface, bordercolor: grid, font: { color: text } },
  };
  for (const name of Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key))) {
    full[name] = { gridcolor: grid, linecolor: grid, ...layout[name] };
    const title = layout[name].title;
    if (title?.font?.size) full[name].title = { ...title, font: { ...title.font, size: title.font.size * scale } };
  }
  if (matchMedia("(pointer: coarse)").matches) full.dragmode = false; // a swipe scrolls the page
  return full;
}

// A heat map may come as gzipped bytes: rows of numbers from 0 to 255, a fifth of what they are as text.
async function unpacked({ packed, ...trace }) {
  if (!packed) return trace;
  const bytes = Uint8Array.from(atob(packed.gz), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const values = new Uint8Array(await new Response(stream).arrayBuffer());
  const [rows, columns] = packed.shape;
  const seen = (row, column) => packed.mask !== "causal" || column <= row;
  const z = Array.from({ length: rows }, (_, row) =>
    Array.from({ length: columns }, (_, column) => (seen(row, column) ? values[row * columns + column] * packed.scale : null)));
  return { ...trace, z };
}

// A phone may get a picture of its own.
function chosen(data) {
  return data.narrow && innerWidth < NARROW ? data.narrow : data;
}

// A legend that wraps, as on a phone, gets the room that it needs below the title.
async function fit(host) {
  const shape = `${host.theme.scale} ${host.traces.map((trace) => trace.name)}`; // to measure costs a layout of the page: seldom
  if (host.fitted === shape) return;
  host.fitted = shape;
  const node = host.node, legend = node.querySelector(".legend .bg"), title = node.querySelector(".gtitle");
  if (!legend || !title) return;
  const over = title.getBoundingClientRect().bottom - legend.getBoundingClientRect().top;
  if (over <= 0 && !host.room) return;
  const margin = node.layout.margin.t - (host.room ?? 0);
  host.room = Math.max(0, (host.room ?? 0) + over + 4);
  await window.Plotly.relayout(node, { "margin.t": margin + host.room });
}

async function draw(host) {
  const Plotly = await load(host.data.library);
  const picture = chosen(host.data);
  const layout = themed(JSON.parse(picture.layout), host.theme);
  if (host.drawnTraces !== picture.traces) { // the same objects again tell plotly that there is nothing to compute
    host.drawnTraces = picture.traces;
    host.traces = await Promise.all(JSON.parse(picture.traces).map(unpacked));
  }
  layout.margin.t += host.room ?? 0;
  host.cursor = layout.meta?.cursor;
  const touch = matchMedia("(pointer: coarse)").matches;
  const config = { displaylogo: false, displayModeBar: touch ? false : "hover", modeBarButtonsToRemove: ["select2d", "lasso2d"] };
  await Plotly.react(host.node, host.traces, layout, config);
  await fit(host);
  if (!host.listening) listen(host);
  host.node.dataset.drawn = String(Number(host.node.dataset.drawn || 0) + 1);
}

function listen(host) {
  host.listening = true;
  const send = (picked) => host.data.clicks && picked && typeof picked === "object" && host.send("click", picked);
  host.node.on("plotly_click", (event) => {
    if (host.cursor) host.node.focus({ preventScroll: true }); // so that the arrow keys go on from here
    send(event.points[0].customdata);
  });
  host.node.addEventListener("keydown", (event) => {
    const [down, right] = ARROWS[event.key] ?? [];
    const cells = host.traces[0]?.customdata;
    if (!host.cursor || down === undefined || !cells) return;
    const [row, column] = host.cursor; // in a strip there is one row, and all arrows move along it
    const next = Array.isArray(cells[0]) ? [row + down, column + right] : [0, column + down + right];
    const picked = Array.isArray(cells[0]) ? cells[next[0]]?.[next[1]] : cells[next[1]];
    event.preventDefault();
    if (!picked) return;
    host.cursor = next;
    send(picked);
  });
}

// One figure at a time, with a pause between them in which the browser can paint: the first is seen while the others wait.
let turn = Promise.resolve();

function queue(host) {
  turn = turn.then(() => draw(host)).catch((error) => {
    host.node.textContent = `The picture could not be drawn (${error.message}). Reload the page.`;
  }).then(() => new Promise((resume) => setTimeout(resume)));
}

// A line of JSON for each part; traces and layout stay text until they are drawn.
function read(bytes) {
  const [about, traces, layout, ...narrow] = new TextDecoder().decode(bytes).split("\n");
  return { ...JSON.parse(about), traces, layout, narrow: narrow.length ? { traces: narrow[0], layout: narrow[1] } : null };
}

export default function ({ parentElement, data: bytes, setTriggerValue }) {
  const data = read(bytes);
  let host = hosts.get(parentElement);
  if (!host) {
    const node = parentElement.querySelector(".figure");
    host = { node, theme: themeOf(node) };
    hosts.set(parentElement, host);
    host.size = new ResizeObserver(() => { // the window, or the sidebar that opens beside the page
      clearTimeout(host.settled);
      host.settled = setTimeout(() => {
        if (!host.listening) return;
        host.fitted = undefined;
        if (chosen(host.data).traces !== host.drawnTraces) queue(host);
        else Promise.resolve(window.Plotly.Plots.resize(node)).then(() => fit(host));
      }, 100);
    });
    host.size.observe(node);
    host.watch = setInterval(() => {
      const theme = themeOf(node);
      if (JSON.stringify(theme) === JSON.stringify(host.theme)) return;
      host.theme = theme;
      queue(host);
    }, 500);
  }
  host.send = setTriggerValue;
  host.node.setAttribute("aria-label", data.label);
  host.node.classList.toggle("clickable", data.clicks);
  if (data.clicks) host.node.tabIndex = 0;
  if (["traces", "layout"].some((part) => host.data?.[part] !== data[part] || host.data?.narrow?.[part] !== data.narrow?.[part])) {
    host.data = data;
    queue(host);
  }
  return () => {
    clearInterval(host.watch);
    clearTimeout(host.settled);
    host.size.disconnect();
    hosts.delete(parentElement);
    window.Plotly?.purge(host.node);
  };
}
