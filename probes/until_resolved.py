"""``probes grad --until-resolved``: from its options to what stops a cell."""

from collections.abc import Sequence

from analysis.errors import UsageError
from analysis.planning.command import margin_of
from analysis.sequential import Looks, Stopping, check_rule
from probes.settings import Settings
from train.arms import Arm


def stopping_of(settings: Settings, arms: Sequence[Arm]) -> Stopping | None:
    """None where every cell is to have all images. UsageError for options that do not fit.

    arms: those of the sweep, ``native`` first.
    """
    until = settings.until_resolved
    if until is None:
        return None
    check_rule(until.rule)
    if settings.policy:
        raise UsageError("--until-resolved with --policy: inner products across sigma need the same images at each")
    treated = [arm.text for arm in arms[1:]]
    if not treated:
        raise UsageError("--until-resolved: there is no arm whose verdict could be settled; give one with --arm")
    for name in until.settle:
        if name not in treated:
            raise UsageError(f"--settle {name!r} is not a treated arm of this sweep; it has {', '.join(treated)}")
    return Stopping(
        Looks.equally_spaced(settings.images, until.looks),
        arms=until.settle or tuple(treated),
        margin=margin_of(until.rule, until.margin),
        rule=until.rule,
    )
