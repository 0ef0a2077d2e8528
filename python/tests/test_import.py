"""penstock.initialize(weights=...): values out of a Hugging Face directory, one tensor at a time."""
from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import penstock
import small_models as small
from compare import adamw
from cores import test_core as OpenFakeCore
from directories import peak_bytes, tensors_of, write_directory
from families import FAMILIES, batches
from penstock.weights.bits import same_bits


def stack(device: str = "cpu", **options) -> small.Stack:
    torch.manual_seed(0)
    with torch.device(device):
        return small.Stack(**options)


def opened(model, directory, folder=None, **options):
    engine, _, _, _ = penstock.initialize(model, core=OpenFakeCore(folder=folder), weights=directory, **options)
    return engine


def equal(a, b) -> bool:
    return list(a) == list(b) and all(same_bits(a[name], b[name]) for name in a)


def refusal(model, directory, kind=penstock.WeightsError) -> str:
    opener = OpenFakeCore()
    before = {name: each.is_meta for name, each in model.state_dict().items()}
    with pytest.raises(kind) as refused:
        penstock.initialize(model, core=opener, weights=directory)
    assert opener.last is None, "a core was made"
    assert before == {name: each.is_meta for name, each in model.state_dict().items()}
    return str(refused.value)


@pytest.mark.parametrize("device", ["meta", "cpu"])
@pytest.mark.parametrize("shards", [1, 3])
def test_a_model_has_the_values_of_the_directory_wherever_it_was(tmp_path, device, shards):
    given = stack(block=small.Normed)
    given.blocks[1].norm.running_mean.fill_(0.25)
    directory = write_directory(tmp_path / "weights", tensors_of(given), shards)
    model = stack(device, block=small.Normed)
    if device == "cpu":
        with torch.no_grad():
            for each in model.state_dict().values():
                each.zero_()
    engine = opened(model, directory)
    assert equal(given.state_dict(), engine.state_dict())
    assert not any(each.is_meta for each in (*model.parameters(), *model.buffers()))


def test_what_is_on_meta_in_a_part_of_the_model_is_read_as_well(tmp_path):
    given = stack()
    model = stack()
    model.blocks[1].to("meta")
    assert model.blocks[1].linear.weight.is_meta and not model.blocks[0].linear.weight.is_meta
    engine = opened(model, write_directory(tmp_path, tensors_of(given)))
    assert equal(given.state_dict(), engine.state_dict())


def test_an_optimizer_and_whoever_else_holds_a_parameter_on_meta_hold_it_still(tmp_path):
    given, model = stack(tied=True), stack("meta", tied=True)
    held = model.head.weight
    held.mark = "a user's"
    optimizer = adamw(model.parameters())
    engine, _, _, _ = penstock.initialize(model, optimizer, core=OpenFakeCore(),
                                          weights=write_directory(tmp_path, tensors_of(given)))
    assert model.head.weight is held and model.embedding.weight is held and held.mark == "a user's"
    plain_optimizer = adamw(given.parameters())
    for step in range(2):
        torch.manual_seed(step)
        plain = small.loss(given, small.ids(step))
        plain.backward()
        plain_optimizer.step()
        plain_optimizer.zero_grad()
        torch.manual_seed(step)
        managed = small.loss(engine, small.ids(step))
        engine.backward(managed)
        engine.step()
        assert plain.item() == managed.item()
    assert equal(given.state_dict(), engine.state_dict())


