"""The tabs of the LoRA page but *Shakespeare*."""

from dataclasses import replace

import streamlit as st

from engine.errors import InputError, ModelError
from engine.lora import LoraParams, SweepResult, numbers_at, sweep, table
from engine.lora_live import RecordedSweep, recorded_sweep
from engine.lora_merge import costs, merge, shipped_adapter
from engine.lora_spectra import directions_of
from engine.lora_variants import VARIANTS, first_step, variants
from engine.models.peft_files import zipped
from engine.params import Number
from engine.settings import is_hosted
from pages.parts.lora_fable import shakespeare
from pages.shared import layout
from pages.shared.compute import run
from pages.shared.data import lab
from pages.shared.guess import guess
from pages.shared.layout import escaped, numbers, prose
from pages.shared.panel import Panel
from pages.shared.remembered import Pictures
from pages.shared.show import show

figures = Pictures("lora")
fables = Pictures("lora_fable")


def read(panel: Panel) -> LoraParams:
    """Return the parameters; what only the engine can judge (an odd rank) is put back to its default and said."""
    try:
        return panel.read()
    except InputError as error:
        blamed = (name for name, words in BLAMED.items() if words in str(error))
        panel.refuse(next(blamed), str(error))


BLAMED = {"start": "orthogonal"}
"""Control -> words of the sentence that refuses it."""


def say_diverged(result: SweepResult) -> None:
    """Name the members whose training diverged, if any."""
    lost = result.diverged
    if lost:
        names = ["full" if rank == 0 else f"rank {rank}" for rank in sorted({rank for rank, _ in lost})]
        total = result.loss.shape[0] * result.loss.shape[1] + len(result.full_loss)
        st.warning(
            f"{len(lost)} of {total} runs diverged ({', '.join(names)}): their loss passed ten times its start."
            + (" The others went on." if len(lost) < total else "")
        )


def details(panel: Panel, params: LoraParams, result: SweepResult | None) -> None:
    """Draw every rank's numbers, and why the floor is where it is."""
    prose(
        "The least that any update of rank $r$ leaves is the tail of the singular values of $M\\Sigma^{1/2}$, not of $M$: directions "
        "that the inputs hardly show need not be learnt. Choose inputs with *a few strong* directions under *More*, and compare with "
        "*M cut by itself*."
    )
    if result is None:
        return
    if params.start == "pissa":
        st.caption("PiSSA froze W without its top r directions, so the adapter has to hold those as well as M: the floor here is that of both.")
    columns = zip(result.ranks, result.loss[..., -1], result.floor, result.cut_of_M, result.by_chance, result.trainable_parameters, strict=True)
    rows = [(rank, ", ".join(_percent(value) for value in last), *map(_percent, known), f"{count:,}") for rank, last, *known, count in columns]
    layout.table(("rank", "error left, by seed", "floor", "M cut by itself", "A random, best B", "trainable parameters"), rows)


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def low_rank(panel: Panel, params: LoraParams, result: SweepResult | None) -> None:
    """Draw the spectrum of what full fine-tuning learnt, on the teacher and on Shakespeare."""
    prose(
        "LoRA assumes that the change is low-rank. Let full fine-tuning learn it, and look at its spectrum beside a random matrix of the same size."
    )
    if result is None:
        return
    for column, draw in zip(st.columns(2), (figures.update_spectrum, figures.update_energy), strict=True):
        with column:
            show(draw(result), key=draw.__name__, label=f"{draw.__name__.replace('_', ' ')} of full fine-tuning beside a random matrix")
    numbers(directions_of(result.full_singular_values[0], (params.d_out, params.d_in), float(result.full_alignment[0])))
    st.caption("Where it fails: with rank k at its highest the change is flat, and every rank that is left out costs its full share.")
    found = run(recorded_sweep, params)
    st.markdown("**Fable, fine-tuned whole on Shakespeare** (recorded): rank that holds 90 % of each weight's update, and where it lies in W")
    for column, what, title in zip(st.columns(2), ("directions_90", "alignment"), ("Rank that holds 90 %", "Alignment over chance"), strict=True):
        with column:
            show(fables.module_map(found.spectra, what, title), key=f"fable_{what}", label=f"{title} of every weight's update")
    share = [s.directions_90 / s.directions_90_chance for s in found.spectra]
    chance = [s.directions_90_chance for s in found.spectra]
    mean = Number("Rank for 90 %, mean", sum(s.directions_90 for s in found.spectra) / len(share), sum(chance) / len(chance), 0)
    numbers([mean, Number("Effective rank, mean", _mean(found, "effective_rank"), _mean(found, "effective_rank_chance"), 0)])


