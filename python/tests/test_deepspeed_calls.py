"""Arguments and calls of programs that were written for DeepSpeed."""
from __future__ import annotations

import json
from argparse import Namespace

import pytest
import torch

import penstock
import small_models as small
from fake_core import OpenFakeCore


def open_engine(**options):
    torch.manual_seed(0)
    return penstock.initialize(model=small.Stack(), core=OpenFakeCore(), **options)


def ends(engine):
    return dict(engine.named_weights("master"))


CONFIG = {"gradient_accumulation_steps": 2, "gradient_clipping": 0.0}


def test_the_configuration_comes_by_any_of_its_three_names(tmp_path):
    file = tmp_path / "ds.json"
    file.write_text(json.dumps(CONFIG))
    for given in ({"config": file}, {"config_params": CONFIG}, {"args": Namespace(deepspeed_config=str(file))},
                  {"args": Namespace(deepspeed_config=str(file), local_rank=0), "config": str(file)},
                  {"args": {"deepspeed_config": file}}, {"args": Namespace(deepspeed_config=None), "config": CONFIG}):
        assert open_engine(**given)[0].gradient_accumulation_steps() == 2
    with pytest.raises(penstock.UsageError, match="config and args.deepspeed_config are different"):
        open_engine(config=CONFIG, args=Namespace(deepspeed_config=str(file)))


@pytest.mark.parametrize("given, text", [
    ({"mpu": object()}, r"initialize\(mpu="), ({"mesh_param": (2, 2)}, r"initialize\(mesh_param="),
    ({"dist_init_required": True}, "dist_init_required=True.*no process group is made")])
def test_what_means_something_for_several_processes_alone_is_named(given, text):
    with pytest.raises(penstock.UsageError, match=text):
        open_engine(**given)


def test_what_is_nothing_in_one_process_is_taken():
    open_engine(args=Namespace(local_rank=-1), mpu=None, dist_init_required=False, distributed_port=29500,
                mesh_param=None)


def test_the_place_where_a_model_is_made_takes_deepspeeds_arguments(tmp_path):
    with penstock.zero.Init(tmp_path, config_dict_or_path={"zero_optimization": {"stage": 3}}, remote_device="cpu",
                            pin_memory=True, module=None, dtype=None, enabled=False):
        assert torch.nn.Linear(4, 4).weight.shape == (4, 4)
    for wrong, text in (({"dtype": torch.int64}, "floating point"), ({"module": small.Stack()}, "initialize")):
        with pytest.raises(penstock.UsageError, match=rf"Init\({next(iter(wrong))}=.*{text}"):
            penstock.zero.Init(tmp_path, **wrong)
    with pytest.raises(TypeError, match=r"Init\(direktory=...\): .* did you mean 'directory'"):
        penstock.zero.Init(direktory=tmp_path)
    assert not hasattr(penstock.zero, "GatheredParameters")
    with pytest.raises(penstock.UsageError, match="engine.gathered"):
        penstock.zero.GatheredParameters([])


def test_positional_args_are_named():
    with pytest.raises(penstock.UsageError, match=r"not Namespace; .*initialize\(args=..., model=...\)"):
        penstock.initialize(Namespace(), small.Stack())


@pytest.mark.parametrize("make", [torch.optim.SGD, lambda parameters: torch.optim.SGD(parameters, lr=0.5)])
def test_an_optimizer_may_be_a_function_that_makes_one(make):
    optimizer = open_engine(optimizer=make)[1]
    assert optimizer.param_groups[0]["lr"] == (1e-3 if make is torch.optim.SGD else 0.5)
    model = small.Stack()
    chosen = list(model.parameters())
    engine, optimizer, _, _ = penstock.initialize(model, make, chosen, core=OpenFakeCore())
    assert len(optimizer.param_groups[0]["params"]) == len(chosen)


def test_a_loss_may_be_left_as_it_is():
    """scale_wrt_gas False: the caller has divided it himself."""
    def trained(backward):
        engine = open_engine(config=CONFIG)[0]
        for micro in range(2):
            backward(engine, small.loss(engine, small.ids(micro)))
            engine.step()
        return ends(engine)
    own = trained(lambda engine, loss: engine.backward(loss))
    scaled = trained(lambda engine, loss: engine.backward(loss / 2, scale_wrt_gas=False, allreduce_gradients=False,
                                                          release_loss=True))
    assert all(torch.equal(own[name], scaled[name]) for name in own)