@pytest.mark.parametrize("of_file", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("of_model", [torch.float32, torch.bfloat16])
def test_types_are_converted_as_torch_does(tmp_path, of_file, of_model):
    given = stack().to(of_file)
    engine = opened(stack("meta"), write_directory(tmp_path, tensors_of(given)),
                    settings=penstock.Settings(dtype=of_model))
    assert equal(given.to(of_model).state_dict(), engine.state_dict())
    assert equal(dict(engine.named_weights("master")), {k: v.float() for k, v in given.state_dict().items()})


def test_a_store_that_is_gone_on_from_has_its_own_values(tmp_path):
    given = stack(block=small.Normed)
    directory = write_directory(tmp_path / "weights", tensors_of(given))
    first = opened(stack("meta", block=small.Normed), directory, tmp_path / "store")
    first.backward(small.loss(first, small.ids()))
    first.step()
    after = first.state_dict()
    first.close()
    second = opened(stack("meta", block=small.Normed), directory, tmp_path / "store")
    assert second.global_steps == 1 and equal(after, second.state_dict())


def test_all_that_does_not_fit_is_said_at_once_and_nothing_is_made(tmp_path):
    tensors = tensors_of(stack(block=small.Normed))
    tensors["blocks.0.linear.weight"] = torch.zeros(3, 5)
    tensors["head.weight"] = tensors["head.weight"].T.contiguous()
    tensors["strange"] = tensors["stranger"] = torch.zeros(1)
    del tensors["embedding.weight"], tensors["blocks.1.norm.running_mean"]
    text = refusal(stack("meta", block=small.Normed), write_directory(tmp_path, tensors))
    for each in ("missing are 'embedding.weight', 'blocks.1.norm.running_mean'",
                 "the model has no 'strange', 'stranger'", "'head.weight' is [8, 11], the model's [11, 8]",
                 "'blocks.0.linear.weight' is [3, 5], the model's [8, 8]", str(tmp_path),
                 "Name the directory of this model"):
        assert each in text


def test_a_tie_may_be_given_by_any_of_its_names_and_not_by_two_values(tmp_path):
    given = stack(tied=True)
    for kept, gone in (("head.weight", "embedding.weight"), ("embedding.weight", "head.weight")):
        tensors = {name: each for name, each in given.state_dict().items() if name != gone}
        engine = opened(stack("meta", tied=True), write_directory(tmp_path / kept, tensors))
        assert equal(given.state_dict(), engine.state_dict())
    both = dict(given.state_dict())
    opened(stack("meta", tied=True), write_directory(tmp_path / "both", both))
    both["head.weight"] = both["head.weight"] + 1
    text = refusal(stack("meta", tied=True), write_directory(tmp_path / "two", both))
    assert "'embedding.weight' and 'head.weight' are one parameter" in text and "tie_word_embeddings=False" in text


def test_directories_that_are_none_are_refused_with_a_remedy(tmp_path):
    model = stack("meta")
    assert "is no directory" in refusal(model, tmp_path / "nothing")
    assert "has neither model.safetensors nor" in refusal(model, tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    text = refusal(model, tmp_path)
    assert "'pytorch_model.bin'" in text and "save_pretrained" in text
    (tmp_path / "model.safetensors").write_bytes(b"1234")
    assert "no whole safetensors file: it has 4 bytes" in refusal(model, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors").mkdir()
    assert "Is a directory" in refusal(model, tmp_path)


def index_of(directory: Path, text) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "model.safetensors.index.json").write_text(text if isinstance(text, str) else json.dumps(text))
    return directory


@pytest.mark.parametrize("index, text", [
    ("{", "no JSON"), ("[" * 100_000, "no JSON"), ([], "no weight_map"), ({"weight_map": []}, "no weight_map"),
    ({"weight_map": {}}, "no weight_map"), ({"weight_map": {"a": 3}}, "no weight_map"),
    ({"weight_map": {"a": "../model.safetensors"}}, "no names of files"),
    ({"weight_map": {"a": "/etc/passwd", "b": ".."}}, "'..', '/etc/passwd': no names of files"),
    ({"weight_map": {"a": "x\0"}}, "no names of files"), ({"weight_map": {"\ud800": "x"}}, "no weight_map"),
    ({"weight_map": {"a": "one", "b": "two"}}, "lacks 'one', 'two'")])
def test_an_index_is_not_believed(tmp_path, index, text):
    assert text in refusal(stack("meta"), index_of(tmp_path / "weights", index))


def test_an_index_and_shards_that_are_not_of_one_model_are_refused(tmp_path):
    directory = write_directory(tmp_path, tensors_of(stack()), 2)
    index = json.loads((directory / "model.safetensors.index.json").read_text())
    index["weight_map"]["phantom"] = next(iter(index["weight_map"].values()))
    assert "'phantom'" in refusal(stack("meta"), index_of(directory, index))


class Rotary(small.Block):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.arange(small.WIDTH) / 7, persistent=False)

    def forward(self, x):
        return super().forward(x) * self.frequencies


def test_a_buffer_that_is_in_no_file_is_refused_by_name_and_kept_by_zero_init(tmp_path):
    given = stack(block=Rotary)
    directory = write_directory(tmp_path, tensors_of(given))
    text = refusal(stack("meta", block=Rotary), directory, penstock.ModelError)
    assert "'blocks.0.frequencies', 'blocks.1.frequencies', 'blocks.2.frequencies'" in text
    assert "penstock.zero.Init(empty=True)" in text
    with penstock.zero.Init(empty=True):
        model = stack(block=Rotary)
    assert all(each.is_meta for each in model.parameters()) and not any(each.is_meta for each in model.buffers())
    engine = opened(model, directory)
    with torch.no_grad():
        assert torch.equal(engine.eval()(small.ids()), given.eval()(small.ids()))


class Initialized(small.Stack):
    """As a model of transformers, it can make its buffers a second time: all, a part, or none."""

    config, written = None, small.WIDTH

    def _init_weights(self, module):
        if isinstance(module, Rotary):
            module.frequencies[:self.written] = torch.arange(self.written) / 7


def test_a_buffer_that_is_made_again_is_found_whole_or_refused(tmp_path):
    given = stack(block=Rotary)
    directory = write_directory(tmp_path, tensors_of(given))

    def model(written: int):
        with torch.device("meta"):
            made = Initialized(block=Rotary)
        made.written = written
        return made
    for written in (0, small.WIDTH - 1):
        assert "'blocks.0.frequencies'" in refusal(model(written), directory, penstock.ModelError)
    whole = model(small.WIDTH)
    opened(whole, directory)
    assert equal(dict(given.named_buffers()), dict(whole.named_buffers()))


def test_a_tensor_on_meta_that_is_neither_parameter_nor_buffer_is_refused_by_name(tmp_path):
    given, model = stack(), stack("meta")
    model.norm.scale = torch.ones(3, device="meta")
    assert "'norm.scale'" in refusal(model, write_directory(tmp_path, tensors_of(given)), penstock.ModelError)


PEAK = """
import penstock
from torch import nn
class Seen:
    def __init__(self, spec, first):
        for unit, each in enumerate(spec.units):
            for index in range(len(each.parameters)):
                assert first(unit, index).float().abs().sum() > 0
        raise SystemExit(0)
with torch.device("meta"):
    model = nn.Sequential(*(nn.Linear(2048, 1024, bias=False) for _ in range(24)))
def load():
    try:
        penstock.initialize(model, core=Seen, weights=sys.argv[1])
    except SystemExit:
        pass
load()
peak_of(load)
"""


def test_about_one_parameter_is_in_memory_at_a_time(tmp_path):
    one = 4 * 2048 * 1024
    write_directory(tmp_path, {f"{at}.weight": torch.ones(1024, 2048) for at in range(24)}, 3)
    assert peak_bytes(PEAK, str(tmp_path)) < 4 * one


NAMED = {each.name: each for each in FAMILIES}


@pytest.mark.parametrize("name", [name for name in NAMED if name != "Marian"])
def test_a_model_of_transformers_on_meta_is_what_from_pretrained_gives(tmp_path, name):
    """Names, ties, fused experts, buffers in the file and buffers that are made again."""
    transformers = pytest.importorskip("transformers", "5.0")
    transformers.utils.logging.disable_progress_bar()
    family = NAMED[name]
    made = family.make(0.0)
    made.save_pretrained(tmp_path, max_shard_size="40KB")
    plain = type(made).from_pretrained(tmp_path)
    with torch.device("meta"):
        model = type(made)._from_config(made.config)  # as AutoModel.from_config() does
    state = torch.get_rng_state()
    engine = opened(model, tmp_path)
    assert torch.equal(state, torch.get_rng_state())
    assert equal(plain.state_dict(), engine.state_dict())
    assert equal(dict(plain.named_buffers()), dict(model.named_buffers()))
    if name == "RWKV":  # changes its weights in eval(), in place
        return
    batch = next(batches(family, 1))
    with torch.no_grad():
        assert torch.equal(plain.eval()(**batch).loss, engine.eval()(**batch).loss)


def test_a_part_of_a_model_of_transformers_has_its_own_names(tmp_path):
    given = NAMED["Llama"].make(0.0).model.layers[0]
    directory = write_directory(tmp_path, tensors_of(given))
    model = NAMED["Llama"].make(0.1).model.layers[0].to("meta")
    assert equal(given.state_dict(), opened(model, directory).state_dict())


def test_what_a_model_of_transformers_says_it_makes_itself_may_be_missing_where_it_is_there(tmp_path):
    pytest.importorskip("transformers", "5.0")
    made = NAMED["Marian"].make(0.0)
    made.save_pretrained(tmp_path)
    with torch.device("meta"):
        model = type(made)(made.config)
    text = refusal(model, tmp_path)
    assert "'model.encoder.embed_positions.weight'" in text and "penstock.zero.Init()" in text
    with penstock.zero.Init():
        model = type(made)(made.config)
    assert equal(made.state_dict(), opened(model, tmp_path).state_dict())


def test_a_linear_layer_of_many_names_is_named_by_the_first_fifty(tmp_path):
    model = nn.Sequential(*(nn.Linear(2, 2, device="meta") for _ in range(40)))
    text = refusal(model, write_directory(tmp_path, {"only": torch.zeros(1)}))
    assert "'24.bias' and 30 more" in text and len(text) < 2000
