"""deepspeed.zero, and what is read and written of single parameters."""
import os

import deepspeed
import pytest
import torch
from conftest import Model
from deepspeed.utils import (safe_get_full_fp32_param, safe_get_full_grad, safe_get_full_optimizer_state,
                             safe_set_full_fp32_param, safe_set_full_grad, safe_set_full_optimizer_state)
from test_initialize import batch, train

import penstock


@pytest.fixture
def engine(model, configuration):
    return deepspeed.initialize(model=model, config=configuration(
        bf16={"enabled": True}, zero_optimization={"stage": 3, "stage3_param_persistence_threshold": 0}))[0]


def test_a_model_is_made_outside_of_memory(configuration, tmp_path):
    nvme = configuration(zero_optimization={"stage": 3, "offload_param": {"device": "nvme", "nvme_path": str(tmp_path / "a")}})
    torch.manual_seed(0)
    plain = Model(width=256)
    torch.manual_seed(0)
    with deepspeed.zero.Init(config_dict_or_path=nvme), deepspeed.zero.Init(config_dict_or_path=nvme):
        model = Model(width=256)
    assert os.listdir(tmp_path / "a") == []
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), model.parameters()))
    engine, *_ = deepspeed.initialize(model=model, config=nvme)
    with deepspeed.zero.Init(enabled=False):
        assert torch.nn.Linear(300, 300).weight.shape == (300, 300)
    assert torch.distributed.is_initialized() and deepspeed.comm.get_world_size() == 1
    with pytest.raises(penstock.UsageError, match="mpu"):
        deepspeed.zero.Init(config=nvme, mpu=object())
    engine.destroy()


@pytest.mark.parametrize("given, kind", [({"bf16": {"enabled": True}}, torch.bfloat16), ({"fp16": {"enabled": True}}, torch.float16),
                                         ({"bf16": {"enabled": "auto"}}, torch.float32), ({}, torch.float32)])
def test_a_model_is_made_in_the_type_that_it_is_trained_in(configuration, given, kind):
    with deepspeed.zero.Init(config_dict_or_path=configuration(**given)):
        model = Model()
    assert {each.dtype for each in model.parameters()} == {kind}
    with deepspeed.zero.Init(config_dict_or_path=configuration(**given), dtype=torch.float64):
        assert Model().scale.dtype == torch.float64


def test_weights_come_when_they_are_read_and_are_kept_when_a_rank_modifies_them(engine, model, data):
    weight = model.blocks[1].weight
    batch_of = [each.bfloat16() for each in batch(data, 0)]
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        assert weight.float().norm() > 0
        engine(*batch_of)  # a generation within it
    with deepspeed.zero.GatheredParameters([weight, model.scale], modifier_rank=0):
        weight.data.zero_()
        model.scale.data.fill_(2)
    assert weight.abs().sum() == 0 and model.scale.item() == 2
    with deepspeed.zero.GatheredParameters(model, modifier_rank=0):
        torch.nn.init.ones_(weight)
    assert (weight == 1).all()
    other = Model()
    with deepspeed.zero.GatheredParameters(other.parameters(), modifier_rank=0):
        other.scale.data.fill_(3)
    assert other.scale.item() == 3
    with deepspeed.zero.unwrap_model_for_generation(engine) as bare:
        assert bare is model


def test_masters_of_groups_are_read(engine, model):
    for rows in (engine.optimizer.single_partition_of_fp32_groups, engine.optimizer.fp32_partitioned_groups_flat):
        assert [(each.dtype, each.numel()) for each in rows] == [(torch.float32, sum(each.numel() for each in model.parameters()))]
    with pytest.raises(penstock.OptimizerError, match="safe_set_full_fp32_param"):
        rows[0].zero_()


def test_states_of_a_parameter_are_read_and_written(engine, model, data):
    x, y = (each.bfloat16() for each in batch(data, 0))
    weight = model.blocks[0].weight
    for _ in range(2):
        engine.backward(engine(x, y))
        engine.step()
    master = safe_get_full_fp32_param(weight)
    assert master.dtype == torch.float32 and torch.equal(master.bfloat16(), weight)
    assert safe_get_full_optimizer_state(weight, "exp_avg").abs().sum() > 0
    safe_set_full_fp32_param(weight, torch.full((16, 16), 1 + 2 ** -12))
    safe_set_full_optimizer_state(weight, torch.full((16, 16), 0.5), "exp_avg_sq")
    assert (safe_get_full_fp32_param(weight) == 1 + 2 ** -12).all() and (weight == 1).all()
    assert (safe_get_full_optimizer_state(weight, "exp_avg_sq") == 0.5).all()
    with pytest.raises(penstock.UsageError, match="no optimizer state 'nothing'; there are exp_avg, exp_avg_sq"):
        safe_get_full_optimizer_state(weight, "nothing")
    assert safe_get_full_grad(weight) is None
    engine.backward(engine(x, y))
    assert safe_get_full_grad(weight).dtype == torch.float32
    safe_set_full_grad(weight, torch.ones(16, 16))
    assert (safe_get_full_grad(weight) == 1).all()
    assert deepspeed.utils.safe_get_local_fp32_param(weight).shape == (16, 16)


def test_of_what_is_no_engines_there_is_nothing(model):
    assert safe_get_full_fp32_param(model.scale) is None and safe_get_full_grad(model.scale) is None
    with pytest.raises(penstock.UsageError, match="of no engine"):
        safe_set_full_fp32_param(model.scale, torch.ones(1))
    assert not deepspeed.runtime.zero.utils.is_zero_param(model.scale)


def test_a_device_and_a_type_for_what_is_made():
    with deepspeed.OnDevice(dtype=torch.float16, device="meta"):
        made = torch.nn.Linear(4, 4)
    assert made.weight.is_meta and made.weight.dtype == torch.float16 and torch.get_default_dtype() == torch.float32


# (gpus, nodes, offload): bytes of a machine and of a GPU for 3e9 parameters, by DeepSpeed 0.19.8.
ZERO2 = {(1, 1, True): (72e9, 6e9), (1, 1, False): (18e9, 60e9), (4, 1, False): (72e9, 19.5e9), (8, 2, True): (288e9, 6e9),
         (8, 2, False): (144e9, 9.375e9)}
ZERO3 = {(1, 1, True, True, True): (81e9, 4e8), (1, 1, True, False, True): (72e9, 6.4e9), (4, 1, False, False, False): (72e9, 13.9e9),
         (4, 1, False, False, True): (2.4e9, 13.9e9), (8, 2, True, True, False): (144e9, 4e8)}


def test_estimates_are_deepspeeds():
    from penstock.deepspeed import estimates
    for (gpus, nodes, offload), expected in ZERO2.items():
        assert estimates.zero2(int(3e9), gpus, nodes, offload) == expected
    for (gpus, nodes, optimizer, params, made), expected in ZERO3.items():
        assert estimates.zero3(int(3e9), int(1e8), gpus, nodes, optimizer, params, made)[:2] == expected


def test_estimates_are_printed(model, capsys):
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs_all_live
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs_all_cold
    estimate_zero3_model_states_mem_needs_all_live(model, num_gpus_per_node=1, num_nodes=1)
    estimate_zero2_model_states_mem_needs_all_cold(int(1e9))
    printed = capsys.readouterr().out
    assert "penstock.plan" in printed and printed.count("offload_param=cpu") == 2
    assert "22.35 GB" in printed and "1.86 GB" in printed  # 16 x 1.5 bytes a parameter; 2
