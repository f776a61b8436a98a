import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import UsageError
from train.arms import NATIVE_ARM, Arm, Placement, parse
from train.plan import NATIVE, Tier


def test_the_whole_language_in_one_arm():
    arm = parse("demote:7/8+shift:snr+noise:dct@0.5:0.9/early:0.25")
    assert (arm.lo, arm.hi) == (0.5, 0.9)
    assert arm.placement == Placement("early", 0.25)
    plan = arm.plan(0.7)
    assert plan.demote == Tier(None, 7, 8)
    assert (plan.shift, plan.coupling) == ("snr", "dct")


def test_a_window_takes_its_upper_end_and_not_its_lower():
    arm = parse("demote:56@0.5:0.9")
    active = [sigma for sigma in (0.3, 0.5, 0.50001, 0.9, 0.90001, 1.0) if arm.plan(sigma) != NATIVE]
    assert active == [0.50001, 0.9]


def test_a_fraction_is_not_taken_for_a_placement():
    assert parse("demote:3/4").placement is None
    assert parse("demote:3/4/late:1").placement == Placement("late", 1.0)
    assert parse("demote:3/4+rope:pi@0.5").plan(0.6).demote == Tier(None, 3, 4)


def test_native_plans_nothing():
    assert parse("native").plan(0.5) == NATIVE == NATIVE_ARM.plan(0.5)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ["no term"]),
        ("@0.5", ["no term"]),
        ("demotion:56", ["demotion", "known:", "demote"]),
        ("demote", ["demote", "nothing", "7/8"]),
        ("demote:", ["demote"]),
        ("demote:big", ["'big'", "56"]),
        ("demote:-8", ["'-8'"]),
        ("demote:0", ["'0'"]),
        ("demote:7/0", ["'7/0'"]),
        ("demote:-7/8", ["'-7/8'"]),
        ("redraw:2", ["redraw", "'2'"]),
        ("noise:blue", ["'blue'", "area"]),
        ("shift:nan", ["shift"]),
        ("shift:inf", ["shift"]),
        ("rope:spiral", ["'spiral'", "yarn"]),
        ("rope:pi:0", ["pi:0"]),
        ("dtype:int8", ["'int8'", "bf16"]),
        ("attention:psychic", ["'psychic'", "sdpa"]),
        ("gain:loud", ["gain"]),
        ("jitter:-1", ["jitter"]),
        ("demote:56+demote:48", ["demote:48", "already sets demote"]),
        ("demote:56+repromote:48", ["repromote:48", "both replace"]),
        ("reencode:2", ["reencode", "'2'"]),
        ("reencode+repromote:48", ["repromote and reencode", "both replace"]),
        ("reencode+reencode", ["already sets reencode"]),
        ("demote:56@0.9:0.5", ["0.9:0.5", "lo < hi"]),
        ("demote:56@high", ["@high"]),
        ("demote:56@-0.1", ["-0.1"]),
        ("demote:56/soon:0.5", ["/soon:0.5", "early"]),
        ("demote:56/early:0", ["/early:0"]),
        ("demote:56/early:2", ["/early:2"]),
        ("demote:56/early", ["/early"]),
    ],
)
def test_a_bad_arm_names_the_term_what_it_got_and_what_it_takes(text, names):
    with pytest.raises(UsageError) as caught:
        parse(text)
    message = str(caught.value)
    assert "\n" not in message
    for name in names:
        assert name in message


@given(st.text(max_size=30))
def test_any_text_is_an_arm_or_a_usage_error(text):
    said = ""
    try:
        assert isinstance(parse(text), Arm)
    except UsageError as error:
        said = str(error)
    assert len(said.splitlines()) <= len(f"-{text}-{text}-".splitlines())  # no lines but the user's own


def test_doses_compose():
    assert len(parse("gain:1.05+jitter:1e-4").plan(0.5).gradient) == 2
