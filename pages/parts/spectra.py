"""The tabs of the head-spectrum page, and what its first screen asks of the model's behaviour."""

from collections.abc import Iterable, Sequence

import numpy as np
import streamlit as st

from engine.ablation import STRONG, effect, keep_curve, lesions
from engine.attention_maps import layer_attention
from engine.behaviour import behaviour_scores
from engine.continuation import continuation
from engine.directions import direction_tokens, token_rows
from engine.distance import distance_spectra
from engine.errors import LabError
from engine.head_map import SCORES, SPECTRAL, HeadScore, at_snapshot, columns, in_training, score, sources
from engine.heads import parse_heads, write_heads
from engine.latent import shared_latent
from engine.models.catalog import is_here, offered
from engine.params import Number
from engine.relations import rank_correlation
from engine.spectra import SpectraParams, chance, head_numbers, head_spectra
from engine.trajectory import trajectory
from engine.virtual import head_compositions, partner_of, virtual_head
from pages.shared.compute import run
from pages.shared.controls import Heads, Integer, Menu, Switch
from pages.shared.data import lab
from pages.shared.guess import guess
from pages.shared.layout import escaped, mishaps, numbers, prose, table
from pages.shared.panel import Panel
from pages.shared.remembered import Pictures, remembered
from pages.shared.show import show

causes = Pictures("cause")
attentions = Pictures("heads")
figures = Pictures("spectra", "distance", "latent", "trajectory", "virtual")

NO_OTHER = "none"
REMOVALS = {
    "keep_ov": "keeps k directions of W_OV (0: off)",
    "keep_qk": "keeps k directions of W_QK",
    "zero": "is switched off",
    "mean": "always writes its mean",
}
VIEW = {
    "colour": (Menu("Colour by", SCORES), "effective_rank"),
    "against": (Menu("Against", SCORES), "prefix_matching"),
    "sort": (Switch("All heads in order, highest first"), False),
    "compare": (Heads("Other heads", most=5), ""),
    "other": (Menu("Another model", {NO_OTHER: "none"} | {name: entry.title for name, entry in offered().items()}), NO_OTHER),
    "snapshot": (Integer("Snapshot of the training", 0, 9), 9),
}


def scored(name: str, params: SpectraParams) -> HeadScore:
    """Return a score of every head, each of its sources from the store or a worker."""
    return remembered(score)(name, params, *(run(function, params) for function in sources(name)))


def head_switch(panel: Panel, params: SpectraParams) -> None:
    """Draw the button that adds the chosen head to the changed heads, or takes it out: a button, which keeps no state of its own."""
    here, now = (params.layer, params.head), set(parse_heads(params.off))
    label = f"Switch {params.layer}.{params.head} {'on' if here in now else 'off'}"
    st.button(label, key="switch", on_click=panel.pick, args=({"off": write_heads(now ^ {here})},))


def sets_of_heads(panel: Panel, params: SpectraParams) -> None:
    """Draw buttons that change a whole set of heads at once, found by what they do."""

    def change(name: str | None) -> None:
        heads = [] if name is None else map(tuple, np.argwhere(scored(name, params).values > STRONG).tolist())
        panel.pick({"off": write_heads(heads)})

    with st.container(horizontal=True):
        for label, name in (("None", None), ("All induction heads", "prefix_matching"), ("All previous-token heads", "previous_token")):
            st.button(label, on_click=change, args=(name,), key=f"change_{name}")


def about_heads(panel: Panel, params: SpectraParams, left_out: Sequence[str]) -> None:
    """Draw the buttons for whole sets of heads, and say what of the model the spectra leave out."""
    sets_of_heads(panel, params)
    if left_out:
        st.caption(" ".join(left_out))


def behaviour_numbers(params: SpectraParams) -> Iterable[Number]:
    """Return the chosen head's induction score, and copying and loss before and after; nothing where they have no meaning."""
    try:
        found, after = run(behaviour_scores, params), run(effect, params)
    except LabError as error:
        st.caption(escaped(str(error)))
        return ()
    induction = Number("Induction score", float(found.prefix_matching[params.layer, params.head]), found.prefix_matching_chance, 2)
    return (induction, *after.numbers())


