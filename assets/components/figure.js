// Hosts a plotly figure: Plotly.react in one node, so that zoom, selection and the node itself survive new data.
const hosts = new WeakMap();
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
  }
  if (matchMedia("(pointer: coarse)").matches) full.dragmode = false; // a swipe scrolls the page
  return full;
}

async function draw(host) {
  const Plotly = await load(host.data.library);
  const layout = themed(JSON.parse(host.data.layout), host.theme);
  if (host.drawnTraces !== host.data.traces) { // the same objects again tell plotly that there is nothing to compute
    host.drawnTraces = host.data.traces;
    host.traces = JSON.parse(host.data.traces);
  }
  const touch = matchMedia("(pointer: coarse)").matches;
  const config = { displaylogo: false, displayModeBar: touch ? false : "hover", modeBarButtonsToRemove: ["select2d", "lasso2d"] };
  await Plotly.react(host.node, host.traces, layout, config);
  if (!host.listening) {
    host.listening = true;
    host.node.on("plotly_click", (event) => {
      const picked = event.points[0].customdata;
      if (host.data.clicks && picked && typeof picked === "object") host.send("click", picked);
    });
  }
  host.node.dataset.drawn = String(Number(host.node.dataset.drawn || 0) + 1);
}

// One figure at a time, with a pause between them in which the browser can paint: the first is seen while the others wait.
let turn = Promise.resolve();

function queue(host) {
  turn = turn.then(() => draw(host)).catch((error) => {
    host.node.textContent = `The picture could not be drawn (${error.message}). Reload the page.`;
  }).then(() => new Promise((resume) => setTimeout(resume)));
}

export default function ({ parentElement, data, setTriggerValue }) {
  let host = hosts.get(parentElement);
  if (!host) {
    const node = parentElement.querySelector(".figure");
    host = { node, theme: themeOf(node) };
    hosts.set(parentElement, host);
    host.size = new ResizeObserver(() => { // the window, or the sidebar that opens beside the page
      clearTimeout(host.settled);
      host.settled = setTimeout(() => host.listening && window.Plotly.Plots.resize(node), 100);
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
  if (host.data?.traces !== data.traces || host.data?.layout !== data.layout) {
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
