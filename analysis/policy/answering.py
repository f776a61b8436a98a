"""From a store and a question to the answer: weigh and evaluate every policy, find the front, pick the fastest safe."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from analysis import sigma_samplers
from analysis.errors import Refused, UsageError
from analysis.policy import search
from analysis.policy.answer import Answer, Question
from analysis.policy.cost import costs, speed_up
from analysis.policy.evaluate import assessed
from analysis.policy.grammar import Policy, parse
from analysis.policy.material import Material, load
from analysis.policy.shares import Shares, shares
from analysis.policy.weights import weights
from analysis.schema import TOTAL

MOST_UNCOVERED = 0.02
COARSE = 0.3  # of what a sampler draws in one cell of the grid, from which it is told


@dataclass(frozen=True)
class Candidates:
    """Policies in order: those named, then each arm's thresholds (``of_arm``, by text), then two arms'."""

    named: list[Policy]
    of_arm: dict[str, list[str]]
    every: list[Policy]

    @property
    def singles(self) -> int:
        """How many, from the first, are named or of one arm."""
        return len(dict.fromkeys([*map(str, self.named), *(name for names in self.of_arm.values() for name in names)]))


def answered(dataset: xr.Dataset, question: Question, texts: Sequence[str] = (), metric: str | None = None) -> Answer:
    """UsageError for what the store lacks; Refused for a verdict where the grid leaves out too much."""
    material = load(dataset, baseline=question.baseline, metric=metric, population=question.population)
    share = shares(
        material.sigmas, sigma_samplers.parse(question.sampler), dataset["tokens"].sel(arm=question.baseline).values
    )
    check_coverage(share, verdicts=question.margin is not None)
    found = candidates(material, share, texts)
    mixed = np.stack(
        [
            weights(policy, share, material.arms, baseline=material.baseline, samples=question.samples)
            for policy in found.every
        ]
    )
    faster = speed_up(mixed, costs(dataset, question.cost, question.baseline), material.baseline)
    names = list(map(str, found.every))
    total = assessed(material, names, mixed, every_block=False, rule=question.rule, margin=question.margin)
    total = total.sel(block=TOTAL).assign(
        speed_up=("policy", faster), treated=("policy", 1.0 - mixed[:, :, material.baseline].sum(-1))
    )
    first = found.singles if question.margin is not None else len(found.named)
    detail, safe, picked = None, {}, None
    if first:
        detail = assessed(
            material, names[:first], mixed[:first], every_block=True, rule=question.rule, margin=question.margin
        )
    if detail is not None and question.margin is not None:
        safe = search.sequences(detail, found.of_arm)
        picked = fastest_safe(list(map(str, found.named)), detail, safe, total["speed_up"])
    # The native run, without bias at its own speed, beats whatever is no faster.
    on_front = search.front(total["relative_bias_squared"].values, faster) & (faster > 1.0)
    return Answer(
        question=question,
        metric=metric or str(dataset["metric"].values[0]),
        images=dataset.sizes["image"],
        draws=dataset.sizes["draw"],
        units=material.units,
        share=share,
        policies=dict(zip(names, found.every, strict=True)),
        total=total,
        detail=detail,
        named=list(map(str, found.named)),
        front=[names[at] for at in np.argsort(faster, kind="stable") if on_front[at]],
        safe=safe,
        picked=picked,
        warnings=warnings(share, dataset),
    )


def candidates(material: Material, share: Shares, texts: Sequence[str]) -> Candidates:
    """The policies that ``texts`` name, and all threshold policies of one and of two arms."""
    treated = [arm for place, arm in enumerate(material.arms) if place != material.baseline]
    if not treated:
        raise UsageError(f"this store has no arm but {material.arms[0]!r}; probe at least one treatment")
    named = list(dict.fromkeys(parse(text, treated, material.sigmas) for text in texts))
    alone = [arm for arm in treated if "," not in arm]  # an arm of several routes is a policy already
    of_arm = {arm: search.one_route(arm, share) for arm in alone}
    singles = [*named, *(policy for sequence in of_arm.values() for policy in sequence)]
    every = list(dict.fromkeys([*singles, *search.two_routes(alone, share)]))
    return Candidates(named, {arm: list(map(str, policies)) for arm, policies in of_arm.items()}, every)


def fastest_safe(named: list[str], detail: xr.Dataset, safe: dict[str, list[str]], faster: xr.DataArray) -> str | None:
    """The fastest of those safe in total and in every block: of the sequences, and of the named, each by itself.

    None where none of them is faster than the native run, which is safe as it is.
    """
    p_values = dict(zip(detail["policy"].values.tolist(), search.p_everywhere(detail).tolist(), strict=True))
    shown = [name for name in named if search.safe_before([p_values[name]], 1)]
    shown = list(dict.fromkeys([*shown, *(name for names in safe.values() for name in names)]))
    speeds = {name: speed for name in shown if (speed := float(faster.sel(policy=name))) > 1.0}
    return max(speeds, key=speeds.__getitem__) if speeds else None


def check_coverage(share: Shares, *, verdicts: bool) -> None:
    """Refuse verdicts where the grid leaves out more than 2 % of what the sampler draws."""
    if share.uncovered > 1 - 1e-9:
        raise UsageError(
            f"sigma sampler '{share.sampler.text}' draws nothing near this store's sigma; probe a grid where it does"
        )
    if verdicts and share.uncovered > MOST_UNCOVERED:
        raise Refused(
            f"the store's sigma stand for {100 * (1 - share.uncovered):.1f} % of what sampler {share.sampler.text} "
            f"draws, and a verdict needs {100 * (1 - MOST_UNCOVERED):g} %: probe a grid over all of it, such as "
            "--sigma-grid 0.04:0.96:12 for (0, 1], or leave out --rule and --margin"
        )


def warnings(share: Shares, dataset: xr.Dataset) -> list[str]:
    """What makes the answer less than it seems, a sentence each."""
    found = []
    if share.uncovered > MOST_UNCOVERED:
        found.append(
            f"{100 * share.uncovered:.1f} % of what the sampler draws lies outside the grid; figures are of the rest, "
            "and there is no verdict"
        )
    cells = share.within(0.0, 1.0)
    if cells.max() > COARSE:
        found.append(
            f"{100 * cells.max():.0f} % of what the sampler draws is judged by the gradient at sigma "
            f"{dataset['sigma'].values[int(cells.argmax())]:g} alone; probe a finer grid there"
        )
    if share.sampler.needs_tokens and len(np.unique(share.tokens)) > 1:
        found.append("images of several sizes: their different shares of sigma are averaged, as if all were alike")
    return found
