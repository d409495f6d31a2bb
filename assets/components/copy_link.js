// Copies the address of the page with every setting in it; where the browser forbids that, shows it to be copied by hand.
export default function ({ parentElement, data }) {
  const button = parentElement.querySelector("button");
  const field = parentElement.querySelector("input");
  const link = () => `${location.origin}${location.pathname}?${data.query}`;
  const idle = "Copy link";
  button.textContent ||= idle;
  button.dataset.query = data.query;
  field.hidden = true;
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(link());
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = idle; }, 1500);
    } catch {
      field.hidden = false;
      field.value = link();
      field.focus();
      field.select();
    }
  };
}
