"""A model with nothing to train is opened for forwards alone."""
from __future__ import annotations

import copy
import gc
import os
import sys
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

import forked
import penstock
import small_models as small
from compare import adamw, seed
from cores import ACTIVATIONS, NATIVE, test_core

STEPS = 4
KEPT = penstock.Settings(activations=ACTIVATIONS)
native = pytest.mark.skipif(not NATIVE, reason="of the core on NVMe")


def frozen(make=small.Stack):
    seed()
    return make().requires_grad_(False).eval()


def opened(model, **where):
    return penstock.initialize(model, settings=KEPT, **(where or {"core": test_core(window_bytes=1 << 14)}))[0]


MODELS = [small.Stack, small.Twice, small.Functional, small.Direct, lambda: small.Stack(tied=True),
          lambda: small.Stack(block=small.Normed), lambda: small.Stack(block=small.Experts), small.NestedStack]


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_its_forwards_are_those_of_plain_torch(make, mode):
    plain, engine = frozen(make), opened(frozen(make))
    for number in range(3):
        with mode():
            assert torch.equal(plain(small.ids(number)), engine(small.ids(number)))


def test_there_is_no_optimizer_and_a_step_says_why():
    penstock.initialize(small.Stack(), core=test_core())  # torch wraps an optimizer's step() when it is made
    engine, optimizer, loader, scheduler = penstock.initialize(frozen(), core=test_core(), training_data=[1, 2])
    assert optimizer is None and scheduler is None and len(loader) == 2
    assert engine.global_steps == 0 and engine.get_lr() == []
    for call in (engine.step, engine.optimizer.step, lambda: engine.save_checkpoint("nowhere"),
                 lambda: engine.load_checkpoint("nowhere")):
        with pytest.raises(penstock.UsageError, match=r"nothing of this model is trainable.*trainable=\[\.\.\.\]"):
            call()
    assert not Path("nowhere").exists()


def test_an_optimizer_for_nothing_is_refused():
    model = frozen()
    with pytest.raises(penstock.OptimizerError, match="Leave the optimizer and the scheduler out"):
        penstock.initialize(model, adamw(model.parameters()), core=test_core())
    with pytest.raises(penstock.OptimizerError, match="Leave the optimizer"):
        penstock.initialize(model, lr_scheduler=lambda optimizer: None, core=test_core())


def test_a_configuration_of_the_students_is_the_teachers_too():
    engine = penstock.initialize(frozen(), core=test_core(), config={
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 3, "warmup_max_lr": 1e-3}}})[0]
    assert engine.lr_scheduler is None


def test_its_weights_may_be_read_and_not_changed():
    plain, engine = frozen(), opened(frozen())
    state = engine.state_dict()
    assert all(torch.equal(each, state[name]) for name, each in plain.state_dict().items())
    assert torch.equal(engine.weight("head.weight"), plain.head.weight)
    engine.load_state_dict(plain.state_dict())  # the same
    with pytest.raises(penstock.UsageError, match="only read"):
        engine.set_weight("head.weight", torch.zeros(11, small.WIDTH))
    engine.module.head.weight.requires_grad_()
    with pytest.raises(penstock.ModelError, match=r"'head.weight' require a gradient now.*trainable=\['head.weight'\]"):
        engine(small.ids())


# Gradients that go through it.
def prompts(model):
    """Soft prompts are trained by an optimizer of torch's, in front of a frozen model."""
    torch.manual_seed(5)
    prompt = nn.Parameter(torch.randn(1, 2, small.WIDTH))
    optimizer, losses = adamw([prompt]), []
    for number in range(STEPS):
        inputs = torch.cat([prompt.expand(2, -1, -1), model.embedding(small.ids(number))], 1)
        loss = small.mean(model.head(model.norm(model.run(inputs))))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def saliency(model):
    """The gradient of an output by what goes in."""
    found = []
    for number in range(STEPS):
        x = torch.randn(2, small.WIDTH, generator=torch.Generator().manual_seed(number), requires_grad=True)
        y = x
        for block in model.blocks:
            y = block(y)
        found += torch.autograd.grad(y.sum(), x)[0].flatten().tolist()
    return found


