"""What would a verdict err without one part of its variance?

    errors = simulate(power_laws(), repeats=1000)
    errors["as it is"].false_safe, errors["no growth at the margin"].false_safe

Rule ``relative``, for a population of images; other rules' variances are made of the same parts.
`python -m analysis.calibration --without` makes the table of docs/method.md, section 6.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from analysis import verdict
from analysis.base import spectrum
from analysis.base.fieller import Growth
from analysis.base.jackknife import variance
from analysis.calibration.cases import RESOLUTIONS, Case, Spectra, grid, outstanding_grid
from analysis.calibration.simulate import rates
from analysis.moments import Moments
from analysis.synthetic import Draws, Planted

Cells = Float[np.ndarray, "*cells"]
Gram = Float[np.ndarray, "*cells n n"]
DESIGNS = ((6, 1), (8, 1), (24, 1))


@dataclass(frozen=True)
class Errors:
    """Rates of false verdicts in the worst case, and in the worst case without bias the rate of `safe`."""

    false_safe: float
    false_harmful: float
    power: float


def _lambda(gram: Gram) -> Cells:
    return spectrum.eigenvalue_along_bias(*spectrum.traces(gram))


def _typical(gram: Gram) -> Cells:
    trace, square, _ = spectrum.traces(gram)
    return spectrum.eigenvalue_along_bias(trace, square, np.zeros_like(square))


def _none(gram: Gram) -> Cells:
    return np.zeros(gram.shape[:-2])


def _twice(shown: Cells, pairs: Cells) -> Cells:
    return shown


def _once(shown: Cells, pairs: Cells) -> Cells:
    return np.maximum(shown - pairs, 0.0)


def _floored(shown: Cells, pairs: Cells) -> Cells:
    return np.maximum(shown - pairs, pairs)


KEPT = "as it is"
VARIANTS: dict[str, tuple[Callable[[Gram], Cells], Callable[[Cells, Cells], Cells]]] = {
    KEPT: (_lambda, _twice),
    "no growth at the margin": (_none, _twice),
    "λ = tr Σ² / tr Σ": (_typical, _twice),
    "V − v": (_lambda, _once),
    "max(V − v, v)": (_lambda, _floored),
    "max(V − v, v), λ = tr Σ² / tr Σ": (_typical, _floored),
}
"""By name: lambda, and the variance at the estimate, of V that the jackknife shows and v of pairs of noise."""


def simulate(spectra: Spectra, *, repeats: int) -> dict[str, Errors]:
    """Every variant's errors; ``repeats`` of each case."""
    planted = [rates(case, outcomes, repeats=repeats, seed=seed) for seed, case in enumerate(_at_the_margin(spectra))]
    nothing = [rates(case, outcomes, repeats=repeats, seed=seed) for seed, case in enumerate(_without_bias(spectra))]
    return {
        name: Errors(
            false_safe=max(found[f"{name}: {verdict.SAFE}"] for found in planted),
            false_harmful=max(found[f"{name}: {verdict.HARMFUL}"] for found in planted),
            power=min(found[f"{name}: {verdict.SAFE}"] for found in nothing),
        )
        for name in VARIANTS
    }


def _at_the_margin(spectra: Spectra) -> Iterator[Case]:
    """Hardly measurable and measurable biases along leading eigenvectors."""
    yield from grid("images", spectra, DESIGNS, RESOLUTIONS[:2], ["leading"])
    yield from outstanding_grid("images", DESIGNS)


def _without_bias(spectra: Spectra) -> Iterator[Case]:
    for case in grid("images", spectra, DESIGNS[-1:], RESOLUTIONS[1:2], ["leading"], [0.0]):
        yield replace(case, relative_bias=0.0)


def outcomes(case: Case, world: Planted, drawn: Draws, measured: Moments) -> dict[str, np.ndarray]:
    """Whether each simulated measurement is called ``safe`` or ``harmful``, keyed "variant: verdict"."""
    asked = verdict.relative(measured, case.margin)
    assert asked.gram is not None
    gate, pairs = verdict.resolved_p(measured.baseline), 0.5 * spectrum.pair_variance(asked.gram)
    each, out = 4.0 / case.images, {}
    for name, (eigenvalue, at_estimate) in VARIANTS.items():
        growth = Growth(each * eigenvalue(measured.bias_gram), each * eigenvalue(measured.baseline_gram))
        grown = verdict.decide(replace(asked, growth=growth), measured.baseline)
        shown = variance(grown.contrast)
        change = at_estimate(shown, pairs) - shown
        sides = ((verdict.SAFE, -1.0, grown.variance_safe), (verdict.HARMFUL, 1.0, grown.variance_harmful))
        for kind, sign, spread in sides:
            p = verdict.one_sided_p(sign * grown.contrast.value, spread + change, grown.degrees)
            out[f"{name}: {kind}"] = np.maximum(p, gate)[:, 0] < verdict.LEVEL
    return out


def table(errors: dict[str, Errors]) -> str:
    """Markdown: a row for each variant."""
    lines = ["| variance | false `safe` | false `harmful` | `safe` without bias |", "|---|---|---|---|"]
    for name, found in errors.items():
        shares = " | ".join(f"{100 * rate:.1f} %" for rate in (found.false_safe, found.false_harmful, found.power))
        lines.append(f"| {name} | {shares} |")
    return "\n".join(lines)
