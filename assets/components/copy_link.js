// Copies the address of the page with every setting in it; where the browser forbids that, shows it to be copied by hand.
function link({ defaults, behind }) {
  const all = new URLSearchParams(defaults), now = new URLSearchParams(location.search);
  for (const name of Object.keys(defaults)) {
    const value = now.getAll(name).at(-1) ?? null, [said, meant] = behind[name] ?? [];
    if (value === said) all.set(name, meant);
    else if (value !== null) all.set(name, value);
  }
  return `${location.origin}${location.pathname}?${all}`;
}

export default function ({ parentElement, data }) {
  const button = parentElement.querySelector("button");
  const field = parentElement.querySelector("input");
  const idle = "Copy link";
  button.textContent ||= idle;
  field.onblur = () => { field.hidden = true; }; // what is moved next, it would not show
  button.onclick = async () => {
    const address = link(data);
    button.dataset.link = address;
    try {
      await navigator.clipboard.writeText(address);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = idle; }, 1500);
    } catch {
      field.hidden = false;
      field.value = address;
      field.focus();
      field.select();
    }
  };
}