def test_a_scheduler_gets_what_step_is_given():
    told = []

    class Scheduler(torch.optim.lr_scheduler.LambdaLR):
        def step(self, epoch=None, **given):
            told.append(given)
    engine = open_engine(lr_scheduler=lambda optimizer: Scheduler(optimizer, lambda _: 1.0))[0]
    told.clear()
    for lr_kwargs in (None, {"metrics": 3}):
        engine.backward(small.loss(engine, small.ids(0)))
        engine.step(lr_kwargs=lr_kwargs)
    assert told == [{}, {"metrics": 3}]


def test_what_an_engine_of_deepspeeds_answers():
    engine = open_engine(config={"train_batch_size": 6, "train_micro_batch_size_per_gpu": 3, "gradient_clipping": 2})[0]
    assert engine.device == torch.device("cpu") and engine.train_batch_size() == 6 and engine.gradient_clipping() == 2
    assert (engine.local_rank, engine.global_rank, engine.world_size) == (0, 0, 1) and not engine.was_step_applied()
    for micro in range(2):
        with engine.no_sync():
            engine.backward(small.loss(engine, small.ids(micro)))
        engine.allreduce_gradients()
        engine.step()
    assert engine.was_step_applied()


@pytest.mark.parametrize("call, text", [
    ("train_batch", "pipelines.*engine.backward"), ("eval_batch", "no_grad"),
    ("set_train_batch_size", "initialize anew"),
    ("deepspeed_io", "training_data"), ("offload_states", "Store"), ("save_fp16_model", "save_16bit_model")])
def test_a_call_that_there_is_not_is_named(call, text):
    engine = open_engine()[0]
    assert not hasattr(engine, call)
    with pytest.raises(penstock.UsageError, match=rf"engine.{call}\(\): .*{text}"):
        getattr(engine, call)(iter([]))
    with pytest.raises(AttributeError, match="nonsense"):
        engine.nonsense()


def trained_in_steps_of_two(tell_boundary):
    """Two micro-batches a step; as Accelerate does, step() is called behind the second alone where that is told."""
    engine = open_engine(config=CONFIG)[0]
    for micro in range(4):
        last = micro % 2 == 1
        if tell_boundary:
            engine.set_gradient_accumulation_boundary(last)
            assert engine.is_gradient_accumulation_boundary() == last
        engine.backward(small.loss(engine, small.ids(micro)))
        if last or not tell_boundary:
            engine.step()
    return engine


def test_where_a_step_ends_may_be_said_by_the_program():
    counted, told = trained_in_steps_of_two(False), trained_in_steps_of_two(True)
    assert counted.global_steps == told.global_steps == 2
    assert all(torch.equal(each, ends(told)[name]) for name, each in ends(counted).items())


def test_a_step_that_is_no_boundary_updates_nothing_however_many_there_are():
    engine = open_engine(config=CONFIG)[0]
    engine.set_gradient_accumulation_boundary(False)
    for micro in range(5):
        engine.backward(small.loss(engine, small.ids(micro)))
        engine.step()
    assert engine.global_steps == 0
    engine.set_gradient_accumulation_boundary(True)
    engine.step()
    assert engine.global_steps == 1


def test_micro_batches_are_counted_again_from_the_newest_update_on():
    engine = open_engine(config=CONFIG)[0]
    for said, micro, steps in ((True, 0, 1), (None, 1, 1), (None, 2, 2)):
        engine.set_gradient_accumulation_boundary(said)
        engine.backward(small.loss(engine, small.ids(micro)))
        engine.step()
        assert engine.global_steps == steps


def test_a_checkpoint_counts_the_micro_batches_up_to_its_step(tmp_path):
    engine, opener = None, OpenFakeCore(folder=tmp_path / "store")
    for lived in range(2):
        torch.manual_seed(0)
        engine = penstock.initialize(model=small.Stack(), core=opener, config=CONFIG)[0]
        if lived == 0:
            engine.set_gradient_accumulation_boundary(True)
            engine.backward(small.loss(engine, small.ids(0)))
            engine.step()
            engine.set_gradient_accumulation_boundary(None)
            engine.backward(small.loss(engine, small.ids(1)))
            engine.step()  # half of a step
            engine.save_checkpoint(tmp_path / "kept", "one")
        else:
            engine.load_checkpoint(tmp_path / "kept", "one")
            assert engine.micro_steps == 1 and not engine.is_gradient_accumulation_boundary()
        engine.close()
