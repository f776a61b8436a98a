"""A certificate is granted to what repeats, and to nothing that only says so."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from analysis.errors import Refused
from train import certify as certifying
from train import determinism
from train import run as running
from train.attention import BACKENDS, Backend, racing, register, routed
from train.certify import attention_modules, certify
from train.determinism import guarded, strict_within
from train.divergence import diverging, suspects
from train.fresh import agree
from train.job import prepare
from train.run import run
from train.state import snapshot
from train.training_step import advance, gradients

SINGLE = "single_transformer_blocks.0.attn"


@pytest.fixture(autouse=True)
def strict():
    with strict_within():
        yield


@pytest.fixture
def fake_flash():
    """A kernel that takes deterministic=True and races all the same."""
    backend = register(Backend("fake_flash", racing.attend, can_be_deterministic=True))
    yield backend.name
    del BACKENDS["fake_flash"]


class Smuggled:
    """An attention processor that calls a racing kernel by itself; ``counted``: after one honest call for the count."""

    def __init__(self, honest, *, counted):
        self.honest, self.counted = honest, counted

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, image_rotary_emb=None):
        if self.counted:
            self.honest(attn, hidden_states, encoder_hidden_states, attention_mask, image_rotary_emb)
        q, k, v = (
            of(hidden_states).unflatten(-1, (attn.heads, -1)).transpose(1, 2)
            for of in (attn.to_q, attn.to_k, attn.to_v)
        )
        out = racing.attend(q, k, v, SimpleNamespace(mask=None, is_causal=False, scale=None, enable_gqa=False), False)
        return out.transpose(1, 2).flatten(2)


def smuggle(job, *, counted):
    module = job.transformer.get_submodule(SINGLE)
    module.processor = Smuggled(module.processor, counted=counted)


def test_what_repeats_is_certified_and_left_as_it_was(job_of):
    job = job_of(deterministic=True, arm="demote:56@0.5")
    advance(job, 0)
    before = snapshot(job)
    found = certify(job, 1)
    assert found.granted, found
    assert found.steps == (2, 4)
    assert found.repeats == 3
    assert found.tensors == 2 * 4 * len(job.parameters)  # steps x (gradient, adapter, two moments)
    assert found.attention == {"sdpa, deterministic": 2}
    assert found.longest_keys in (197, 257)
    assert found.environment["switch use_deterministic_algorithms"] is True
    after = snapshot(job)
    assert all(before[name].equal(after[name]) for name in before)
    assert "certificate granted" in str(found)


@pytest.mark.parametrize("counted", [False, True])
def test_a_racing_layer_smuggled_in_gets_none_and_is_named(job_of, counted):
    job = job_of(deterministic=True)
    smuggle(job, counted=counted)
    found = certify(job)
    assert not found.granted
    assert any("differs in" in line and line.endswith(f"it begins in {SINGLE}") for line in found.against), found
    bypassed = [line for line in found.against if "did not come through" in line]
    assert len(bypassed) == (0 if counted else 1)
    assert all(SINGLE in line for line in bypassed)


def test_a_layer_that_bypasses_the_op_is_named_even_if_it_repeats(job_of, monkeypatch):
    job = job_of(deterministic=True)
    smuggle(job, counted=False)
    monkeypatch.setattr(racing, "racing_scores", lambda q, k: q @ k.transpose(-1, -2))
    assert certify(job).against == (
        f"attention of {SINGLE} did not come through the one attention op, so nothing is known of it",
    )


def test_a_kernel_that_ignores_its_promise_gets_none(job_of, fake_flash):
    found = certify(job_of(deterministic=True, attention=fake_flash))
    assert not found.granted
    assert any("repeated differs" in line and SINGLE in line for line in found.against), found
    assert any("took deterministic=True and does not repeat: dQ" in line for line in found.against), found


def test_a_kernel_is_tried_on_long_sequences_too(job_of, fake_flash, monkeypatch):
    """As for a model whose own sequences are too short for a race: the step repeats, the kernel alone does not."""
    monkeypatch.setattr(certifying, "repeat", lambda *arguments: 0)
    found = certify(job_of(deterministic=True, attention=fake_flash))
    assert found.against == ("attention backend fake_flash took deterministic=True and does not repeat: dQ",)


def test_a_racing_route_inside_the_step_is_refused_with_the_layers_name(job_of):
    job = job_of(deterministic=True)
    module = job.transformer.get_submodule(SINGLE)
    honest = module.processor

    def racing_inside(*args, **kwargs):
        with routed("racing", deterministic=False):
            return honest(*args, **kwargs)

    module.processor = racing_inside
    with pytest.raises(Refused, match=f"inside a deterministic route \\({SINGLE}\\)"):
        gradients(job, 0, named=True)
    found = certify(job)
    assert any(f"inside a deterministic route ({SINGLE})" in line for line in found.against), found


def test_a_run_without_a_certificate_does_not_train(settings_of, fake_flash, tmp_path, capsys):
    with pytest.raises(Refused, match="--deterministic: step 1 repeated differs"):
        run(settings_of(deterministic=True, attention=fake_flash), tmp_path / "run", resuming=False)
    assert not (tmp_path / "run" / "adapter.safetensors").exists()
    assert '"granted": false' in (tmp_path / "run" / "certificate.json").read_text()
    assert capsys.readouterr().err == "taking the certificate: steps are repeated, and compared to the byte\n"


def test_what_takes_long_is_told(settings_of, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(running, "agree", lambda settings: ({"tensors": 1}, []))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    running.certificate(settings_of(deterministic=True), tmp_path / "c.json", fresh=True)
    told = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in told] == ["loading", "taking", "two"]


def test_hidden_randomness_is_found_where_it_begins(job_of):
    job = job_of(deterministic=True)
    block = job.transformer.transformer_blocks[0].ff.net[0]
    forward = block.forward
    block.forward = lambda x: forward(x) * (1 + 1e-3 * torch.rand(()))
    assert diverging(job, 0) == ["transformer_blocks.0.ff.net.0"]


def test_where_a_difference_begins():
    """Backward, from the loss: c repeats, b is given the same and hands on something else, a only passes it on."""
    one = {(name, 1, place, 0): "x" for name in ("", "a", "b", "b.q", "c") for place in ("output gradient", "output")}
    other = dict(one) | {("b.q", 1, "output gradient", 0): "y", ("a", 1, "output gradient", 0): "y"}
    assert suspects(one, other) == {"b"}
    assert suspects(one, one) == set()


def test_attention_is_known_by_its_class(job_of):
    assert attention_modules(job_of().transformer) == ["transformer_blocks.0.attn", SINGLE]


@pytest.mark.parametrize(
    "flip",
    [
        lambda: torch.use_deterministic_algorithms(False),
        lambda: torch.use_deterministic_algorithms(True, warn_only=True),
        lambda: torch.set_deterministic_debug_mode("warn"),
        lambda: torch.set_deterministic_debug_mode(0),
    ],
    ids=["off", "warn_only", "debug mode warn", "debug mode off"],
)
@pytest.mark.parametrize("swallowed", [False, True])
def test_a_flip_in_the_middle_of_a_run_ends_it(settings_of, tmp_path, monkeypatch, flip, swallowed):
    """Also one whose error is swallowed, and one that is put back before anybody looks."""
    count = 0

    def flipping(job, step):
        nonlocal count
        count += 1
        if count == 3:
            try:
                flip()
            except Refused:
                if not swallowed:
                    raise
            torch.use_deterministic_algorithms(True)
        return advance(job, step)

    monkeypatch.setattr(running, "advance", flipping)
    with pytest.raises(Refused, match="under strict determinism"):
        run(settings_of(deterministic=True, steps=4), tmp_path / "run", resuming=False)
    assert not (tmp_path / "run" / "adapter.safetensors").exists()


def test_a_switch_that_no_call_guards_is_found_at_the_next_step(settings_of, tmp_path, monkeypatch):
    def flipping(job, step):
        torch.backends.cudnn.benchmark = True
        return advance(job, step)

    monkeypatch.setattr(running, "advance", flipping)
    with pytest.raises(Refused, match=r"cudnn.benchmark became True"):
        run(settings_of(deterministic=True), tmp_path / "run", resuming=False)


def test_the_guard_lets_the_switch_be_set_as_it_is_and_goes_away():
    setter = torch._C._set_deterministic_algorithms
    with guarded():
        torch.use_deterministic_algorithms(True)
    assert torch._C._set_deterministic_algorithms is setter
    assert not determinism.attempts


@pytest.mark.slow
def test_two_new_processes_agree(settings_of):
    found, against = agree(settings_of(deterministic=True))
    assert against == []
    assert found == {"processes": 2, "steps": 3, "tensors": 3 * 4 * 22}  # steps x kinds x LoRA tensors


@pytest.mark.slow
def test_racing_processes_do_not_agree_and_a_failed_one_says_why(settings_of):
    _, against = agree(settings_of(attention="racing"))
    assert len(against) == 1
    assert against[0].startswith("two new processes of one command differ, first in adapter.single_transformer")
    with pytest.raises(Refused, match=r"could not take the first steps: .*--images 9"):
        agree(settings_of(images=9))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # one that inductor imports
@pytest.mark.filterwarnings("ignore:.*Function.*should not be instantiated:DeprecationWarning")  # the compiler does
def test_compiled_runs_of_new_processes_agree_with_separate_caches(settings_of):
    found, against = agree(settings_of(deterministic=True, compile=True))
    assert against == []
    assert found["tensors"] == 3 * 4 * 22
    assert certify(prepare(settings_of(deterministic=True, compile=True))).granted


@pytest.mark.slow
def test_the_command_gives_a_certificate_or_code_3(tiny, tmp_path):
    command = [sys.executable, "-P", "-c", "from train.cli import main; main()", "certify", "--fresh"]
    for attention, code in (("sdpa", 0), ("racing", 3)):
        options = ["--model", str(tiny), "--attention", attention, "--out", str(tmp_path / "c.json")]
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
    assert '"granted": true' in (tmp_path / "c.json").read_text()


def test_flash_is_certified_where_it_repeats_and_refused_where_it_ignores_the_flag(flash_attn, job_of):
    flash_attn(races=True)
    found = certify(job_of(deterministic=True, attention="flash", precision="bf16"))
    assert found.granted, found
    assert set(found.attention) == {"flash, deterministic"}
    assert set(found.kernels) == {"flash"}
    flash_attn(races=True, obeys=False)
    refused = certify(job_of(deterministic=True, attention="flash", precision="bf16"))
    assert not refused.granted
    assert any("flash took deterministic=True and does not repeat: dQ" in reason for reason in refused.against)
