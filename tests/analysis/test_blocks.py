"""Blocks are read off names as they occur in models and adapter files."""

import pytest

from analysis.blocks import block_of, depth_order, in_depth_order


@pytest.mark.parametrize(
    ("name", "block"),
    [
        ("transformer_blocks.3.attn.to_q.weight", "transformer_blocks.3"),
        ("transformer.transformer_blocks.3.attn.to_q.lora_A.weight", "transformer_blocks.3"),
        ("base_model.model.single_transformer_blocks.0.proj_out.lora_B.weight", "single_transformer_blocks.0"),
        ("blocks.7", "blocks.7"),
        ("layers.2.x", "layers.2"),
        ("down_blocks.1.attentions.0.to_k.weight", "down_blocks.1"),
        ("0.weight", "0"),
        ("12", "12"),
        ("proj_out.weight", "other"),
        ("conv1.weight", "other"),
        ("norm2", "other"),
        ("time.2d.weight", "other"),
        ("", "other"),
    ],
)
def test_a_block_is_the_first_list_with_its_index(name: str, block: str) -> None:
    assert block_of(name) == block


def test_depth_order_counts_and_takes_any_name() -> None:
    names = ["blocks.10.a", "blocks.2.b", "blocks.2.a", "a", "blocks.02", "", "9" * 5000, "blocks"]
    assert sorted(names, key=in_depth_order)[-4:] == ["blocks.02", "blocks.2.a", "blocks.2.b", "blocks.10.a"]


def test_double_stream_blocks_come_before_single_stream_ones_and_refiners_first() -> None:
    flux = ["other", "single_transformer_blocks.0", "transformer_blocks.10", "transformer_blocks.2"]
    assert depth_order(flux) == [flux[3], flux[2], flux[1], flux[0]]
    assert depth_order({"layers.0", "noise_refiner.1", "context_refiner.0"})[0] == "noise_refiner.1"