@pytest.mark.parametrize("program", [prompts, saliency], ids=lambda each: each.__name__)
@pytest.mark.parametrize("activations", ["recompute", "keep"])
def test_gradients_go_through_it(program, activations):
    engine = penstock.initialize(frozen(), core=test_core(window_bytes=1 << 14),
                                 settings=penstock.Settings(activations=activations))[0]
    assert program(frozen()) == program(engine.module)


def distilled(student, teacher, step):
    losses = []
    for number in range(STEPS):
        ids = small.ids(number)
        with torch.no_grad():
            wanted = torch.log_softmax(teacher(ids), -1)
        losses.append(step(functional.kl_div(torch.log_softmax(student(ids), -1), wanted, reduction="batchmean",
                                          log_target=True)))
    return losses


def judged(student, judge, step):
    """A frozen judge of what the student makes: gradients go through it."""
    losses = []
    for number in range(STEPS):
        soft = torch.softmax(student(small.ids(number)), -1) @ torch.linspace(-1, 1, 11 * small.WIDTH).view(11, -1)
        losses.append(step(judge.head(judge.norm(judge.run(soft))).pow(2).mean()))
    return losses


def preferred(policy, reference, step):
    """DPO: two forwards of each."""
    losses = []
    for number in range(STEPS):
        def margin(model):
            better, worse = (torch.log_softmax(model(small.ids(each)), -1)[..., 0].sum() for each in (number, number + 9))
            return better - worse
        with torch.no_grad():
            base = margin(reference)
        losses.append(step(-functional.logsigmoid(0.1 * (margin(policy) - base))))
    return losses


@pytest.mark.parametrize("program", [distilled, judged, preferred], ids=lambda each: each.__name__)
def test_a_student_is_trained_beside_it(program):
    def run(managed):
        teacher = frozen()
        torch.manual_seed(8)
        student = small.Stack()
        optimizer = adamw(student.parameters())
        if managed:
            opened(teacher, core=test_core(window_bytes=1 << 14))
            optimizer = penstock.initialize(student, optimizer, core=test_core(window_bytes=1 << 14), settings=KEPT)[1]

        def step(loss):
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.item()
        return program(student, teacher, step), student.state_dict()
    (expected, plain), (found, managed) = run(False), run(True)
    assert expected == found
    assert all(torch.equal(each, managed[name]) for name, each in plain.items())


# Where its weights lie.
def size_of(folder):
    return sum(each.stat().st_blocks * 512 for each in Path(folder).rglob("*") if each.is_file())


class Wide(small.Stack):
    def __init__(self):
        super().__init__(block=lambda: nn.Linear(small.WIDTH, small.WIDTH))
        self.wide = nn.ModuleList(nn.Linear(1200, 1200) for _ in range(3))


@native
def test_the_drive_holds_its_weights_once(tmp_path):
    model = frozen(Wide)
    count = sum(each.nbytes for each in model.parameters())
    opened(model, store=tmp_path / "store").close()
    assert count < size_of(tmp_path / "store") < 1.15 * count


@native
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_they_are_found_again_and_shared_by_several(tmp_path, dtype):
    plain = frozen().to(dtype)
    engines = [opened(frozen().to(dtype), store=tmp_path / "store") for _ in range(3)]
    for engine in engines:
        assert torch.equal(plain(small.ids()), engine(small.ids()))


@native
def test_other_weights_than_those_that_are_kept_are_refused(tmp_path):
    opened(frozen(), store=tmp_path / "store").close()
    other = frozen()
    other.blocks[1].linear.weight[0, 0] += 1
    with pytest.raises(penstock.ModelError, match="'blocks.1.linear.weight' differs from what is given now.*remove"):
        opened(other, store=tmp_path / "store")
    assert torch.equal(opened(frozen(), store=tmp_path / "store")(small.ids()), frozen()(small.ids()))


@native
def test_nothing_is_trained_in_a_store_of_weights_alone(tmp_path):
    opened(frozen(), store=tmp_path / "store").close()
    model = small.Stack()
    with pytest.raises(penstock.UsageError, match="only read"):
        penstock.initialize(model, adamw(model.parameters()), store=tmp_path / "store")


