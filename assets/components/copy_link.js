// Copies the address of the page with every setting in it; where the browser forbids that, shows it to be copied by hand.
export default function ({ parentElement, data }) {
  const button = parentElement.querySelector("button");
  const field = parentElement.querySelector("input");
  const link = () => {
    const all = new URLSearchParams(data.defaults), now = new URLSearchParams(location.search);
    for (const name of Object.keys(data.defaults)) if (now.has(name)) all.set(name, now.getAll(name).at(-1));
    return `${location.origin}${location.pathname}?${all}`;
  };
  const idle = "Copy link";
  button.textContent ||= idle;
  button.onclick = async () => {
    const address = link();
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
