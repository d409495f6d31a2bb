"""One head on one page: its spectrum, its effective rank beside chance, its attention on a prompt, and a smaller key cache.

What the source's own script ``latent_projection.py`` computes (seed 004).
"""

from dataclasses import asdict, dataclass

from engine.ablation import EffectResult, effect
from engine.latent import LatentResult, latent_cache
from engine.models.weights import model_shape
from engine.progress import OnStep, silent
from engine.spectra import (
    AttentionResult,
    ChanceResult,
    SpectraParams,
    SpectraResult,
    chance,
    check_head,
    head_numbers,
    head_spectra,
    prompt_attention,
)


@dataclass(frozen=True)
class HeadReport:
    """What was asked and the results that answer it; ``effect`` is None if no head is to be changed."""

    params: SpectraParams
    spectra: SpectraResult
    chance: ChanceResult
    attention: AttentionResult
    latent: LatentResult
    effect: EffectResult | None

    def table(self) -> tuple[list[str], list[list]]:
        """Return header and rows for a terminal: what is read off, its value, and what chance would give."""
        numbers = [*head_numbers(self.params, self.spectra, self.chance).values(), *self.attention.numbers(), *self.latent.numbers()]
        numbers += [] if self.effect is None else self.effect.numbers()
        value = lambda n, v: "" if v is None else f"{v:.{n.digits}f}{n.unit}"  # noqa: E731
        return ["", "value", "before", "chance"], [[n.label, *(value(n, v) for v in (n.value, n.before, n.chance))] for n in numbers]

    def data(self) -> dict:
        """Return the fields of the spectra of all heads, and by their names those of this head's other results."""
        others = {"attention": self.attention, "latent": self.latent, **({"effect": self.effect} if self.effect else {})}
        return {**asdict(self.spectra), **{name: asdict(result) for name, result in others.items()}}


def head_report(params: SpectraParams, on_step: OnStep = silent) -> HeadReport:
    """Return everything that the page of one head shows. What can be refused is refused before the spectra are computed."""
    check_head(params, model_shape(params.model))
    latent, attention = latent_cache(params, on_step), prompt_attention(params, on_step)
    changed = effect(params, on_step) if params.off else None
    return HeadReport(params, head_spectra(params, on_step), chance(params, on_step), attention, latent, changed)
