"""A run goes on from a checkpoint as if it had never stopped, on the machine that is free."""

import io
import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from learner_data import SHAPES, VOCABULARY, lineage, payload, sft_batches
from torch.distributed.checkpoint import filesystem as torch_files

from learner.settings import LoraSettings
from protocol.files.digests import digest_files
from protocol.weights import WeightVersion
from tests.support.hostile_pickles import MakesFolder

pytestmark = pytest.mark.first_case

LORA = {"lora": LoraSettings(rank=4, targets=("q_proj", "v_proj", "o_proj", "gate_proj"))}
OPTIONS = pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="plain", marks=pytest.mark.slow),
        pytest.param({"distributed_optimizer": True}, id="distributed optimizer", marks=pytest.mark.slow),
        pytest.param({"dtype": "bfloat16"}, id="bfloat16", marks=pytest.mark.slow),
        pytest.param({"dtype": "bfloat16", "distributed_optimizer": True}, id="bfloat16, distributed optimizer"),
        pytest.param({"dtype": "bfloat16", "distributed_optimizer": True, **LORA}, id="all that, adapters"),
    ],
)
DIGESTS = (("weights_digest",), ("optimizer_digest",))


def steps(first: int, last: int) -> list[tuple]:
    return [("step", n, payload(seed=n), lineage(), WeightVersion(4)) for n in range(first, last)]


@OPTIONS
def test_resume_is_bitwise(ranks, settings, tmp_path, options):
    """A run that was killed and resumed ends with the weights and moments of one that was not."""
    made, folder = settings(**options), str(tmp_path / "checkpoint")
    whole = ranks.learner(made, *steps(0, 2), ("save", folder), *steps(2, 5), *DIGESTS)
    resumed = ranks.learner(made, ("load", folder), *steps(2, 5), *DIGESTS)
    assert resumed[-2:] == whole[-2:]
    assert len(set(whole[-2:])) == 2


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param({"tp": 2}, marks=pytest.mark.slow),
        pytest.param({"pp": 2}, marks=pytest.mark.slow),
        pytest.param({"distributed_optimizer": True}, marks=pytest.mark.slow),
        {"pp": 2, "distributed_optimizer": True},
    ],
    ids=["TP2", "PP2", "DP2 distributed optimizer", "PP2 distributed optimizer"],
)
def test_resume_is_bitwise_on_two_ranks(ranks, settings, tmp_path, layout):
    """With tied embeddings the last has several buckets, and padding between them."""
    made, folder = settings(**layout), str(tmp_path / "checkpoint")
    whole = ranks.run("calls", 2, settings=made, then=(*steps(0, 2), ("save", folder), *steps(2, 4), *DIGESTS))
    resumed = ranks.run("calls", 2, settings=made, then=(("load", folder), *steps(2, 4), *DIGESTS))
    assert [found[-2:] for found in resumed] == [found[-2:] for found in whole]


@OPTIONS
def test_checkpoint_before_the_first_step(ranks, settings, tmp_path, options):
    """Step 0 is a checkpoint too."""
    made = settings(**options)
    folder, then = str(tmp_path / "checkpoint"), (*(("sft", b) for b in sft_batches()), *DIGESTS)
    whole = ranks.learner(made, ("save", folder), *then)
    resumed = ranks.learner(made, ("sft", sft_batches()[0]), ("load", folder), *then)
    assert resumed[-2:] == whole[-2:]