def _mean(found: RecordedSweep, name: str) -> float:
    return sum(getattr(s, name) for s in found.spectra) / len(found.spectra)


def variant_tab(panel: Panel, params: LoraParams, result: SweepResult | None) -> None:
    """Draw the variants at the chosen rank, and the first step under both alpha rules."""
    prose("Each variant changes one thing. Same teacher, same data, same seeds; definitions as in Hugging Face's peft, NF4 as in bitsandbytes.")
    panel.draw("dropout")
    found, first = run(variants, params), run(first_step, params)
    left, right = st.columns(2)
    with left:
        show(figures.variant_bars(found), key="variants", label="Error left by each variant, with the floor of the rank")
    with right:
        show(figures.first_steps(first), key="first_steps", label="Size of the update after one step against the rank")
    numbers(variant_numbers(params))
    by_name = dict(zip(found.names, zip(found.last.mean(1), found.update_size, strict=True), strict=True))
    rows = [
        {"variant": n, "what it changes": VARIANTS[n], "error left": f"{e:.1%}", "size of the update": round(float(s), 2)}
        for n, (e, s) in by_name.items()
    ]
    st.dataframe(rows, hide_index=True)
    st.caption(
        "DoRA may pass below the floor of rank r: the rows' lengths that it trains make its update one of full rank. PiSSA stays above it: it must "
        f"also hold the directions of W that it took out, and the least it can leave is {found.pissa_floor:.1%}. On 4 bits the change to learn is M "
        f"and what rounding took; the {found.rank} strongest directions of both hold {found.nf4_before - found.nf4_floor:.1%} of the error, those "
        f"of M {1 - found.floor:.1%}: so the least on 4 bits may even lie below the floor."
    )


def variant_numbers(params: LoraParams) -> list[Number]:
    """Return what the variants tab says in numbers."""
    found, first = run(variants, params), run(first_step, params)
    return [
        Number("First step, alpha / r: highest rank over lowest", first.ratio("standard"), None, 2),
        Number("First step, alpha / sqrt(r): the same", first.ratio("rslora"), None, 2),
        Number("Error of 4 bits in W", 100 * found.nf4_error, None, 1, " %"),
        Number(f"Least on 4 bits, rank {found.rank}", 100 * found.nf4_floor, None, 1, " %", 100 * found.nf4_before),
    ]


