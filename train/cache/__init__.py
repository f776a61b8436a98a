"""Caches: a folder of photographs as latents and conditioning of a model with an autoencoder.

    train cache --model M --images photographs --tiers 1024,896 --out cache
    probes grad --model M --latents cache

``build`` makes one, ``opening`` reads it, and caches that other tools wrote (``kohya``, ``musubi``), as ``Latents``.
"""
