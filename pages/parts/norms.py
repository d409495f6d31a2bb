"""The tabs of the norms page."""

import streamlit as st

from engine.depth import depth_study
from engine.norm_batches import batch_noise, company, images
from engine.norm_geometry import geometry, jacobian_table, jacobians
from engine.norm_stream import fold, stream, swap
from engine.norm_values import NormsParams
from engine.normalisation import NORMS
from engine.norms import block
from pages.shared.compute import run
from pages.shared.layout import escaped, mishaps, more, numbers, prose, table
from pages.shared.panel import Panel
from pages.shared.remembered import Pictures
from pages.shared.show import show

stacks = Pictures("depth")
figures = Pictures("norms")

AXES = ("batch", "tokens", "features")


def average(panel: Panel, params: NormsParams, said: set[str]) -> None:
    """Draw what the chosen norm does to every feature and token, what BatchNorm depends on, and the norms of images."""
    with mishaps(said):
        distributions(params)
    with mishaps(said):
        dependence(params)
    with mishaps(said):
        noise = run(batch_noise, params)
        prose(
            "Training averages over the batch at hand; evaluation uses running statistics, kept over the batches seen. It depends on nobody, but "
            f"it is another function than the one that was trained. Both on {params.values} values:"
        )
        for column, draw, what in zip(
            st.columns(2), (figures.noise, figures.running), ("Noise by batch size", "Training against evaluation"), strict=True
        ):
            with column:
                show(draw(noise), key=f"company_{draw.__name__}", label=what)
        numbers(noise.numbers())
    with st.expander("Images: GroupNorm and InstanceNorm", key="fold_images", on_change="rerun") as fold:
        if not fold.open:
            return
        pictures = run(images, params)
        prose(f"A feature map (batch, channels, height, width) = {pictures.shape}; GroupNorm with 2 groups of channels.")
        rows = [[name, over, str(size), f"{difference:.0e}"] for name, over, size, difference in pictures.rows]
        table(["norm", "averaged over", "shape of the statistics", "difference from torch"], rows)


def distributions(params: NormsParams) -> None:
    """Draw every feature and every token before and after the chosen norm."""
    result = run(block, params)
    label, over = NORMS[params.norm].label, " and ".join(AXES[axis] for axis in result.axes)
    averages = f"{label} averages over {over}: {result.set_size} numbers a set, statistics of shape {result.set_shape}."
    if params.norm == "batch" and params.running:
        averages = f"BatchNorm in evaluation averages nothing here: it uses running statistics of shape {result.set_shape}."
    prose(f"{averages} Largest difference from torch's own module on this block: {result.torch_difference:.0e}.")
    for column, along in zip(st.columns(2), ("feature", "token"), strict=True):
        with column:
            show(figures.spread(result, along), key=f"spread_{along}", label=f"Mean and spread of every {along}, before and after")


def dependence(params: NormsParams) -> None:
    """Say what else an output of each norm depends on."""
    found = run(company, params)
    shown = {"batch": "BatchNorm, training", "evaluation": "evaluation", "layer": "LayerNorm", "rms": "RMSNorm"}
    prose(
        "#### Why transformers do not use BatchNorm\n\nAn output of BatchNorm depends on whoever else is in the batch. The first sample's outputs, "
        "before and after a change of something else:"
    )
    cell = lambda value: "undefined" if value is None else f"{value:.3f}"  # noqa: E731
    rows = [[what, *(cell(changes[name]) for name in shown)] for what, changes in found.rows]
    alone = ["a batch of one token", "refused: no spread", "works", "works", "works"]
    shared = ["numbers summed over machines, per norm and step", f"{found.exchanged}", "0", "0", "0"]
    table(["change of an output, RMS", *shown.values()], [*rows, alone, shared])
    prose(
        "The sample's own last token moves its earlier outputs: a model trained so has seen what it is to predict. Half the batch is what each of "
        "two machines sees."
    )


def space(panel: Panel, params: NormsParams, said: set[str]) -> None:
    """Draw where points go in three and in two dimensions, and the angle between both norms' outputs in many."""
    prose(
        "LayerNorm drops the mean and fixes the length: in three dimensions a circle of radius √3 in the plane of zero mean, in two dimensions, as "
        "epsilon goes to 0, two points (the rings; with epsilon above 0, points whose features are nearly equal stop short of them). RMSNorm fixes "
        "the length alone: the whole sphere. The length is √d, not 1."
    )
    panel.draw("mean")
    result = run(geometry, params)
    left, right = st.columns([6, 5])
    with left:
        show(figures.space(result), key="space", label="Points in three dimensions, and where both norms send them")
    with right:
        show(figures.plane(result), key="plane", label="Points in two dimensions, and where both norms send them")
    numbers(result.numbers())
    show(figures.angles(result), key="angles", label="Angle between both norms' outputs as the mean grows")


