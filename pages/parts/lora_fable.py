"""The LoRA page's tab *Shakespeare*: the recorded sweep on Fable, and a run of the visitor's own over it."""

import streamlit as st

from engine.lora import LoraParams, SweepResult
from engine.lora_live import RUN, FableResult, RecordedSweep, fable_run, fits, has_flattened, module_types, recorded_sweep, seconds_per_step, too_many
from engine.models.peft_files import zipped
from pages.shared.compute import begin_again, follow, run
from pages.shared.layout import escaped, numbers, prose
from pages.shared.panel import Panel
from pages.shared.remembered import Pictures
from pages.shared.show import show

fables = Pictures("lora_fable")


def shakespeare(panel: Panel, params: LoraParams, result: SweepResult | None) -> None:
    """Draw the recorded sweep on Fable, and a run of the visitor's own over it."""
    recorded = run(recorded_sweep, params)
    prose("Fable was trained on old prose. Here adapters teach it verse; the loss on the prose says what it forgets meanwhile.")
    asked = tuple(getattr(params, name) for name in RUN)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        panel.draw("places", "fable_ranks", "fable_seeds", "fable_steps")
        refused = too_many(params)
        if st.button("Train now", type="primary", disabled=bool(refused)):
            st.session_state["_fable_asked"] = asked
            begin_again(fable_run, params)
    st.caption(refused or fits(params, run(seconds_per_step, params)))
    live = follow(fable_run, params)[0] if st.session_state.get("_fable_asked") == asked and not refused else None
    live = live if live is not None and live.steps[-1] else None  # nothing is learnt before the first step
    show(fables.loss_by_rank(recorded, live), key="fable_by_rank", label="Loss on verse and on prose by rank")
    for column, what in zip(st.columns(2), ("verse", "prose"), strict=True):
        with column:
            show(fables.curves(recorded, what, live), key=f"fable_{what}", label=f"Loss on {what} along the training")
    if live is not None:
        numbers(live.numbers())
    _recipe(recorded)
    _samples(recorded, live)


def _recipe(recorded: RecordedSweep) -> None:
    r = recorded.recipe
    flat = "flat" if has_flattened(recorded) else "not flat yet"
    st.caption(
        f"Recorded on {recorded.recorded}, {recorded.hardware}: ranks 1 to 64 and full, three seeds each, {r['steps']} steps of {r['rows']} x "
        f"{r['context']} tokens, {recorded.tokens_read_by_each:,} tokens read of a text of {recorded.tokens_of_verse:,}; AdamW at {r['rate']:g} "
        f"(full: {r['full_rate']:g}) falling to 0, alpha {r['alpha']:g}, s = alpha / r, on {module_types(r)}; "
        f"{'bfloat16' if r['bfloat16'] else 'float32'} products; "
        f"{recorded.seconds / 60:.0f} minutes in all. Loss on verse over the last interval: {recorded.slope:+.4f} nats, so the curves are {flat}. "
        + _lowest(recorded)
    )


def _lowest(recorded: RecordedSweep) -> str:
    verse, prose = recorded.full_verse.mean(0), recorded.full_prose.mean(0)
    best = int(verse.argmin())
    return (
        f"Full fine-tuning was lowest on verse at step {recorded.steps[best]} ({verse[best]:.3f} nats, {verse[-1]:.3f} at the end); "
        f"on prose it stood at {prose[best]:.3f} then, and at {prose[-1]:.3f} at the end."
    )


def _samples(recorded: RecordedSweep, live: FableResult | None) -> None:
    titles = {
        "Fable as it is": recorded.before,
        "After rank 8, recorded": recorded.samples[8],
        "After full fine-tuning, recorded": recorded.samples[0],
    }
    titles |= {f"After your rank {live.ranks[0]}": live.after} if live is not None and live.after else {}
    for column, (title, text) in zip(st.columns(len(titles)), titles.items(), strict=True):
        with column.container(border=True, height="stretch"):
            st.caption(f"{title}, after “MENENIUS:”")
            st.markdown("  \n".join(escaped(row) for row in text.strip().splitlines()))
    if live is not None and live.adapter is not None:
        data = zipped(live.adapter)
        st.download_button("Your adapter, for peft", data, "adapter.zip", "application/zip", on_click="ignore")
