// Shows an SVG file of this project inline, so that it follows the theme's colours.
export default function ({ parentElement, data }) {
  const place = parentElement.querySelector("div");
  if (place.dataset.label === data.label) return;
  place.innerHTML = data.svg;
  place.dataset.label = data.label;
  const svg = place.querySelector("svg");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", data.label);
  svg.style.width = "100%";
  svg.style.height = "auto";
  svg.style.color = "var(--st-text-color)";
}