def real(panel: Panel, params: NormsParams, said: set[str]) -> None:
    """Draw what reaches every norm of a model on a prompt, what another norm would cost, and what folding a gain changes."""
    panel.draw("prompt")
    with mishaps(said):
        result = run(stream, params)
        numbers(result.numbers())
        pictures = (figures.sizes, figures.mean_angles, figures.outliers, figures.gains)
        words = ("Size of the stream", "Angle between both norms' outputs", "The largest features", "Learned gains")
        columns = [column for _ in range(2) for column in st.columns(2)]
        for column, draw, label in zip(columns, pictures, words, strict=True):
            with column:
                show(draw(result), key=f"stream_{draw.__name__}", label=f"{label} at every norm")
    left, right = st.columns(2)
    with left, mishaps(said):
        losses = run(swap, params)
        st.markdown("#### Another norm in every place")
        show(figures.losses(losses), key="losses", label="Loss with another norm in every place")
        numbers(losses.numbers())
        prose(f"On {losses.n_tokens} tokens of held-out prose, without training again.")
    with right, mishaps(said):
        folded = run(fold, params)
        st.markdown("#### The gain folded into the next weights")
        show(figures.folded(folded), key="folded", label="Effective rank of every head's W_QK, gain apart and folded in")
        numbers(folded.numbers())


def derivative(panel: Panel, params: NormsParams, said: set[str]) -> None:
    """Draw both Jacobians' singular values, the direction that epsilon keeps, and the error of the linearisation."""
    st.latex(r"J = \tfrac{1}{s}\left(I - \tfrac{1}{d}\mathbf{1}\mathbf{1}^\top - \tfrac{1}{d s^2}\, c\,c^\top\right)")
    prose("with $s^2 = \\mathrm{var} + \\varepsilon$ and $c = x - \\mu$; RMSNorm's has no second term, $c = x$, and the mean square in place of var.")
    result = run(jacobians, params)
    if result.refused:
        st.info(escaped(result.refused))
    for column, draw in zip(st.columns(2), (figures.singular_values, figures.length_kept), strict=True):
        with column:
            show(draw(result), key=draw.__name__, label=f"{draw.__name__.replace('_', ' ')} of both Jacobians")
    numbers(result.numbers())
    table(*jacobian_table(result, params.eps))
    prose(
        "The notes call LayerNorm's Jacobian doubly stochastic. Such a matrix has rows that sum to 1 and no negative entry; these rows sum to 0 and "
        "some entries are negative. It projects, but only after it is multiplied by s and with epsilon 0."
    )
    show(figures.linearised(result), key="linearised", label="Error of the linearisation against the size of a step")


def depth(panel: Panel, params: NormsParams, said: set[str]) -> None:
    """Draw what is left of signal, difference and gradient in stacks at initialisation, and the whole Jacobian's spectrum."""
    with st.container(key="controls_depth", horizontal=True, vertical_alignment="bottom"):
        panel.draw("stack", "init", "place", "residual", "depth", "clip")
        more(panel, "width", "seeds", key="more_depth")
    result = run(depth_study, params)
    show(stacks.course(result), key="course", label="Signal, difference of two inputs and gradient by depth")
    numbers(result.numbers().values())
    prose(
        f"{result.seeds} networks of width {result.width}, computed together; bands: all of them. A norm in the stack is {NORMS[result.norm].label}. "
        f"Singular values below 1e-17 of the largest are rounding and drawn there."
    )
    for column, draw, label in zip(st.columns(2), (stacks.spectrum, stacks.ranks), ("Singular values", "Effective rank"), strict=True):
        with column:
            show(draw(result), key=f"stack_{draw.__name__}", label=f"{label} of the whole Jacobian by depth")
    if params.clip:
        show(stacks.weight_gradients(result), key="weights", label="Gradient of every block's weights, before and after clipping")
        numbers(result.clip_numbers())
        prose("Clipping multiplies all gradients by one factor. It bounds a step; what vanished beside the rest stays vanished.")


TABS = {"Average": average, "Geometry": space, "A real stream": real, "Jacobian": derivative, "Depth": depth}
