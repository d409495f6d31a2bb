"""The tabs of the projections page: each draws its controls, its pictures and its numbers."""

from math import isnan

import streamlit as st

import engine.projections as engine
from engine.params import Number
from pages.shared.compute import run
from pages.shared.hands import by_hand
from pages.shared.layout import escaped, matrix, numbers, prose, table
from pages.shared.panel import Panel
from pages.shared.remembered import Pictures
from pages.shared.show import show

figures = Pictures("projections")

SPACES = {"2-D": 2, "3-D": 3}


def line_by_hand(panel: Panel, params, result) -> None:
    """Draw v and the line along a, both moved by hand."""
    n = SPACES[params.space]
    hand = {"n": n, "v": _three(params.v), "columns": [_three(params.a)], "slant": None}
    _arrows(
        panel, params, "line", "a", {**hand, "engine": {"foot": result.projection.tolist(), "error": 0.0 if isnan(result.error) else result.error}}
    )


def drag(panel: Panel, params, limits: dict) -> None:
    """Show the projector of the line, and what the engine measured."""
    result = run(engine.drag, params)
    if not result.a.any():
        st.markdown("P = aaᵀ / aᵀa: — . It would be 0 / 0: there is no line, and no distance along it.")
        return
    prose("The distance along the line is a valley. Its bottom is the foot: the residual is shortest exactly where it is perpendicular to the line.")
    left, right = st.columns(2)
    with left:
        matrix(r"P = \frac{a\,a^\top}{a^\top a}", engine.line_projector(result))
    with right:
        matrix(r"P\,v", result.projection[:, None])
    table(("measured by the engine, in float64", ""), [[name, "—" if isnan(value) else f"{value:.1e}"] for name, value in engine.drag_checks(result)])


def subspace(panel: Panel, params, limits: dict) -> None:
    """Show projectors onto the typed columns, each checked, and what columns close to parallel cost."""
    left, right = st.columns([2, 3])
    with left:
        panel.draw("matrix")
    with right:
        panel.draw("slant")
    result = run(engine.subspace, params)
    best = result.of("QR")
    hand = {"n": 3, "v": _three(params.v), "columns": result.A.T.tolist(), "slant": params.slant}
    _arrows(panel, params, "plane", "matrix", {**hand, "engine": {"foot": best.foot.tolist(), "error": best.error}})
    for sentence in result.said:
        st.info(escaped(sentence))
    shown = {"normal equations": r"A (A^\top A)^{-1} A^\top", "QR": r"Q\,Q^\top", "oblique": r"P_\text{oblique}"}
    for column, (name, formula) in zip(st.columns([6, 5, 5]), shown.items(), strict=True):
        if check := result.of(name):
            with column:
                matrix(formula, check.P)
    table(*engine.projector_table(result))
    prose("All of them are projectors: twice is once. Only a symmetric one drops the perpendicular; the oblique one lands farther from v.")
    panel.draw("kappa")
    sweep = run(engine.parallel_columns, params)
    show(figures.parallel(sweep, params.kappa), key="parallel", label="Error of the projector against the condition number")
    numbers(engine.parallel_numbers(sweep, params.kappa).values())


def real_head(panel: Panel, params, limits: dict) -> None:
    """Show what the weights of a head let through, and how far its W_OV is from a projection."""
    with st.container(key="controls_head", horizontal=True, vertical_alignment="bottom"):
        panel.draw("weight", "layer", "head", **limits)
    panel.draw("prompt")
    result, angles = run(engine.reading, params), run(engine.angles, params)
    left, right = st.columns(2)
    with left:
        show(figures.shares(result), key="shares", label="Share of energy that each head keeps", on_pick=panel.pick)
    with right:
        show(figures.by_token(result), key="tokens", label="Share of energy kept, token by token")
    numbers(engine.reading_numbers(result).values())
    st.markdown(escaped(engine.twin_sentence(result)))
    if result.twin:
        show(figures.twins(result), key="twins", label="Two unlike inputs with the same output")
    prose("The field calls these weights projections. A projection W has W² = W: it writes back into the space that it reads.")
    left, right = st.columns(2)
    with left:
        show(figures.principal_angles(angles), key="angles", label="Principal angles between what the head reads and writes")
    with right:
        show(figures.overlap_map(angles), key="overlap", label="Overlap of read and written, every head", on_pick=panel.pick)
        show(figures.projection_map(angles), key="distance", label="Distance of every W_OV from a projection", on_pick=panel.pick)
    numbers(engine.angle_numbers(angles))