class Lora(nn.Module):
    """Frozen weights of another type, an adapter, and running statistics."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(small.WIDTH, small.WIDTH).requires_grad_(False).bfloat16()
        self.adapter = nn.Linear(small.WIDTH, small.WIDTH, bias=False)
        self.norm = nn.BatchNorm1d(small.WIDTH)

    def forward(self, x):
        y = self.base(x.bfloat16()).float() + self.adapter(x)
        return x + torch.tanh(self.norm(y.flatten(0, 1)).view_as(y))


RUNS = {"all": small.Stack, "adapters": lambda: small.Stack(block=Lora), "tied": lambda: small.Stack(tied=True),
        "later": lambda: small.Stack()}
OPTIMIZERS = [adamw, lambda parameters: torch.optim.SGD(parameters, lr=0.1, foreach=False),
              lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=False)]


def trained(make, path, optimizer=adamw, steps=3, **options):
    seed()
    model = make()
    if make is RUNS["later"]:
        model.embedding.requires_grad_(False)
        options["trainable"] = ["embedding.*"]
    engine = penstock.initialize(model, optimizer(model.parameters()), settings=KEPT, store=path, **options)[0]
    for number in range(steps):
        engine.backward(small.loss(engine, small.ids(number)))
        engine.step()
    return engine


def other(make):
    """Of the same shapes, with other values."""
    torch.manual_seed(77)
    return make().requires_grad_(False).eval()


@native
@pytest.mark.parametrize("make", RUNS.values(), ids=RUNS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=["adamw", "sgd", "momentum"])
def test_a_run_is_evaluated_where_it_lies_by_several_at_once(tmp_path, make, optimizer, caplog):
    engine = trained(make, tmp_path / "run", optimizer)
    engine.module.eval()
    with torch.no_grad():
        expected = engine(small.ids())
    state = engine.state_dict()
    engine.close()
    before = {each.name: each.stat().st_mtime_ns for each in (tmp_path / "run").iterdir()}
    with caplog.at_level("INFO", "penstock"):
        readers = [opened(other(make), store=tmp_path / "run") for _ in range(2)]
    assert "forwards alone, over the run in" in caplog.text and "of step 3" in caplog.text
    for reader in readers:
        assert reader.global_steps == 3 and all(each.grad is None for each in reader.module.parameters())
        with torch.no_grad():
            assert torch.equal(reader(small.ids()), expected)
        found = reader.state_dict()
        assert all(torch.equal(each, found[name]) for name, each in state.items())
    with pytest.raises(penstock.StorageError, match="in use"):
        trained(make, tmp_path / "run", optimizer)
    for reader in readers:
        reader.close()
    assert {each.name: each.stat().st_mtime_ns for each in (tmp_path / "run").iterdir()} == before
    assert trained(make, tmp_path / "run", optimizer, steps=1).global_steps == 4


@native
@pytest.mark.parametrize("options", [{"codec": "compact"}, {"tile_elements": 4096}, {"update_order": "deferred"},
                                     {"commit_steps": 2}, {"states": "cpu", "weights": "cpu"}])
def test_so_it_is_however_it_was_trained(tmp_path, options):
    def make():
        return small.Stack().bfloat16()
    engine = trained(make, penstock.Store(tmp_path / "run", **options))
    state = engine.state_dict()
    engine.close()
    found = opened(other(make), store=tmp_path / "run").state_dict()
    assert all(torch.equal(each, found[name]) for name, each in state.items())


@native
def test_a_run_that_is_under_way_is_evaluated_by_its_snapshots(tmp_path):
    engine = trained(small.Stack, tmp_path / "run")
    with pytest.raises(penstock.StorageError, match="the store is in use by a run that is under way.*save_checkpoint"):
        opened(frozen(), store=tmp_path / "run")
    engine.save_checkpoint(tmp_path / "checkpoints", "one")
    expected = copy.deepcopy(engine.state_dict())
    readers = [opened(frozen(), store=tmp_path / "checkpoints" / "one" / "store") for _ in range(2)]
    engine.backward(small.loss(engine, small.ids(9)))
    engine.step()
    for reader in readers:
        found = reader.state_dict()
        assert all(torch.equal(each, found[name]) for name, each in expected.items())


@native
def test_a_run_before_its_first_step_is_evaluated_too(tmp_path):
    trained(small.Stack, tmp_path / "run", steps=0).close()
    assert torch.equal(opened(other(small.Stack), store=tmp_path / "run")(small.ids()), frozen()(small.ids()))


@native
def test_another_model_than_the_runs_is_refused(tmp_path):
    trained(small.Stack, tmp_path / "run").close()
    with pytest.raises(penstock.ModelError, match="the store is of a model of 16 parameters, and this one has 12"):
        opened(other(lambda: small.Stack(blocks=2)), store=tmp_path / "run")
    with pytest.raises(penstock.UsageError, match="open it with the units, types and codec that it was made with"):
        opened(other(lambda: small.Stack(tied=False)), store=tmp_path / "run", units=["Linear"])


@native
def test_a_process_that_is_killed_while_it_fills_the_store_leaves_nothing_in_the_way(tmp_path):
    code = ("import os, sys, torch, penstock\n"
            "from torch import nn\n"
            "model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(8)]).requires_grad_(False)\n"
            "import penstock.opening as own\n"
            "first, asked = own.first_value, []\n"
            "own.first_value = lambda each: (asked.append(1), os._exit(9) if len(asked) > 5 else None, first(each))[2]\n"
            "penstock.initialize(model, store=sys.argv[1], units=['Linear'])\n")
    done = forked.run([sys.executable, "-c", code, tmp_path / "store"],
                      env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, text=True)
    assert done.returncode == 9, done.stderr
    plain = frozen()
    assert torch.equal(opened(frozen(), store=tmp_path / "store")(small.ids()), plain(small.ids()))


# Over a directory of Hugging Face's.
def llama(folder, tie=False, dtype="float32"):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    config = transformers.LlamaConfig(vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=3,
                                      num_attention_heads=2, num_key_value_heads=2, tie_word_embeddings=tie)
    model = transformers.LlamaForCausalLM(config).to(getattr(torch, dtype)).eval()
    model.save_pretrained(folder)
    with torch.device("meta"):
        return model, transformers.LlamaForCausalLM(config).to(getattr(torch, dtype)).requires_grad_(False).eval()


@pytest.mark.parametrize("tie", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_are_read_where_they_are(tmp_path, tie, dtype):
    plain, model = llama(tmp_path, tie, dtype)
    before = {each: each.stat().st_mtime_ns for each in tmp_path.iterdir()}
    engine = opened(model, weights=tmp_path)
    ids = torch.arange(12).view(2, 6)
    with torch.no_grad():
        for _ in range(2):
            assert torch.equal(engine(input_ids=ids).logits, plain(input_ids=ids).logits)
    assert torch.equal(engine.module.generate(ids, max_new_tokens=4, do_sample=False),
                       plain.generate(ids, max_new_tokens=4, do_sample=False))
    assert {each: each.stat().st_mtime_ns for each in tmp_path.iterdir()} == before
    state = engine.state_dict()
    assert all(torch.equal(each, state[name]) for name, each in plain.state_dict().items())
    with pytest.raises(penstock.UsageError, match="only read"):
        engine.set_weight("lm_head.weight" if not tie else "model.embed_tokens.weight", torch.zeros(32, 16))


def test_memory_has_a_few_units_of_a_directory_at_a_time(tmp_path):
    _, model = llama(tmp_path)
    engine = opened(model, weights=tmp_path)
    with torch.no_grad():
        for _ in range(3):
            engine(input_ids=torch.arange(6).view(1, 6))
    layer = sum(each.nbytes for each in engine.module.model.layers[0].parameters())
    assert engine.core._buffers.allocated_bytes < 4 * layer + 3 * 32 * 16 * 4
    assert engine.core.read_bytes >= 3 * 3 * layer


def test_gradients_go_through_what_is_read_where_it_is(tmp_path):
    plain, model = llama(tmp_path)
    engine = opened(model, weights=tmp_path)
    found = []
    for each in (plain.requires_grad_(False), engine.module):
        x = torch.randn(1, 4, 16, generator=torch.Generator().manual_seed(1), requires_grad=True)
        each(inputs_embeds=x).logits.pow(2).sum().backward()
        found.append(x.grad)
    assert torch.equal(*found)


def test_what_the_directory_lacks_is_the_models_own(tmp_path):
    plain, _ = llama(tmp_path)
    torch.manual_seed(4)
    model = type(plain)(plain.config).requires_grad_(False).eval()
    model._keys_to_ignore_on_load_missing = ["scale"]
    model.model.layers[0].scale = nn.Parameter(torch.full((3,), 2.0), requires_grad=False)
    engine = opened(model, weights=tmp_path)
    engine(input_ids=torch.arange(6).view(1, 6))
    assert engine.weight("model.layers.0.scale").tolist() == [2.0] * 3


def test_a_file_that_is_cut_while_it_is_read_is_an_error_and_the_next_forward_is_right(tmp_path):
    plain, model = llama(tmp_path)
    engine = opened(model, weights=tmp_path)
    file = tmp_path / "model.safetensors"
    content, ids = file.read_bytes(), torch.arange(6).view(1, 6)
    with torch.no_grad():
        engine(input_ids=ids)
        file.write_bytes(content[:len(content) // 2])
        with pytest.raises(penstock.WeightsError, match="has become shorter while it was read"):
            engine(input_ids=ids)
        file.write_bytes(content)
        assert torch.equal(engine(input_ids=ids).logits, plain(input_ids=ids).logits)


def test_an_engine_over_a_directory_goes_when_nobody_has_it(tmp_path):
    _, model = llama(tmp_path)
    engine = opened(model, weights=tmp_path)
    engine(input_ids=torch.arange(6).view(1, 6))
    gone = weakref.ref(engine)
    del engine, model
    gc.collect()
    assert gone() is None


def test_a_child_of_the_process_reads_nothing_and_says_so(tmp_path):
    _, model = llama(tmp_path)
    engine = opened(model, weights=tmp_path)
    child = os.fork()
    if child == 0:
        try:
            engine(input_ids=torch.arange(6).view(1, 6))
        except penstock.UsageError as error:
            os._exit(7 if "this is a child that was forked" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_gradients_go_through_it_after_an_evaluation(tmp_path):
    plain, model = llama(tmp_path)
    engine, ids = opened(model, weights=tmp_path), torch.arange(6).view(1, 6)
    with torch.inference_mode():
        assert torch.equal(engine(input_ids=ids).logits, plain(input_ids=ids).logits)
    core = engine.core
    assert not any(core._buffers._free[at].memory.is_inference() for at in range(len(core._buffers._free)))


def test_without_store_and_directory_both_are_named():
    with pytest.raises(penstock.UsageError, match="opened for forwards alone: name a directory on NVMe.*weights="):
        penstock.initialize(frozen())


@native
def test_a_directory_fills_a_store_of_its_own(tmp_path):
    plain, model = llama(tmp_path / "hf", dtype="bfloat16")
    ids = torch.arange(6).view(1, 6)
    opened(model, weights=tmp_path / "hf", store=tmp_path / "store").close()
    _, again = llama(tmp_path / "hf", dtype="bfloat16")
    with torch.no_grad():
        assert torch.equal(opened(again, weights=tmp_path / "hf", store=tmp_path / "store")(input_ids=ids).logits,
                           plain(input_ids=ids).logits)


@native
def test_it_is_planned_as_it_is_opened(tmp_path):
    plan = penstock.plan(frozen(Wide), store=tmp_path / "store")
    assert plan.trainable_parameters == 0 and plan.write_bytes == 0 and "a forward    reads" in str(plan)
    assert not (tmp_path / "store").exists()
    core = opened(frozen(Wide), store=tmp_path / "store").core
    info = core.info()
    assert (info.pool_bytes, info.planned_bytes) == (plan.pool_bytes, plan.planned_bytes)
    assert set(plan.uses) == {"weights"}
    files = sum(each.stat().st_size for each in (tmp_path / "store").iterdir())
    assert 0 <= files - plan.store_bytes <= 4096


@native
def test_what_becomes_trainable_is_planned_with_its_states(tmp_path):
    def model():
        return frozen().train()
    assert penstock.plan(model(), trainable=["head.*"]).trainable_parameters == 11 * small.WIDTH
