"""Known doses at a step's gradient: the marks on the ruler."""

from torch import Tensor

from train.crn import normal
from train.plan import GradientChange, Sample
from train.treatments.treatment import Treatment, bad, number


def _gain(argument: str | None) -> Treatment:
    """``gain:1.05``: the gradient times 1.05, a mark on the ruler; reads back as gain 0.05 and no turn."""
    factor = number("gain", argument, "a factor such as 1.05")

    def scaled(gradients: dict[str, Tensor], sample: Sample, seed: int) -> dict[str, Tensor]:
        # In float64: a float32 product would round each element and read as a turn of 1e-8.
        return {name: gradient.double() * factor for name, gradient in gradients.items()}

    return _dose(f"gain:{argument}", scaled)


def _jitter(argument: str | None) -> Treatment:
    """``jitter:1e-4``: each element of the gradient times 1 + 1e-4 N(0, 1), drawn anew."""
    size = number("jitter", argument, "a relative size such as 1e-4")
    if size < 0:
        raise bad("jitter", argument, "a relative size such as 1e-4, not negative")

    def jittered(gradients: dict[str, Tensor], sample: Sample, seed: int) -> dict[str, Tensor]:
        index = (sample.image, sample.draw)
        return {
            name: gradient.double()
            * (
                1
                + size
                * normal(gradient.shape, seed=seed, purpose="jitter", index=(*index, name)).double().to(gradient.device)
            )
            for name, gradient in gradients.items()
        }

    return _dose(f"jitter:{argument}", jittered)


def _dose(term: str, change: GradientChange) -> Treatment:
    return Treatment(term, "gradient", lambda plan: plan.then(change))


TERMS = {"gain": _gain, "jitter": _jitter}
