"""LoRA files that people have, read without a deep-learning library, and their modules paired.

    from analysis.lora.file import read
    from analysis.lora.pairing import paired

    found = paired([read(Path("a.safetensors")), read(Path("b.safetensors"))])
    sum(module.inner_products() for module in found.modules)       # Eq. 15 over all modules, [files, files]

A file's names are parsed by ``tensor_names``, its scales found by ``scale_rules``, and the names of a model's original
code brought to diffusers' by ``original_names``.
"""
