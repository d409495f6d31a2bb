// Saves the figures that stand on the page as PNG or SVG, drawn by the visitor's own browser.
const FORMATS = ["png", "svg"];

function background() {
  return getComputedStyle(document.querySelector(".stApp")).backgroundColor;
}

async function save(node, format, name) {
  const { width, height } = node.getBoundingClientRect();
  const picture = { data: node.data, layout: { ...node.layout, width, height, paper_bgcolor: background() } };
  const link = document.createElement("a"); // not on the page: a click there would close what this button stands in
  link.href = await window.Plotly.toImage(picture, { format, width, height, scale: format === "png" ? 3 : 1 });
  link.download = `${name}.${format}`;
  link.click();
}

function row(node, name) {
  const line = document.createElement("p");
  line.textContent = `${node.getAttribute("aria-label")} `;
  for (const format of FORMATS) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = format.toUpperCase();
    button.onclick = () => save(node, format, `${name}-${node.getAttribute("aria-label").toLowerCase().replace(/[^a-z0-9]+/g, "-").slice(0, 60)}`);
    line.append(" ", button);
  }
  return line;
}

export default function ({ parentElement, data }) {
  const place = parentElement.querySelector(".pictures");
  const list = () => {
    const drawn = [...document.querySelectorAll(".figure[data-drawn]")].filter((node) => node.offsetParent);
    place.replaceChildren(...drawn.map((node) => row(node, data.name)));
  };
  list();
  const later = setTimeout(list, 1500); // pictures that are still being drawn
  return () => clearTimeout(later);
}