def orthogonalise(panel: Panel, params, limits: dict) -> None:
    """Show one method step by step, what all four lose, and condition numbers of random and trained matrices."""
    panel.draw("method")
    with st.container(key="controls_steps", horizontal=True, vertical_alignment="bottom"):
        panel.draw("kappa", "step", **limits)
    result = run(engine.steps, params)
    step = result.steps[params.step]
    st.markdown(f"**Step {params.step} of {len(result.steps) - 1}.** {escaped(step.said)}")
    left, right = st.columns(2)
    for column, named in ((left, {"A": result.A, "R": step.R}), (right, {"Q": step.Q, r"Q^\top Q": step.Q.T @ step.Q})):
        with column:
            for name, M in named.items():
                matrix(name, M)
    prose(engine.steps_sentence(result))
    lost = run(engine.losses, params)
    left, right = st.columns(2)
    with left:
        show(figures.losses(lost, params.kappa), key="losses", label="Orthogonality lost by four methods")
    with right:
        show(figures.residuals(lost, params.kappa), key="residuals", label="Residual of the factorisation by four methods")
    numbers(engine.loss_numbers(lost, params.kappa))
    aspects, training = run(engine.aspect_conditions, params), run(engine.training_conditions, params)
    left, right = st.columns(2)
    with left:
        show(figures.aspects(aspects), key="aspects", label="Condition numbers of Gaussian matrices by shape")
    with right:
        show(figures.training(training), key="training", label="Condition numbers of Fable's attention matrices in training")
    numbers(engine.condition_numbers(aspects))
    prose(engine.training_sentence(training))


def least_squares(panel: Panel, params, limits: dict) -> None:
    """Show a fit by hand as a projection, and PCA of the token embeddings as the projection of least error."""
    panel.draw("degree")
    result = run(engine.fit, params)
    points = [list(pair) for pair in zip(params.points[::2], params.points[1::2], strict=True)]
    checked = {"fitted": result.fitted.tolist(), "cosine": float(result.cosines.max())}
    known = panel.controls["points"].write(params.points)
    label = "Points and the polynomial of least squares; drag the points, or move them with the arrow keys"
    data = {"points": points, "degree": params.degree, "known": known, "engine": checked, "label": label}
    by_hand("fit_points", key="fit_points", data=data, height="content", on_release=panel.pick)
    for sentence in result.said:
        st.info(sentence)
    numbers(engine.fit_numbers(result))
    prose("Fitting a curve is dropping a perpendicular: from y, one number per point, onto what the columns 1, x, x², … can reach.")
    panel.draw("rank", **limits)
    found = run(engine.embeddings, params)
    show(figures.pca(found), key="pca", label="Energy of the token embeddings lost against directions kept")
    numbers(engine.embedding_numbers(found))


def guess_number(params, name: str) -> Number:
    """Return the number that a guess is about."""
    if name in ("normal", "qr"):
        return engine.parallel_numbers(run(engine.parallel_columns, params), params.kappa)[name]
    if name == "read":
        return engine.reading_numbers(run(engine.reading, params))[name]
    if name == "random":
        return engine.random_number(run(engine.random_energy, params))
    return engine.drag_numbers(run(engine.drag, params))[name]


def guess_picture(params, name: str, key: str) -> None:
    """Draw what a guess was about."""
    if name == "normal":
        show(figures.parallel(run(engine.parallel_columns, params), params.kappa), key=key, label="Error against the condition number")
    elif name == "read":
        show(figures.shares(run(engine.reading, params)), key=key, label="Share of energy that each head keeps")
    elif name == "random":
        show(figures.random_shares(run(engine.random_energy, params)), key=key, label="Energy that random vectors keep")
    else:
        show(figures.doubling(run(engine.drag, params)), key=key, label="Distance from v along a and along 2a")


def _arrows(panel: Panel, params, mode: str, moved: str, hand: dict) -> None:
    """Draw vectors that follow the hand; v, the angles of view and ``moved`` go to the link when it lets go."""
    angles = panel.view()["angles"]
    known = {name: panel.controls[name].write(value) for name, value in {"v": params.v, moved: getattr(params, moved), "angles": angles}.items()}
    label = "v, its projection and the residual; drag the tips, or move them with the arrow keys"
    by_hand("arrows", key=mode, data={"mode": mode, "view": angles, "known": known, "label": label, **hand}, height="content", on_release=panel.pick)


def _three(values: tuple[float, ...]) -> list[float]:
    """Return two or three numbers as three; the third is 0 where a link left it out."""
    return [*values, 0.0][:3]
