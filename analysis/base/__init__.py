"""Array kernels of the estimators: numpy arrays with leading cell axes in, arrays out, no labels.

Notation of shapes: ``*cells`` any leading axes, ``n`` images, ``draw`` noise draws per image. A jackknife
replicate is indexed by (stratum, unit): one stratum of n images, or n strata of D draws each.
"""