@pytest.mark.parametrize(
    ("options", "world"),
    [
        pytest.param({}, 1, id="float32", marks=pytest.mark.slow),
        pytest.param({"dtype": "bfloat16"}, 1, id="bfloat16", marks=pytest.mark.slow),
        pytest.param({"distributed_optimizer": True}, 2, id="DP2, distributed optimizer"),
    ],
)
def test_steps_taken_while_a_checkpoint_is_being_saved_do_not_change_it(ranks, settings, tmp_path, options, world):
    """Otherwise a checkpoint would be a mixture of several steps' weights."""
    made, folder = settings(**options), str(tmp_path / "checkpoint")
    then = (*steps(0, 2), *DIGESTS, ("begin_save", folder), *steps(2, 4), ("end_save",))
    saved = ranks.run("calls", world, settings=made, then=then)
    loaded = ranks.run("calls", world, settings=made, then=(("load", folder), *DIGESTS))
    assert [found[1:] for found in loaded] == [found[2:4] for found in saved]


def test_steps_taken_while_weights_are_being_published_do_not_change_them(ranks, settings, tmp_path):
    """Otherwise engines would sample with weights that no version names."""
    then = (
        ("begin_publish",),
        *steps(0, 2),
        ("end_publish", WeightVersion(1), 0, WeightVersion(0), str(tmp_path / "out")),
    )
    made = settings()
    ranks.learner(made, *then)
    (before,) = ranks.run("read_file", path=f"{made.model_path}/model.safetensors")
    (after,) = ranks.run("read_file", path=str(tmp_path / "out" / "model.safetensors"))
    for name, (_, weight) in before.items():
        np.testing.assert_array_equal(after[name][1], weight, err_msg=name)


def test_steps_taken_while_adapters_are_being_published_do_not_change_them(ranks, settings, tmp_path):
    made = settings(tp=2, lora=LoraSettings(rank=4), publish_adapters=True)
    beside, at_once = str(tmp_path / "beside"), str(tmp_path / "at once")
    then = (
        ("publish_adapter", WeightVersion(1), 0, WeightVersion(0), at_once),
        *(("begin_publish",), *steps(0, 2), ("end_publish", WeightVersion(1), 0, WeightVersion(0), beside)),
    )
    first, *_, last = ranks.learner(made, *then, world=2)
    assert sorted(path.name for path in Path(beside).iterdir()) == sorted(path.name for path in Path(at_once).iterdir())
    assert last == replace(first, path=beside)


def test_a_checkpoint_is_written_while_steps_are_taken(ranks, settings, tmp_path):
    """Two threads of each rank, and two ranks that exchange messages in both."""
    made, folder = settings(distributed_optimizer=True), str(tmp_path / "checkpoint")
    both = ranks.run("saves_beside_steps", 2, settings=made, folder=folder, before=steps(0, 1), during=steps(1, 4))
    files = both[0][0]
    assert files == digest_files(Path(folder), [path.name for path in Path(folder).iterdir()])
    assert both[1][0] == {}
    whole = ranks.run("calls", 2, settings=made, then=(*steps(0, 4), *DIGESTS))
    assert [list(found[1:]) for found in both] == [found[-2:] for found in whole]
    resumed = ranks.run("calls", 2, settings=made, then=(("load", folder), *steps(1, 4), *DIGESTS))
    assert [found[-2:] for found in resumed] == [found[-2:] for found in whole]


LAYOUTS = {"TP1": ({}, 1), "TP2": ({"tp": 2}, 2), "PP2": ({"pp": 2}, 2), "DP2": ({}, 2)}
RESHARDED = [
    *(
        pytest.param(
            *pair,
            {"distributed_optimizer": distributed},
            id="{}→{}{}".format(*pair, " distributed optimizer" if distributed else ""),
            marks=pytest.mark.slow,
        )
        for distributed in (False, True)
        for pair in (("TP1", "TP2"), ("TP2", "PP2"), ("DP2", "TP1"), ("TP1", "PP2"), ("TP1", "DP2"), ("PP2", "DP2"))
    ),
    pytest.param("TP1", "TP2", LORA, id="TP1→TP2 adapters", marks=pytest.mark.slow),
    pytest.param("TP2", "PP2", LORA | {"distributed_optimizer": True}, id="TP2→PP2 adapters, distributed optimizer"),
]


