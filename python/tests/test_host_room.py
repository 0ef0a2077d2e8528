"""What a host budget leaves keeps weights and states in memory, where that is wanted: the same bits, fewer reads."""
from __future__ import annotations

import pytest
import torch

import penstock
import small_models as small
from compare import adamw, masters_after, weights_equal
from cores import NATIVE, OPTIONS, WAYS

pytestmark = pytest.mark.skipif(not NATIVE, reason="of the core on NVMe")
BATCHES = [small.ids(i) for i in range(5)]


def planned(path, **store):
    model = small.Stack()
    return penstock.plan(model, optimizer=adamw(model.parameters()), store=penstock.Store(path, **OPTIONS, **store))


def trained(path, batches=BATCHES, clip=0.0, **store):
    torch.manual_seed(0)
    model = small.Stack()
    engine = penstock.initialize(model, adamw(model.parameters()),
                                 store=penstock.Store(path, **{**OPTIONS, **store}),
                                 settings=penstock.Settings(clip=clip))[0]
    masters, info = masters_after(engine, batches, small.loss), engine.core.info()
    engine.close()
    return masters, info


@pytest.mark.parametrize("order", ["after_backward", "deferred", "within"])
def test_bits_are_those_of_nvme_and_every_opening_may_choose_anew(tmp_path, order):
    least = planned(tmp_path).pool_bytes
    wanted, streamed = trained(tmp_path / "nvme", **WAYS[order])
    for some in (16 << 10, 64 << 10, 1 << 20):
        filled = {**WAYS[order], "host_budget_bytes": least + some, "fill_host_budget": True}
        masters, info = trained(tmp_path / str(some), **filled)
        assert info.planned_bytes < streamed.planned_bytes
        assert weights_equal(masters.items(), wanted.items())
        masters, _ = trained(tmp_path / str(some), [], **WAYS[order])  # all of it was committed
        assert weights_equal(masters.items(), wanted.items())


def test_a_plan_reads_less(tmp_path):
    bare = planned(tmp_path)
    filled = planned(tmp_path, host_budget_bytes=bare.pool_bytes + (1 << 20), fill_host_budget=True)
    assert filled.read_bytes == 0 < bare.read_bytes
    assert filled.uses["resident states"] > 0
    assert filled.write_bytes + filled.resident_write_bytes == bare.write_bytes


def test_a_forecast_tries_it(tmp_path):
    model = small.Stack()
    store = penstock.Store(tmp_path, **OPTIONS, host_budget_bytes=planned(tmp_path).pool_bytes + (1 << 20))
    if OPTIONS.get("device"):
        pytest.skip("times of a device with memory of its own are not forecast")
    told = penstock.plan(model, optimizer=adamw(model.parameters()), store=store, batch=BATCHES[0],
                         loss=lambda output: output.pow(2).mean(), seconds=0.01)
    assert {"fill_host_budget": True} in [dict(way.store) for way in told.forecast.others]


def test_there_must_be_a_budget_and_none_that_may_be_updated_again(tmp_path):
    with pytest.raises(penstock.UsageError, match="fill_host_budget without a host_budget_bytes"):
        planned(tmp_path, fill_host_budget=True)
    if OPTIONS["update_order"] == "after_backward":
        with pytest.raises(penstock.UsageError, match="fill_host_budget"):
            trained(tmp_path, host_budget_bytes=1 << 30, fill_host_budget=True, update_order="within", clip=1.0)


def test_a_configuration_may_ask_for_it(tmp_path):
    model = small.Stack()
    engine = penstock.initialize(model, adamw(model.parameters()), store=tmp_path / "store", config={
        "memory": {"host_budget": "64MiB", "fill_host_budget": True}})[0]
    assert engine.core._store.fill_host_budget
    assert "resident weights" in engine.core.memory_table()
    engine.close()