def cause(panel: Panel, params: SpectraParams, view: dict, limits: dict) -> None:
    """Draw one score of every head against another, what is left when heads keep few directions, and what the model then writes."""
    prose("Sharp spectra are said to mark the heads that copy. Plot any number of all heads against any other, then take heads away and see.")
    left, right = st.columns(2)
    with left, mishaps():
        panel.draw("against")
        across, up = scored(view["colour"], params), scored(view["against"], params)
        show(causes.scatter(across, up, params.layer, params.head), key="scatter", label=f"{up.name} against {across.name}", on_pick=panel.pick)
        found = remembered(rank_correlation)(across.values, up.values)
        numbers([Number("Rank correlation", found.rho, 0.0, 2)])
        low, high = found.band
        chance = f"Over {found.n} heads. Shuffled, 90 % of correlations lie between {low:.2f} and {high:.2f}; p = {found.p:.2g}."
        st.markdown(f"**{found.in_words(across.name, up.name)}**  \n:small[:gray[{chance}]]")
    with right, mishaps():
        curve = run(keep_curve, params)
        count = "1 head cut" if len(curve.heads) == 1 else f"{len(curve.heads)} heads cut together"
        why = "The changed heads." if params.off else "All induction heads, since no head is changed."
        st.markdown(f"**{count}:** {', '.join(f'{layer}.{head}' for layer, head in curve.heads[:12])}  \n:small[:gray[{why}]]")
        show(causes.keep_curve(curve), key="keep_curve", label="Copying accuracy against the directions kept")
        numbers(curve.numbers())
    with mishaps():
        text(panel, params)


def text(panel: Panel, params: SpectraParams) -> None:
    """Draw what the model writes after the prompt, as it is and with the changed heads."""
    panel.draw("prompt")
    written = run(continuation, params)
    same = "the same, token by token" if written.parted is None else f"parts from it at token {written.parted}"
    titles = ("All heads on", f"With the changed heads: {same}" if params.off else "With the changed heads: none is changed yet")
    for column, title, said in zip(st.columns(2, border=True), titles, (written.before, written.after), strict=True):
        column.markdown(f":small[:gray[{title}]]\n\n… {escaped(' '.join(said.split()))}")


def attention(panel: Panel, params: SpectraParams, view: dict, limits: dict) -> None:
    """Draw the attention of every head of the layer, small, and of the chosen one, large."""
    panel.draw("prompt")
    found = run(layer_attention, params)
    name = f"layer {params.layer}, head {params.head}"
    label = f"Attention of all heads of layer {params.layer}; head {params.head} is chosen"
    show(attentions.thumbnails(found, params.head), key="thumbnails", label=label, on_pick=panel.pick)
    show(attentions.attention(found, params.head), key="attention", label=f"Attention of {name} on the prompt")
    numbers(found.numbers(params.head))
    st.caption("At most 512 tokens, or the model's context. Weights in the picture are exact to 1/510; Take it away has every digit.")


def compare(panel: Panel, params: SpectraParams, view: dict, limits: dict) -> None:
    """Draw spectra and energies of the chosen head and up to five others, of this model and of another, over each other."""
    prose("How many directions must be kept to hold a share of what a head can do? A flat spectrum needs nearly all of them.")
    with st.container(horizontal=True):
        panel.draw("compare", "other", **limits)
    chosen = list(dict.fromkeys([(params.layer, params.head), *parse_heads(view["compare"])]))
    results = [run(head_spectra, params)]
    if view["other"] not in (NO_OTHER, params.model):
        if is_here(view["other"]):
            results.append(run(head_spectra, SpectraParams(model=view["other"], fold=params.fold)))
        else:
            st.info(f"{escaped(view['other'])} is not on this machine yet. Choose it as the model first: then it can be downloaded.")
    for column, draw, what in zip(st.columns(2), (figures.overlaid, figures.energies), ("Spectra", "Cumulative energy"), strict=True):
        with column:
            label = f"{what} of heads {', '.join(f'{layer}.{head}' for layer, head in chosen)} beside chance"
            show(draw(results, run(chance, params), params.circuit, chosen), key=f"compare_{what}", label=label)
    by_chance = run(chance, params)
    each = (SpectraParams(circuit=params.circuit, layer=layer, head=head) for layer, head in chosen)
    found = [head_numbers(one, results[0], by_chance)["directions_90"] for one in each]
    numbers(Number(f"{layer}.{head}: directions for 90 %", n.value, n.chance, n.digits) for (layer, head), n in zip(chosen, found, strict=True))


def tokens(panel: Panel, params: SpectraParams, view: dict, limits: dict) -> None:
    """Draw the strongest directions of the head as tokens at both ends."""
    ends = {
        "ov": "what it reads, through the embedding, and what it writes, through the unembedding",
        "qk": "the keys it looks for, and the queries that look",
    }
    prose(f"The strongest directions of this head, told in tokens: {ends[params.circuit]}. Behind the bar: the other end of the same direction.")
    header, rows = token_rows(run(direction_tokens, params), params.circuit)
    table(header, rows)


def distance(panel: Panel, params: SpectraParams, view: dict, limits: dict) -> None:
    """Draw the chosen head's W_QK as query and key move apart, slow and fast rotations apart."""
    prose("A rotary model has one $W_{QK}$ for each distance. Pairs slower than the context hardly turn; the fast ones turn away.")
    found = run(distance_spectra, params)
    for column, what in zip(st.columns(2), ("effective_rank", "sigma_1"), strict=True):
        with column:
            show(figures.distance_curves(found, what), key=f"distance_{what}", label=f"{what.replace('_', ' ')} of W_QK against the distance")


