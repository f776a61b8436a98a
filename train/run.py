"""A training run, on one screen.

settings -> switches -> model, adapter, plan of every step -> certificate -> steps, with checkpoints -> files.
"""

import shlex
import sys
from contextlib import closing, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter

from tqdm import tqdm

from analysis import lock
from analysis.disk import naming_the_disk
from analysis.errors import Refused
from analysis.provenance import Provenance, this_code
from analysis.run_folder import ADAPTER, CERTIFICATE, START, SUMMARY
from train import adapter, checkpoint, determinism, kohya, places, record, resume
from train.certificate import NOT_ASKED
from train.certify import certify
from train.environment import environment
from train.fresh import agree
from train.job import Job, begin, prepare
from train.latents import Latents
from train.memory_of_run import memory_of
from train.plan import NATIVE
from train.settings import Settings, toml
from train.training_step import advance

CERTIFYING = "taking the certificate: steps are repeated, and compared to the byte"


def run(settings: Settings, out: Path, *, resuming: bool, latents: Latents | None = None) -> None:
    """Train as ``settings`` say, into the folder ``out``; with ``resuming`` go on with the run that is there.

    latents: instead of those that the settings name.
    """
    places.check_run(out)
    job = prepared(settings, latents)
    with naming_the_disk(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    with lock.writing(out):
        done = resume.open_run(out, job, provenance_of(job), resuming=resuming)
        if not done and settings.adapter is not None:
            adapter.save(out / START, job.parameters, job.lora)  # a displacement is counted from here
        if done < settings.steps:
            take_evidence(job, out, done)
            say(described(job))
        with closing(record.StepLog(out, done)) as log:
            if done < settings.steps:
                take_steps(job, out, done, log)
            written = write_end(job, out, log)
    if done < settings.steps:
        say(f"{out / ADAPTER}: the adapter after {settings.steps} step{'s' if settings.steps > 1 else ''}")
    else:
        again = f"; written again, as its last checkpoint says: {', '.join(written)}" if written else ""
        say(f"{out}: its {done} steps were done before{again}")
        if not (out / CERTIFICATE).exists():
            say(f"warning: {out / CERTIFICATE} is missing, and cannot be taken for steps that are done")


def take_evidence(job: Job, out: Path, done: int) -> None:
    """Write the run's certificate; refuse to train where determinism was asked for and none can be granted."""
    asked = job.settings.deterministic
    if asked:
        say(CERTIFYING)
    certificate = certify(job, done) if asked else replace(NOT_ASKED, environment=environment())
    record.write_json(out / CERTIFICATE, certificate.as_json())
    if asked and not certificate.granted:
        raise Refused(f"--deterministic: {'; '.join(certificate.against)}")


def take_steps(job: Job, out: Path, done: int, log: record.StepLog) -> None:
    """Every step after ``done``, with checkpoints."""
    steps, every = job.settings.steps, job.settings.checkpoint_every
    with (
        determinism.guarded() if job.settings.deterministic else nullcontext(),
        tqdm(total=steps, initial=done, unit="it", dynamic_ncols=True, smoothing=0.05) as bar,
    ):
        for step in range(done, steps):
            before = perf_counter()
            outcome = advance(job, step)
            if job.settings.deterministic:
                determinism.check()
            line = record.line_of(job, step, outcome, perf_counter() - before)
            log.add(line)
            bar.set_postfix(loss=f"{line['loss']:.4f}", refresh=False)
            bar.update()
            if step + 1 == steps or (every and (step + 1) % every == 0):
                log.synchronise()
                checkpoint.write(out, job, step + 1)


def write_end(job: Job, out: Path, log: record.StepLog) -> list[str]:
    """The files at the end, from the state after the last step; the names of those that were not there, as they are."""
    written = {ADAPTER: adapter.save(out / ADAPTER, job.parameters, job.lora)}
    if job.settings.format == "kohya":
        file = out / kohya.ADAPTER
        written[file.name] = kohya.save(file, job.parameters, job.lora, job.family, job.transformer)
    written[SUMMARY] = record.write_json(out / SUMMARY, record.summary(job, log))
    return [name for name, wrote in written.items() if wrote]


def prepared(settings: Settings, latents: Latents | None = None) -> Job:
    """Everything a run computes with; that it takes a while is told on a terminal."""
    if sys.stderr.isatty():
        say(f"loading the model {settings.model}")
    begin(settings)
    return prepare(settings, latents)


def provenance_of(job: Job) -> Provenance:
    """How the run is made, for ``run.json``. Data and adapter go by their hashes, threads by the environment."""
    settings = asdict(job.settings)
    for name in ("model", "latents", "adapter", "threads"):
        del settings[name]
    return Provenance(shlex.join(sys.argv), settings, this_code(), job.hashes, environment())


def described(job: Job) -> str:
    """What is about to be done, in a line."""
    trainable = sum(p.numel() for p in job.parameters.values())
    eligible, treated = int(job.schedule.eligible.sum()), int(job.schedule.treated.sum())
    dose = f"{treated} of {eligible} eligible steps treated, of {job.settings.steps}"
    if job.arm.plan(job.arm.hi) == NATIVE:
        dose = f"nothing treated, in {job.settings.steps} steps"
    return f"arm {job.arm.text}: {dose}; {trainable:,} trainable parameters, {len(job.order.names)} images"


def say(text: str) -> None:
    """A line for the person, on standard error."""
    print(text, file=sys.stderr, flush=True)


def describe(settings: Settings) -> None:
    """``--dry-run``: the settings as TOML on standard output, and what they plan on standard error."""
    job = prepared(settings)
    print(toml(job.settings))
    say(described(job))
    say(str(memory_of(job)))


def certificate(settings: Settings, out: Path, *, fresh: bool) -> int:
    """``train certify``: take the evidence, write it to ``out``, print it. Exit code 0 if granted, else 3."""
    places.check_certificate(out)
    job = prepared(settings)
    say(CERTIFYING)
    found = certify(job)
    if fresh:
        say("two new processes take the first steps, each with compile caches of its own")
        common, against = agree(settings)
        found = replace(found, fresh=common, against=(*found.against, *against))
    record.write_json(out, found.as_json())
    print(found)
    return 0 if found.granted else Refused.exit_code
