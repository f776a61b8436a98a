"""How much measuring is enough: what a small sweep, the pilot, says about the size of the one that settles a verdict.

    planned = plan(dataset, Asked(margin=0.2, rule="relative"))
    planned.cells[0].options[0].images

A forecast is a number of images (for the corpus, of draws) with which the verdict is settled with a stated chance, over
what may be true given the pilot (docs/method.md, section 6, "Planning").
"""

from analysis.planning.pilot import Asked, Cell, Option, Planned, outlook, plan
from analysis.planning.predict import LARGEST, Outlook

__all__ = ["LARGEST", "Asked", "Cell", "Option", "Outlook", "Planned", "outlook", "plan"]
