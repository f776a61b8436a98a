"""``probes grad --until-resolved``: from its options to what stops a cell."""

from collections.abc import Sequence

from analysis.errors import UsageError
from analysis.planning.command import margin_of
from analysis.sequential import Looks, Stopping
from probes.settings import Settings, Until
from train.arms import Arm


def stopping_of(settings: Settings, arms: Sequence[Arm]) -> Stopping | None:
    """None where every cell is to have all images. UsageError for options that do not fit.

    arms: those of the sweep, ``native`` first.
    """
    until = settings.until_resolved
    if until is None:
        return None
    if settings.policy:
        raise UsageError("--until-resolved with --policy: inner products across sigma need the same images at each")
    treated = [arm.text for arm in arms[1:]]
    if not treated:
        raise UsageError("--until-resolved: there is no arm whose verdict could be settled; give one with --arm")
    if until.rule == "gap" and settings.draws < 2:
        raise UsageError("--until-resolved --rule gap needs 2 draws an image; give --draws 2 or more")
    for option, names in (("--settle", until.settle), ("--control", (until.control,) if until.control else ())):
        for name in names:
            if name not in treated:
                raise UsageError(f"{option} {name!r} is not a treated arm of this sweep; it has {', '.join(treated)}")
    return Stopping(
        Looks.equally_spaced(settings.images, until.looks),
        arms=tuple(until.settle) or waited_for(treated, until),
        margin=margin_of(until.rule, until.margin),
        rule=until.rule,
        control=until.control,
    )


def waited_for(treated: Sequence[str], until: Until) -> tuple[str, ...]:
    """All treated arms, but for a control."""
    return tuple(arm for arm in treated if arm != until.control)
