"""Policies over sigma: what a mixture of arms does to the expected training gradient (docs/method.md, section 10).

A policy says at which sigma a training run takes which arm. Training follows the gradient's mean over sigma, and biases
at different sigma may cancel in it or add up, so a policy's figures are not sums of figures at single sigma. They come
from inner products across sigma (Eq. 6), which ``probes grad --policy`` stores:

    policy = grammar.parse("demote:48@0.8,demote:56@0.5:0.8", arms, grid)
    material = load(dataset, population="images")
    part = moments(material, weights(policy, shares, arms)[None])
"""
