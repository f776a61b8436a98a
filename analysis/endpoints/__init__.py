"""End points: what whole training runs did to an adapter, compared.

Two long runs end far apart whatever differs between them, so an end point is a detector, never a ruler: it can say that
a treatment is there, and in which blocks, but not how large it is (``probes grad`` does). runs or files ->
``displacement`` -> ``pairs`` with floors and verdicts -> ``report`` and ``plots``.
"""