def training(panel: Panel, params: SpectraParams, view: dict, limits: dict) -> None:
    """Draw the map at a snapshot of the training, and the chosen head and the whole model along it."""
    found = run(trajectory, params)
    panel.draw("snapshot")
    name, what = in_training(view["colour"], params)
    then = at_snapshot(scored(name, params), found.of(what)[view["snapshot"]])
    step, where = int(found.steps[view["snapshot"]]), (params.layer, params.head)
    left, right = st.columns(2)
    with left:
        n_groups = run(head_spectra, params).n_kv_heads
        show(figures.head_map(then, params.circuit, n_groups, *where), key="then", label=f"{then.name} after {step} steps", on_pick=panel.pick)
    with right:
        curves = figures.trajectory_curves(found, what, *where, view["snapshot"], then.chance)
        show(curves, key="trajectory", label=f"{then.name} along the training, layer {params.layer}, head {params.head} in front")
    show(figures.progress_curves(found, view["snapshot"]), key="progress", label="Copying accuracy and loss along the training")
    st.caption(
        f"Step {step}. Spectra: computed now from the snapshot's weights. Behaviour and loss: recorded then, {found.recorded}. "
        "The numbers at the top are those of the model as it ended."
    )


def composition(panel: Panel, params: SpectraParams, view: dict, limits: dict) -> None:
    """Draw who composes with the chosen head, and the virtual head that it makes with one of them."""
    prose("What an earlier head writes, a later head may read as its query, its key or its value. Click a head to see the virtual head of the two.")
    panel.draw("kind")
    found = run(head_compositions, params)
    left, right = st.columns(2)
    with left:
        label = f"{params.kind.upper()}-composition of layer {params.layer}, head {params.head} with every head of other layers"
        show(figures.composition_map(found, params.kind, partner_of(params, found)), key="composition", label=label, on_pick=panel.pick)
    with right, mishaps():
        virtual = run(virtual_head, params)
        show(figures.virtual_spectrum(virtual), key="virtual", label="Singular values of the virtual head over the band of chance")
    numbers(virtual.numbers())


def latent(panel: Panel, params: SpectraParams, view: dict, limits: dict) -> None:
    """Draw what is lost if a layer's keys and values are kept as a few numbers per token."""
    prose("Multi-head latent attention keeps one small vector per token instead of all keys and values. What would this layer lose?")
    panel.draw("latent", "prompt", **limits)
    found = run(shared_latent, params)
    show(figures.latent_curves(found), key="latent_curves", label="Error of keys and values against the numbers kept per token")
    numbers(found.numbers())


BEHIND = {
    "Cause": {"effect": effect, "keep_curve": keep_curve, "continuation": continuation},
    "Attention": {"attention": layer_attention},
    "Tokens": {"directions": direction_tokens},
    "Distance": {"distance": distance_spectra},
    "Training": {"trajectory": trajectory},
    "Composition": {"compositions": head_compositions, "virtual_head": virtual_head},
    "Latent": {"latent": shared_latent},
}
"""What a tab shows beside the spectra: the engine's functions, by the name that the JSON gives their results."""


def taken(params: SpectraParams, view: dict) -> tuple[list[str], list[list]]:
    """Return header and rows of what the page shows: the weights of the attention tab, else a row for each head."""
    if view["tab"] == "Attention":
        found = run(layer_attention, params)
        return ["query", *found.labels], [[label, *map(float, row)] for label, row in zip(found.labels, found.attention[params.head], strict=True)]
    shown = dict.fromkeys((view["colour"], view["against"], "prefix_matching", "previous_token"))
    return columns(params, run(head_spectra, params), *(scored(name, params) for name in shown if name not in SPECTRAL))


def guesses(panel: Panel, params: SpectraParams, view: dict, limits: dict) -> None:
    """Ask the lab's questions; every answer is computed when it is asked for."""
    for asked in lab("spectra").guesses:
        guess(asked, panel, number_of, picture_of)


def number_of(params: SpectraParams, name: str) -> Number:
    """Return the number that a guess is about."""
    if name.startswith("without_"):
        return run(lesions, params).numbers()[name]
    if name == "keep_90":
        return run(keep_curve, params).numbers()[0]
    return head_numbers(params, run(head_spectra, params), run(chance, params))[name]


def picture_of(params: SpectraParams, name: str, key: str) -> None:
    """Draw what a guess was about."""
    if name.startswith(("without_", "keep_90")):
        show(causes.keep_curve(run(keep_curve, params)), key=key, label="Copying accuracy against the directions kept")
    else:
        found, where = run(head_spectra, params), [(params.layer, params.head)]
        picture = figures.energies([found], run(chance, params), params.circuit, where)
        show(picture, key=key, label="Cumulative energy beside chance")


TABS = {
    "Cause": cause,
    "Attention": attention,
    "Compare": compare,
    "Tokens": tokens,
    "Distance": distance,
    "Training": training,
    "Composition": composition,
    "Latent": latent,
    "Guess": guesses,
}
"""Name in the link -> what draws it from (panel, params, view, limits)."""