@pytest.mark.parametrize(("source", "target", "changes"), RESHARDED)
def test_checkpoint_loads_into_another_layout(ranks, settings, tmp_path, source, target, changes):
    """Resume on the machine that is free, not on the one that wrote.  Weights are compared after two more steps: a
    wrong Adam state does not show in the next loss."""
    folder, (first, *rest) = str(tmp_path / "checkpoint"), sft_batches(3, lr=1e-3)

    def run(layout: str, name: str, *then) -> list:
        options, world = LAYOUTS[layout]
        made = settings(adam_eps=1e-4, **changes, **options)
        publish = ("publish", WeightVersion(1), 1, WeightVersion(0), str(tmp_path / name))
        return ranks.learner(made, *then, *(("sft", batch) for batch in rest), publish, world=world)

    whole = run(source, "whole", ("sft", first), ("save", folder))
    other = run(target, "other", ("load", folder))
    for a, b in zip(whole[2:-1], other[1:-1], strict=True):
        assert b.loss == pytest.approx(a.loss, rel=1e-6)
        assert b.grad_norm == pytest.approx(a.grad_norm, rel=2e-6)
    (expected,), (found,) = (
        ranks.run("read_file", path=str(tmp_path / name / "model.safetensors")) for name in ("whole", "other")
    )
    for name, (_, weight) in expected.items():
        np.testing.assert_allclose(found[name][1], weight, atol=1e-6, err_msg=name)


def test_a_folder_without_a_checkpoint_is_refused(ranks, settings, tmp_path):
    ((_, _, message),) = ranks.run("survives", settings=settings(), attempt=("load", str(tmp_path)), error="UserError")
    assert "is not a checkpoint" in message


@pytest.mark.parametrize("suffix", [".distcp", "common.pt", ".metadata"])
def test_a_truncated_checkpoint_is_refused(ranks, settings, tmp_path, suffix):
    folder = tmp_path / "checkpoint"
    ranks.learner(settings(), ("save", str(folder)))
    (file,) = (path for path in folder.iterdir() if path.name.endswith(suffix))
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    ((before, after, message),) = ranks.run(
        "survives", settings=settings(), attempt=("load", str(folder)), error="UserError"
    )
    assert "is not a checkpoint that can be loaded" in message
    assert "--resume" in message
    assert before == after


def bring_code_in_common_state(folder: Path, value: object) -> None:
    torch.save({"world": 1, "of": value}, folder / "common.pt")


def bring_code_in_metadata(folder: Path, value: object) -> None:
    metadata = torch_files.FileSystemReader(folder).read_metadata()
    metadata.planner_data = value
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))


def bring_code_in_a_shard(folder: Path, value: object) -> None:
    metadata = torch_files.FileSystemReader(folder).read_metadata()
    index = next(each for each in metadata.storage_data if each.fqn.startswith("random"))
    piece, stream = metadata.storage_data[index], io.BytesIO()
    torch.save(value, stream)
    path = folder / piece.relative_path
    piece.offset, piece.length = path.stat().st_size, len(stream.getvalue())
    path.write_bytes(path.read_bytes() + stream.getvalue())
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))


def test_metadata_that_torch_cannot_make_is_refused(ranks, settings, tmp_path):
    """It calls what metadata may call, with a name that torch does not know."""
    folder = tmp_path / "checkpoint"
    ranks.learner(settings(), ("save", str(folder)))
    (folder / ".metadata").write_bytes(b"ctorch.serialization\n_get_layout\n(Vx\ntR.")
    ((_, _, message),) = ranks.run("survives", settings=settings(), attempt=("load", str(folder)), error="UserError")
    assert "is not a checkpoint that can be loaded (KeyError" in message


