"""How large an arm's effect is, in doses of the ruler's marks: a gain, a jitter, a sigma shift, a lower precision.

    found = equivalents(dataset, baseline="native", population="images")
    print(as_text(found, metric="raw"))

The equations are those of docs/method.md, section 6, "Marks".
"""

from analysis.marks.equivalent import Equivalent, Measured, equivalents
from analysis.marks.words import as_json, as_text

__all__ = ["Equivalent", "Measured", "as_json", "as_text", "equivalents"]
