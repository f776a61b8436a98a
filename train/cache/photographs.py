"""A folder of photographs, looked at before anything is encoded: sizes, captions, and what cannot be used."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from analysis.errors import UsageError
from train.cache import buckets
from train.cache.buckets import Size
from train.pictures import paths_in, read_picture

NAMED = 8  # at most, in one line
CHARACTERS = 20_000  # of a caption; encoders cut at a few thousand, and take minutes to find that out of a whole book
BYTES = 4 * CHARACTERS  # that many characters at most, so that more is not read


@dataclass(frozen=True)
class Photograph:
    """size: height and width, upright; sha256: of the file; caption: empty where there is none."""

    name: str
    path: Path
    size: Size
    sha256: str
    caption: str


def look_at(
    folder: Path, tier: int, unit: int, *, skip_bad: bool, seen: Callable[[], object] = lambda: None
) -> tuple[tuple[Photograph, ...], dict[str, str]]:
    """Every photograph of ``folder`` that fits ``tier``, and those left out with the reason, by file name.

    Raises UsageError for a damaged one or its caption, and for those that are too small, unless ``skip_bad``, and where
    none is left. seen: called after each.
    """
    found, bad = [], {}
    for name, path in paths_in(folder).items():
        try:
            picture, caption = read_picture(path), caption_of(path)
        except UsageError as error:
            if not skip_bad:
                raise UsageError(f"{error}, or leave such out with --skip-bad") from None
            bad[path.name] = str(error)
        else:
            height, width = picture.pixels.shape[:2]
            found.append(Photograph(name, path, (height, width), picture.sha256, caption))
        seen()
    small = [photograph for photograph in found if not buckets.fits(photograph.size, tier, unit)]
    if small and not skip_bad:
        raise UsageError(too_small(small, tier, unit))
    bad |= {photograph.path.name: fitting(photograph, tier, unit) for photograph in small}
    kept = tuple(photograph for photograph in found if photograph not in small)
    if not kept:
        raise UsageError(f"{folder}: none of its {len(bad)} pictures can be used; the first is {next(iter(bad))}")
    return kept, bad


def caption_of(path: Path) -> str:
    """The text of the file beside a picture that has its stem and ends in .txt, without outer white space.

    Raises UsageError where it is no caption: not UTF-8, or longer than any.
    """
    file = path.with_suffix(".txt")
    if not file.is_file():
        return ""
    try:
        caption = file.read_text(encoding="utf-8-sig").strip() if (size := file.stat().st_size) <= BYTES else ""
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: not readable as UTF-8 text ({error}); mend or remove it") from None
    if size > BYTES or len(caption) > CHARACTERS:
        raise UsageError(f"{file}: is no caption, which has {CHARACTERS} characters at most; mend or remove it")
    return caption


def sha256_of(text: str) -> str:
    """Of a text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def too_small(small: list[Photograph], tier: int, unit: int) -> str:
    """One line that names them, and what would fit."""
    named = "; ".join(f"{photograph.path.name} {fitting(photograph, tier, unit)}" for photograph in small[:NAMED])
    more = f"; and {len(small) - NAMED} more" if len(small) > NAMED else ""
    return (
        f"too small for tier {tier}, and nothing is made larger: {named}{more}; "
        "give smaller --tiers, larger pictures, or leave these out with --skip-bad"
    )


def fitting(photograph: Photograph, tier: int, unit: int) -> str:
    """``1200 x 800 pixels, fits tier 960``."""
    height, width = photograph.size
    fits = buckets.largest_tier(photograph.size, tier, unit)
    return f"{width} x {height} pixels, fits {'no tier' if fits is None else f'tier {fits}'}"


def counted(sizes: Iterable[Size]) -> str:
    """``3 of 1024 x 1024, 1 of 832 x 1216``: widths x heights, the most frequent first."""
    counts: dict[Size, int] = {}
    for size in sizes:
        counts[size] = counts.get(size, 0) + 1
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    more = f", and {len(ranked) - NAMED} more" if len(ranked) > NAMED else ""
    return ", ".join(f"{n} of {width} x {height}" for (height, width), n in ranked[:NAMED]) + more
