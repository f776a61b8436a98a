"""How far the ruler reaches: separation of training runs against the dose of their treatment (docs/method.md, 11).

One store of ``probes horizon`` in, figures out; no model is needed::

    found = assess(store.read(Path("horizon.zarr")))
    found.reaches[1.0].horizon, found.growth.rate
"""