def merging(panel: Panel, params: LoraParams, result: SweepResult | None) -> None:
    """Draw what an adapter is once trained: spectra, merging, costs, a file."""
    prose("After training, $W + sBA$ is a matrix like any other: merged, it costs nothing.")
    if not is_hosted():
        panel.draw("adapter")
    shown, said = with_usable_adapter(params)
    if said:
        st.error(escaped(said))
    st.caption("The adapter of your folder." if shown.adapter else "The adapter that comes with the lab.")
    found = run(merge, shown)
    mean_rank = sum(found.merged_rank) / len(found.merged_rank)
    numbers(
        [
            Number("Rank of the merged updates, mean", float(mean_rank), None, 1),
            Number("Merged or not, float32: logits differ by", 1e6 * found.fp32, None, 2, " millionths"),
            Number("The same, merged in float16", 1e6 * found.fp16, None, 0, " millionths"),
            Number("Left after unmerging", 1e6 * found.unmerged, None, 2, " millionths"),
        ]
    )
    left, right = st.columns(2)
    with left:
        show(
            fables.module_map(found.spectra, "effective_rank", f"Effective rank of rank {found.rank}"),
            key="merged",
            label="Effective rank of each module's update",
        )
    with right:
        show(fables.module_spectra(found.spectra), key="spectra", label="Spectra of the updates of layer 2")
    spent = run(costs, params)
    show(fables.cost_bars(spent), key="costs", label="Trainable parameters of full fine-tuning and of LoRA")
    table = zip(spent.names, spent.full, spent.lora, spent.ratio, strict=True)
    gib = lambda count, each: f"{count * each / 2**20:,.1f} MiB"  # noqa: E731
    rows = [
        {
            "model": n,
            "full": int(f),
            f"rank {spent.rank}": int(a),
            "times fewer": round(float(r), 1),
            "AdamW, full": gib(f, 8),
            "AdamW, LoRA": gib(a, 8),
            "file": gib(a, 2),
        }
        for n, f, a, r in table
    ]
    st.dataframe(rows, hide_index=True)
    st.caption("AdamW: two float32 moments per trained parameter; file: float16. Move *Rank looked at* to 8 for the well-known 256 times.")
    st.download_button("The recorded adapter (rank 8), for peft", lambda: zipped(shipped_adapter()), "fable-shakespeare.zip", on_click="ignore")


def with_usable_adapter(params: LoraParams) -> tuple[LoraParams, str]:
    """Return the parameters with an adapter that can be read, and why that of the visitor's folder cannot, or nothing."""
    try:
        run(merge, params)
    except ModelError as error:
        return replace(params, adapter=""), str(error)
    return params, ""


def guesses(panel: Panel, params: LoraParams, result: SweepResult | None) -> None:
    """Ask the lab's questions; every answer is computed when it is asked for."""
    for asked in lab("lora").guesses:
        guess(asked, panel, number_of, picture_of)


def number_of(params: LoraParams, name: str) -> Number:
    """Return the number that a guess is about."""
    if name == "first_step":
        return variant_numbers(params)[0]
    return numbers_at(run(sweep, params), params.rank)[0]


def picture_of(params: LoraParams, name: str, key: str) -> None:
    """Draw what a guess was about."""
    if name == "first_step":
        show(figures.first_steps(run(first_step, params)), key=key, label="Size of the update after one step against the rank")
    else:
        show(figures.loss_by_rank(run(sweep, params), params.rank), key=key, label="Error left at every rank")


def taken(params: LoraParams, tab: str) -> tuple[list[str], list[list]]:
    """Return header and rows of the CSV: what the open tab shows, or the sweep."""
    if tab == "Variants":
        found = run(variants, params)
        columns = zip(found.names, found.last.mean(1), found.update_size, strict=True)
        return ["variant", "error_left", "update_size"], [[name, float(error), float(size)] for name, error, size in columns]
    if tab == "Merge and save":
        rows = [[s.name, s.effective_rank, s.effective_rank_chance, s.alignment, s.alignment_chance] for s in run(merge, params).spectra]
        return ["module", "effective_rank", "chance", "alignment", "alignment_chance"], rows
    if tab == "Shakespeare":
        return ["rank", "seed", "verse", "prose"], run(recorded_sweep, params).rows()
    return table(run(sweep, params))


BEHIND = {
    "Variants": {"variants": variants, "first_step": first_step},
    "Merge and save": {"merge": merge, "costs": costs},
    "Shakespeare": {"recorded": recorded_sweep},
}
"""Tab -> what it shows besides the sweep, for the JSON and the Python lines."""

TABS = {
    "Sweep": details,
    "Is it low-rank?": low_rank,
    "Shakespeare": shakespeare,
    "Variants": variant_tab,
    "Merge and save": merging,
    "Guess": guesses,
}
"""Name in the link -> what draws it from (panel, params, the sweep or None where it is refused)."""
