// Copies the address of the page with every setting in it; where the browser forbids that, shows it to be copied by hand.
export default function ({ parentElement, data }) {
  const button = parentElement.querySelector("button");
  const field = parentElement.querySelector("input");
  if (button.standing !== JSON.stringify(data.standing)) {
    button.standing = JSON.stringify(data.standing);
    button.seen = new URLSearchParams(location.search);
  }
  const link = () => { // what has been moved since the server said where everything stands is in the address
    const all = new URLSearchParams(data.standing), now = new URLSearchParams(location.search);
    for (const name of Object.keys(data.standing)) {
      const value = now.getAll(name).at(-1);
      if (value !== button.seen.getAll(name).at(-1)) all.set(name, value ?? data.defaults[name]);
    }
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
