"""Published per-image records of a low-resolution probe: cosines and norms, read as a labelled dataset.

    dataset = records.read(Path("records.jsonl"))
    tables.gap(dataset), tables.norm_ratio(dataset)

They hold no inner products, so no figure or verdict of ``analysis safety`` can be had from them.
"""
