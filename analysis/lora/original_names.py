"""Module names of a model's original code, which kohya's and ComfyUI's files use, and diffusers' names for the same.

A row is an original name and the modules of diffusers it is made of, their outputs one below the other; {} is the
block's number. Of several parts the first three are a query, a key and a value of one width.

The correspondences are those of diffusers' own converters (``loaders/lora_conversion_utils.py`` and, for SD3,
``loaders/single_file_utils.py``). Left out are modules whose output diffusers reorders: the last modulations, whose
shift and scale change places (``final_layer.adaLN_modulation.1``; in SD3 that of the last block's text side too).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

Rows = tuple[tuple[str, tuple[str, ...]], ...]


def in_block(original: str, here: str, modules: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Rows for one list of blocks. modules: original name -> diffusers' names, one after the other."""
    for name, parts in modules.items():
        yield f"{original}.{{}}.{name}", tuple(f"{here}.{{}}.{part}" for part in parts.split())


def outside(modules: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Rows of modules that stand in no block."""
    for name, part in modules.items():
        yield name, (part,)


_FLUX_ATTENTION = {
    "img_attn.qkv": "attn.to_q attn.to_k attn.to_v", "img_attn.proj": "attn.to_out.0",
    "txt_attn.qkv": "attn.add_q_proj attn.add_k_proj attn.add_v_proj", "txt_attn.proj": "attn.to_add_out",
}  # fmt: skip
FLUX: Rows = (
    *in_block("double_blocks", "transformer_blocks", _FLUX_ATTENTION | {
        "img_mlp.0": "ff.net.0.proj", "img_mlp.2": "ff.net.2", "img_mod.lin": "norm1.linear",
        "txt_mlp.0": "ff_context.net.0.proj", "txt_mlp.2": "ff_context.net.2", "txt_mod.lin": "norm1_context.linear",
    }),
    *in_block("single_blocks", "single_transformer_blocks", {
        "linear1": "attn.to_q attn.to_k attn.to_v proj_mlp", "linear2": "proj_out", "modulation.lin": "norm.linear",
    }),
)  # fmt: skip
"""Blocks of Flux and Chroma; what stands in none is in FLUX_OUTSIDE."""
FLUX_OUTSIDE: Rows = tuple(outside({
    "img_in": "x_embedder", "txt_in": "context_embedder", "final_layer.linear": "proj_out",
    "time_in.in_layer": "time_text_embed.timestep_embedder.linear_1",
    "time_in.out_layer": "time_text_embed.timestep_embedder.linear_2",
    "guidance_in.in_layer": "time_text_embed.guidance_embedder.linear_1",
    "guidance_in.out_layer": "time_text_embed.guidance_embedder.linear_2",
    "vector_in.in_layer": "time_text_embed.text_embedder.linear_1",
    "vector_in.out_layer": "time_text_embed.text_embedder.linear_2",
}))  # fmt: skip
FLUX2: Rows = (
    *in_block("double_blocks", "transformer_blocks", _FLUX_ATTENTION | {
        "img_mlp.0": "ff.linear_in", "img_mlp.2": "ff.linear_out",
        "txt_mlp.0": "ff_context.linear_in", "txt_mlp.2": "ff_context.linear_out",
    }),
    *in_block("single_blocks", "single_transformer_blocks", {
        "linear1": "attn.to_qkv_mlp_proj", "linear2": "attn.to_out",
    }),
    *outside({
        "img_in": "x_embedder", "txt_in": "context_embedder", "final_layer.linear": "proj_out",
        "time_in.in_layer": "time_guidance_embed.timestep_embedder.linear_1",
        "time_in.out_layer": "time_guidance_embed.timestep_embedder.linear_2",
        "guidance_in.in_layer": "time_guidance_embed.guidance_embedder.linear_1",
        "guidance_in.out_layer": "time_guidance_embed.guidance_embedder.linear_2",
        "single_stream_modulation.lin": "single_stream_modulation.linear",
        "double_stream_modulation_img.lin": "double_stream_modulation_img.linear",
        "double_stream_modulation_txt.lin": "double_stream_modulation_txt.linear",
    }),
)  # fmt: skip
SD3: Rows = (
    *in_block("joint_blocks", "transformer_blocks", {
        "x_block.attn.qkv": "attn.to_q attn.to_k attn.to_v", "x_block.attn.proj": "attn.to_out.0",
        "x_block.attn2.qkv": "attn2.to_q attn2.to_k attn2.to_v", "x_block.attn2.proj": "attn2.to_out.0",
        "x_block.mlp.fc1": "ff.net.0.proj", "x_block.mlp.fc2": "ff.net.2", "x_block.adaLN_modulation.1": "norm1.linear",
        "context_block.attn.qkv": "attn.add_q_proj attn.add_k_proj attn.add_v_proj",
        "context_block.attn.proj": "attn.to_add_out",
        "context_block.mlp.fc1": "ff_context.net.0.proj", "context_block.mlp.fc2": "ff_context.net.2",
    }),
    *outside({"final_layer.linear": "proj_out"}),
)  # fmt: skip
WAN: Rows = (
    *in_block("blocks", "blocks", {
        **{f"{old}.{short}": f"{new}.{long}" for old, new in (("self_attn", "attn1"), ("cross_attn", "attn2"))
           for short, long in (("q", "to_q"), ("k", "to_k"), ("v", "to_v"), ("o", "to_out.0"))},
        "cross_attn.k_img": "attn2.add_k_proj", "cross_attn.v_img": "attn2.add_v_proj",
        "ffn.0": "ffn.net.0.proj", "ffn.2": "ffn.net.2",
    }),
    *outside({
        "head.head": "proj_out", "time_projection.1": "condition_embedder.time_proj",
        "text_embedding.0": "condition_embedder.text_embedder.linear_1",
        "text_embedding.2": "condition_embedder.text_embedder.linear_2",
        "time_embedding.0": "condition_embedder.time_embedder.linear_1",
        "time_embedding.2": "condition_embedder.time_embedder.linear_2",
    }),
)  # fmt: skip
Z_IMAGE: Rows = tuple(
    row
    for stack in ("layers", "noise_refiner", "context_refiner")
    for row in in_block(stack, stack, {
        "attention.qkv": "attention.to_q attention.to_k attention.to_v", "attention.out": "attention.to_out.0",
    })
)  # fmt: skip
ANIMA: Rows = (
    *in_block("blocks", "transformer_blocks", {
        **{f"{old}.{short}": f"{new}.{long}" for old, new in (("self_attn", "attn1"), ("cross_attn", "attn2"))
           for short, long in (
               ("q_proj", "to_q"), ("k_proj", "to_k"), ("v_proj", "to_v"), ("output_proj", "to_out.0"))},
        **{f"adaln_modulation_{part}.{i}": f"norm{number}.linear_{i}"
           for number, part in ((1, "self_attn"), (2, "cross_attn"), (3, "mlp")) for i in (1, 2)},
        "mlp.layer1": "ff.net.0.proj", "mlp.layer2": "ff.net.2",
    }),
    *outside({"final_layer.linear": "proj_out", "x_embedder.proj.1": "patch_embed.proj"}),
)  # fmt: skip
"""Anima's Cosmos transformer."""


def fold(name: str) -> str:
    """``blocks.0.attn.to_q`` -> ``blocks_0_attn_to_q``, as kohya's names are."""
    return name.replace(".", "_")


class Table:
    """One model's rows, looked up by folded names."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    @cached_property
    def _parts(self) -> dict[str, tuple[str, ...]]:
        return {fold(original): parts for original, parts in self.rows}

    @cached_property
    def _dotted(self) -> dict[str, str]:
        names = [name for original, parts in self.rows for name in (original, *parts)]
        return {fold(name): name for name in names}

    def knows(self, folded: str) -> bool:
        return _template(folded)[0] in self._dotted

    def parts(self, folded: str) -> tuple[str, ...]:
        """Diffusers' modules of an original name; nothing for any other name, diffusers' own among them."""
        template, index = _template(folded)
        return tuple(part.format(index) for part in self._parts.get(template, ()))

    def dotted(self, folded: str) -> str | None:
        """A folded name with its dots, original or diffusers' as it was."""
        template, index = _template(folded)
        name = self._dotted.get(template)
        return name and name.format(index)


TABLES = tuple(map(Table, (FLUX + FLUX_OUTSIDE, FLUX2, SD3, WAN, Z_IMAGE, ANIMA)))


def table_for(folded: Iterable[str]) -> Table:
    """The table that knows most of these names, of whatever files are compared; the first of equals."""
    names = list(folded)
    return max(TABLES, key=lambda table: sum(table.knows(name) for name in names))


def _template(folded: str) -> tuple[str, str]:
    """``blocks_3_ffn_0`` -> ``blocks_{}_ffn_0`` and 3."""
    found = re.search(r"(?<=_)\d+(?=_)", folded)
    return (f"{folded[: found.start()]}{{}}{folded[found.end() :]}", found.group()) if found else (folded, "")
