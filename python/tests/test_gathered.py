"""engine.gathered(): what is read and changed within it."""
from __future__ import annotations

import pytest
import torch
from torch import nn

import penstock
import small_models as small
from cores import WITHIN_BACKWARD
from twice import RESIDENT, managed, released

pytestmark = pytest.mark.skipif(WITHIN_BACKWARD, reason="between a backward and its step nothing may be read")


@pytest.mark.parametrize("write", [
    lambda w: w.data.zero_(), nn.init.zeros_, lambda w: setattr(w, "data", torch.zeros(w.shape)),
    lambda w: w.detach()[0].fill_(0), lambda w: nn.init.normal_(w)])
@RESIDENT
def test_a_change_within_gathered_is_kept_with_modify_and_an_error_without(write, resident):
    engine = managed(resident=resident)
    weight, before = engine.module.head.weight, engine.weight("head.weight")
    with pytest.raises(penstock.ModelError, match=r"'head.weight' were changed within engine.gathered.*modify=True\)"):
        with engine.gathered(weight):
            write(weight)
    assert torch.equal(engine.weight("head.weight"), before)
    with engine.gathered(weight, modify=True):
        write(weight)
        inside = weight.detach().clone()
        assert torch.equal(engine.state_dict()["head.weight"], inside)
    assert torch.equal(engine.weight("head.weight"), inside) and not torch.equal(inside, before)


def test_gathered_gives_back_what_it_lent_where_a_read_fails():
    engine = managed()
    weights = [engine.module.head.weight, engine.module.norm.weight]
    read, places = engine.core.read, engine.binding.places

    def fails(unit, index, what="weight"):
        if (unit, index) == places[weights[1]]:
            raise penstock.StorageError("a tile is damaged")
        return read(unit, index, what)
    engine.core.read = fails
    with pytest.raises(penstock.StorageError, match="damaged"):
        with engine.gathered(weights):
            pass
    with pytest.raises(penstock.StorageError, match="damaged"):
        engine.load_state_dict({name: torch.zeros(each.shape) for name, each in engine.module.named_parameters()})
    engine.visits.end()
    assert released(engine)
    engine.core.read = read
    with engine.gathered(weights):
        pass
    engine(small.ids())


def test_an_exception_within_gathered_comes_out_as_it_is():
    engine = managed()
    weight = engine.module.head.weight
    with pytest.raises(KeyError, match="mine"):
        with engine.gathered([weight, weight]):
            weight.data.zero_()
            raise KeyError("mine")
    assert released(engine) and engine.weight("head.weight").abs().sum() > 0


def test_a_pass_or_another_gathered_within_gathered_is_named():
    engine = managed()
    weight = engine.module.head.weight
    with engine.gathered(weight, modify=True):
        weight.data.zero_()
        with pytest.raises(penstock.UsageError, match="begins within engine.gathered.*'head.weight': leave it first"):
            engine(small.ids())
        with pytest.raises(penstock.UsageError, match="within another engine.gathered"):
            with engine.gathered(weight):
                pass
    assert engine.weight("head.weight").abs().sum() == 0
    engine(small.ids())
