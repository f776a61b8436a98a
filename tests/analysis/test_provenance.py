"""Provenance survives its attributes, and a resumed run can say what changed."""

from dataclasses import replace

import pytest

from analysis.provenance import Code, Provenance, differences, this_code

STORED = Provenance(
    command="probes grad --seed 0",
    settings={"seed": 0, "arms": ["native", "demote:56"], "engine": "func", "chunk": None},
    code=Code("0.1.0", "abc"),
    hashes={"model": "m1", "adapter": "a1"},
    environment={"torch": "2.13.0", "threads": 1},
    certificate={"calls": 12, "repeated": True},
)


@pytest.mark.parametrize("one", [STORED, replace(STORED, code=Code("0.1.0"), certificate=None, hashes={})])
def test_attributes_are_text_and_give_the_provenance_back(one: Provenance) -> None:
    attributes = one.to_attributes()
    assert {type(value) for value in attributes.values()} == {str}
    assert Provenance.from_attributes(attributes) == one


def test_equal_provenance_has_no_differences() -> None:
    now = replace(STORED, command="other words", code=Code("0.2.0"), certificate=None)
    now = replace(now, settings={**STORED.settings, "arms": ("native", "demote:56")})
    assert differences(now, STORED) == []


def test_every_difference_is_named_with_both_values_settings_first() -> None:
    now = replace(
        STORED,
        settings={"seed": 1, "arms": ["native"], "engine": "func", "extra": 2.5},
        hashes={"model": "m2", "adapter": "a1"},
        environment={"torch": "2.14.0", "threads": 1},
    )
    assert differences(now, STORED) == [
        'setting arms is ["native"], it was ["native", "demote:56"]',
        "setting chunk is absent, it was null",
        "setting extra is 2.5, it was absent",
        "setting seed is 1, it was 0",
        'hash model is "m2", it was "m1"',
        'environment torch is "2.14.0", it was "2.13.0"',
    ]


def test_of_a_group_of_settings_the_one_that_differs_is_named() -> None:
    now, then = (replace(STORED, settings={"until": {"looks": [4, 8], "margin": m}}) for m in (0.5, 1.0))
    assert differences(now, then) == ["setting until margin is 0.5, it was 1.0"]
    assert differences(replace(now, settings={"until": None}), now) == [
        "setting until is null, it was a group of settings"
    ]


def test_long_lists_are_told_by_their_ends() -> None:
    now, then = (replace(STORED, settings={"images": [f"{i}.png" for i in range(n)]}) for n in (8, 9))
    assert differences(now, then) == [
        'setting images is ["0.png", "1.png", "2.png", "3.png", "4.png", "5.png", "6.png", "7.png"], it was 9 entries, '
        '"0.png" to "8.png"'
    ]


def test_what_json_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        replace(STORED, settings={"margin": float("nan")}).to_attributes()


def test_the_running_code_is_named() -> None:
    code = this_code()
    assert code.version
    assert code.commit is None or len(code.commit.removesuffix("+")) == 40
