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
function themed(layout, element) {
  const style = getComputedStyle(element);
  const css = (name, fallback) => style.getPropertyValue(name).trim() || fallback;
  const text = css("--st-text-color", "#333");
  const grid = css("--st-border-color", "rgba(128, 128, 128, 0.25)");
  const surface = css("--st-secondary-background-color", "#f5f5f5");
  const themedLayout = {
    ...layout,
    uirevision: "keep",
    autosize: true,
    font: { ...layout.font, color: text, family: css("--st-font", "sans-serif") },
    hoverlabel: { bgcolor: surface, bordercolor: grid, font: { color: text } },
  };
  for (const name of Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key))) {
    themedLayout[name] = { gridcolor: grid, linecolor: grid, ...layout[name] };
  }
  if (matchMedia("(pointer: coarse)").matches) themedLayout.dragmode = false; // a swipe scrolls the page
  return [themedLayout, `${text}|${grid}|${surface}`];
}

async function draw(host) {
  const Plotly = await load(host.data.library);
  const figure = JSON.parse(host.data.figure);
  const [layout, theme] = themed(figure.layout, host.node);
  host.theme = theme;
  const config = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["select2d", "lasso2d"] };
  await Plotly.react(host.node, figure.data, layout, config);
  if (!host.listening) {
    host.listening = true;
    host.node.on("plotly_click", (event) => {
      const picked = event.points[0].customdata;
      if (host.data.clicks && picked && typeof picked === "object") host.send("click", picked);
    });
  }
  host.node.dataset.drawn = String(Number(host.node.dataset.drawn || 0) + 1);
}

function queue(host) {
  host.drawing = (host.drawing ?? Promise.resolve()).then(() => draw(host)).catch((error) => {
    host.node.textContent = `The picture could not be drawn (${error.message}). Reload the page.`;
  });
}

export default function ({ parentElement, data, setTriggerValue }) {
  let host = hosts.get(parentElement);
  if (!host) {
    host = { node: parentElement.querySelector(".figure") };
    hosts.set(parentElement, host);
    host.watch = setInterval(() => {
      if (host.theme && themed({}, host.node)[1] !== host.theme) queue(host);
    }, 500);
  }
  host.send = setTriggerValue;
  host.node.setAttribute("aria-label", data.label);
  host.node.classList.toggle("clickable", data.clicks);
  if (!host.data || host.data.figure !== data.figure) {
    host.data = data;
    queue(host);
  }
  return () => {
    clearInterval(host.watch);
    hosts.delete(parentElement);
    window.Plotly?.purge(host.node);
  };
}
