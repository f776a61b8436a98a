"""The second moments of a training state, by which metric ``adam`` divides (Eq. 6a of docs/method.md).

    state = read(beside(adapter))
    Point(parameters, scale, state.denominators(parameters))

The state is the ``optimizer.safetensors`` that ``train`` writes beside the adapter of every checkpoint. AdamW's beta2
and eps are those of the run's ``run.json``; a state outside of a run has torch's defaults.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from analysis import run_folder
from analysis.errors import UsageError
from train.adapter import plain_name

Array = np.ndarray
ADAMW = "torch.optim.AdamW"
SECOND_MOMENT = "exp_avg_sq."
BETA2, EPSILON = 0.999, 1e-8
"""Torch's defaults."""
NEEDS = "the metric takes the state of a run of train: give --adapter RUN or RUN@STEP, or leave metric adam out"


@dataclass(frozen=True)
class TrainingState:
    """second_moments: v by plain parameter name, float64, as AdamW keeps it: not yet bias-corrected."""

    file: Path
    second_moments: Mapping[str, Array]
    step: int
    beta2: float
    epsilon: float

    def denominators(self, parameters: Mapping[str, Array]) -> dict[str, Array]:
        """sqrt(v_hat) + eps, v_hat = v / (1 - beta2^step), by the names of ``parameters`` and of their shapes.

        Raises UsageError where the state is of other parameters.
        """
        partners = {plain_name(name): name for name in parameters}
        if strange := partners.keys() ^ self.second_moments.keys():
            raise UsageError(
                f"{self.file}: the state of another adapter: {len(strange)} tensors without a partner, such as "
                f"{min(strange)}; {NEEDS}"
            )
        found = {}
        for plain, name in partners.items():
            v, wanted = self.second_moments[plain], parameters[name].shape
            if v.shape != wanted:
                raise UsageError(
                    f"{self.file}: the state of another adapter: {plain} is {list(v.shape)}, the adapter has "
                    f"{list(wanted)}; {NEEDS}"
                )
            found[name] = np.sqrt(v / (1.0 - self.beta2**self.step)) + self.epsilon
        return found

    @property
    def share_of_zeros(self) -> float:
        """Of the elements, those that no gradient has reached yet."""
        return sum(int((v == 0).sum()) for v in self.second_moments.values()) / sum(
            v.size for v in self.second_moments.values()
        )


def beside(adapter: Path) -> Path:
    """File of the state that belongs to an adapter's file. UsageError where there is none."""
    file = adapter.parent / run_folder.OPTIMIZER
    if file.is_file():
        return file
    if (adapter.parent / run_folder.RUN).is_file():
        raise UsageError(
            f"metric adam: no optimiser state beside {adapter}; the run's checkpoints have theirs: give --adapter "
            f"{adapter.parent}, which is its last, or {adapter.parent}@STEP"
        )
    raise UsageError(f"metric adam: no optimiser state ({run_folder.OPTIMIZER}) beside {adapter}; {NEEDS}")


def read(file: Path) -> TrainingState:
    """The state in ``file``. UsageError, one line, where it is none of AdamW's after at least one step."""
    try:
        with safe_open(file, framework="pt") as opened:
            about = opened.metadata() or {}
            names = list(opened.keys())
            moments = {
                name.removeprefix(SECOND_MOMENT): opened.get_tensor(name).double().numpy()
                for name in names
                if name.startswith(SECOND_MOMENT)
            }
    except (OSError, SafetensorError) as error:
        raise UsageError(f"{file}: not a readable optimiser state ({error}); {NEEDS}") from None
    optimizer, step = about.get("optimizer", ADAMW), about.get("step", "")
    if optimizer != ADAMW or (names and not moments):
        held = f"a state of {optimizer}" if optimizer != ADAMW else f"{min(names)} and the like"
        raise UsageError(f"{file}: holds {held}, and no second moments as {ADAMW} keeps them; {NEEDS}")
    if not step.isdecimal():
        raise UsageError(f"{file}: does not say after how many steps it was written; {NEEDS}")
    if int(step) == 0 or not moments:
        raise UsageError(f"{file}: the state at step 0, before the first gradient, has no second moments; {NEEDS}")
    bad = [name for name, v in moments.items() if not (np.isfinite(v) & (v >= 0)).all()]
    if bad:
        raise UsageError(f"{file}: {SECOND_MOMENT}{min(bad)} holds values that are no mean squares; {NEEDS}")
    beta2, epsilon = constants(file)
    return TrainingState(file, moments, int(step), beta2, epsilon)


def constants(file: Path) -> tuple[float, float]:
    """beta2 and eps of the run whose checkpoint holds ``file``; torch's defaults where it lies in none."""
    run = file.absolute().parent.parent.parent
    if file.absolute().parent.parent.name != "checkpoints" or not (run / run_folder.RUN).is_file():
        return BETA2, EPSILON
    settings = run_folder.read_provenance(run).settings
    try:
        return float(settings["beta2"]), float(settings["epsilon"])
    except (KeyError, TypeError, ValueError):
        raise UsageError(f"{run / run_folder.RUN}: says nothing of beta2 and epsilon; {NEEDS}") from None