@pytest.mark.parametrize("bring", [bring_code_in_a_shard, bring_code_in_metadata, bring_code_in_common_state])
def test_a_checkpoint_that_brings_code_is_refused_before_it_runs(ranks, settings, tmp_path, bring):
    """One that somebody sent, with digests that fit."""
    folder, trace = tmp_path / "checkpoint", tmp_path / "it ran"
    ranks.learner(settings(), ("save", str(folder)))
    bring(folder, MakesFolder(trace))
    ((_, _, message),) = ranks.run("survives", settings=settings(), attempt=("load", str(folder)), error="UserError")
    assert "is not a checkpoint that can be loaded" in message
    assert not trace.exists()


@pytest.mark.parametrize(
    ("shape", "changes", "message"),
    [
        ("untied", {}, "intermediate_size = 64 there, 48 here"),
        ("tied", {"dtype": "bfloat16"}, "learner.dtype = float32 there, bfloat16 here"),
        ("tied", {"distributed_optimizer": True}, "distributed_optimizer = False there, True here"),
        ("tied", LORA, "lora.rank = 0 there, 4 here"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(ranks, settings, tmp_path, shape, changes, message):
    refused(ranks, tmp_path, settings(), settings(shape, **changes), message)


@pytest.mark.parametrize(
    ("lora", "message"),
    [
        (None, "lora.rank = 4 there, 0 here"),
        (LoraSettings(rank=2, targets=LORA["lora"].targets), "lora.rank = 4 there, 2 here"),
        (LoraSettings(rank=4, alpha=8, targets=LORA["lora"].targets), "lora.alpha = 32.0 there, 8.0 here"),
        (
            LoraSettings(rank=4, targets=("q_proj",)),
            "lora.targets = ('q_proj', 'v_proj', 'o_proj', 'gate_proj') there, ('q_proj',)",
        ),
    ],
)
def test_a_checkpoint_with_other_adapters_is_refused(ranks, settings, tmp_path, lora, message):
    """Another alpha would fit, and be another model."""
    refused(ranks, tmp_path, settings(**LORA), settings(lora=lora), message)


def refused(ranks, tmp_path, saved, own, said):
    """A checkpoint that is written with ``saved`` and loaded with ``own``."""
    folder = str(tmp_path / "checkpoint")
    ranks.learner(saved, ("save", folder))
    ((before, after, message),) = ranks.run("survives", settings=own, attempt=("load", folder), error="UserError")
    assert said in message
    assert "of another model or of other settings" in message
    assert before == after


def test_a_checkpoint_of_another_vocabulary_is_refused(ranks, settings, tmp_path):
    """Megatron would load it, and leave the rows that are missing as they are."""
    folder, model = str(tmp_path / "checkpoint"), tmp_path / "model"
    ranks.run("make_model", folder=str(model), shape=SHAPES["tied"] | {"vocab_size": VOCABULARY + 3})
    assert json.loads((model / "config.json").read_text())["vocab_size"] == VOCABULARY + 3
    ranks.learner(settings(), ("save", folder))
    ((_, _, message),) = ranks.run(
        "survives", settings=settings(model_path=str(model)), attempt=("load", folder), error="UserError"
    )
    assert f"vocab_size = {VOCABULARY} there, {VOCABULARY + 3} here" in message


@pytest.mark.parametrize("full", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_disk_that_is_full_for_one_rank_fails_the_save_on_every_rank(ranks, settings, tmp_path, full):
    """And the learner trains on, and saves when there is space again."""
    folder, again = str(tmp_path / "full"), str(tmp_path / "again")
    made = settings(tp=2)
    found = ranks.run("saves_without_space", 2, settings=made, full=full, folder=folder, again=again, then=steps(1, 2))
    for message, *_ in found:
        assert message.startswith("CheckpointSaveError: ")
        assert folder in message
        assert f"rank {full}" in message
        assert "File too large" in message
    loaded = ranks.run("calls", 2, settings=made, then=(("load", again), *DIGESTS))
    assert [tuple(each[1:]) for each in loaded] == [each[1:] for each in found]
