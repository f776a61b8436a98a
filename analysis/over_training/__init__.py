"""A store of several checkpoints of one run, step by step: the same answer at each, side by side.

    found = answers(dataset, ask)       # step -> what analysis.answer gives for that step alone
    json.dumps(as_json(found)); as_text(found); curve_figure(found)

Each step has its own verdicts and windows, whose confidence is that of the step; a gate asks for all of them.
"""
