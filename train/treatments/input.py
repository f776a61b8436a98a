"""Treatments of a step's input: its grid, its noise and its sigma."""

from collections.abc import Callable
from fractions import Fraction

from train.coupling import COUPLINGS
from train.plan import Plan, Tier
from train.treatments.treatment import Treatment, bad, number

TIER = "a side in pixels such as 56, or a fraction of the native side such as 7/8"


def tier(term: str, argument: str | None) -> Tier:
    """``56`` or ``7/8``."""
    try:
        if argument is not None and "/" in argument:
            fraction = Fraction(argument)
            if fraction > 0:
                return Tier(None, fraction.numerator, fraction.denominator)
        side = int(argument or "")
    except (ValueError, ZeroDivisionError):
        raise bad(term, argument, TIER) from None
    if side <= 0:
        raise bad(term, argument, TIER)
    return Tier(side)


def _resizing(term: str, field: str, meaning: str) -> Callable[[str | None], Treatment]:
    def parse(argument: str | None) -> Treatment:
        lower, whole = tier(term, argument), f"{term}:{argument}"
        return Treatment(whole, "input", lambda plan: plan.set(whole, **{field: lower}))

    parse.__doc__ = f"``{term}:56``, ``{term}:7/8``: {meaning}"
    return parse


def _native(argument: str | None) -> Treatment:
    """``native``: the step as it is."""
    if argument is not None:
        raise bad("native", argument, "no argument")
    return Treatment("native", "input", lambda plan: plan)


def _redraw(argument: str | None) -> Treatment:
    """``redraw``: fresh noise of the native step; it must measure as zero."""
    if argument is not None:
        raise bad("redraw", argument, "no argument")
    return Treatment("redraw", "input", lambda plan: plan.set("redraw", stream="redraw"))


def _reencode(argument: str | None) -> Treatment:
    """``reencode``: through the autoencoder and back before it is encoded: the native grid."""
    if argument is not None:
        raise bad("reencode", argument, "no argument")
    return Treatment("reencode", "input", lambda plan: plan.set("reencode", reencode=True))


def _noise(argument: str | None) -> Treatment:
    """``noise:area|dct|independent``: how noise on a smaller grid is tied to the native draw."""
    if argument not in COUPLINGS:
        raise bad("noise", argument, " or ".join(COUPLINGS))
    return Treatment(f"noise:{argument}", "input", lambda plan: plan.set(f"noise:{argument}", coupling=argument))


def _shift(argument: str | None) -> Treatment:
    """``shift:snr``: sigma of equal signal-to-noise ratio on the smaller grid; ``shift:0.01``: added to sigma."""
    takes = "snr, or a number that is added to sigma"
    by: float | str = "snr" if argument == "snr" else number("shift", argument, takes)

    def change(plan: Plan) -> Plan:
        return plan.set(f"shift:{argument}", shift=by)

    return Treatment(f"shift:{argument}", "input", change)


TERMS = {
    "native": _native,
    "redraw": _redraw,
    "demote": _resizing("demote", "demote", "pixels resized to that tier, then encoded: a smaller grid"),
    "demote-latent": _resizing("demote-latent", "demote_latent", "the latent resized: a smaller grid"),
    "repromote": _resizing("repromote", "repromote", "pixels down to that tier and up again: the native grid"),
    "reencode": _reencode,
    "noise": _noise,
    "shift": _shift,
}
