"""Which modules become units."""
from __future__ import annotations

import pytest
from torch import nn

import small_models as small
from penstock import UsageError, units_of


def names(model, **options):
    return [unit.name for unit in units_of(model, **options)]


def test_items_of_lists_are_units_and_so_is_each_module_beside_them():
    assert names(small.Stack()) == ["embedding", "blocks.0", "blocks.1", "blocks.2", "norm", "head"]


def test_a_list_within_a_unit_makes_no_units():
    assert names(small.Stack(blocks=1, block=small.Experts)) == ["embedding", "blocks.0", "norm", "head"]


def test_a_tied_head_has_no_parameters_of_its_own_and_reads_the_embedding():
    head = units_of(small.Stack(tied=True))[-1]
    assert head.index is None and head.reads == (0,) and not head.own


def test_parameters_beside_units_are_resident():
    first = units_of(small.Direct())[0]
    assert first.resident and first.module is None and [name for name, _ in first.own] == ["bias", "scale"]


def test_a_module_without_lists_is_cut_at_parameters():
    assert names(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))) == ["0", "2"]
    assert names(nn.Linear(2, 2)) == ["model"]


def test_a_shared_module_is_one_unit():
    shared = nn.Linear(2, 2)
    assert names(nn.ModuleDict({"a": shared, "b": nn.Linear(2, 2), "c": shared})) == ["a", "b"]


def test_parametrized_weights_are_read_through_their_module():
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)), nn.Linear(2, 2))
    assert names(model) == ["0", "1"]


def test_chosen_modules_cut_further():
    assert names(small.Stack(blocks=1), chosen=["blocks.0.linear"]) == [
        "embedding", "blocks.0.norm", "blocks.0.linear", "norm", "head"]
    assert names(small.Stack(blocks=1), chosen=["Linear"]) == [
        "embedding", "blocks.0.norm", "blocks.0.linear", "norm", "head"]


def test_a_chosen_module_is_a_unit_with_its_lists():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = small.Stack(), small.Stack()
    assert names(Two(), chosen=["left", "right"]) == ["left", "right"]


def test_resident_patterns_name_units_or_parameters():
    units = units_of(small.Stack(), resident=["blocks.1", "*.linear.bias", "head.weight"])
    assert [unit.name for unit in units if unit.resident] == ["blocks.0:resident", "blocks.1", "blocks.2:resident", "head"]
    beside, unit = units[1], units[2]
    assert [key for key, _ in beside.own] == ["linear.bias"] and beside.module is None
    assert (unit.name, unit.reads) == ("blocks.0", (unit.index, beside.index))
    assert [each.parameter for each in unit.bound] == list(unit.module.parameters())


def test_a_unit_that_is_no_module_is_refused_by_name():
    with pytest.raises(UsageError, match="'layers.0'"):
        units_of(small.Stack(), chosen=["layers.0"])
    with pytest.raises(UsageError, match="neither the name"):
        units_of(small.Stack(), chosen=[nn.Linear])
    with pytest.raises(UsageError, match="'nothing'"):
        units_of(small.Stack(), resident=["nothing"])
    with pytest.raises(UsageError, match="cannot both be units"):
        units_of(small.Stack(), chosen=["blocks.0", "blocks.0.linear"])


def test_a_list_that_computes_is_cut_at_parameters():
    class Computing(nn.ModuleList):
        def forward(self, x):
            for each in self:
                x = each(x)
            return x

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = Computing([nn.Linear(2, 2), nn.Linear(2, 2)])
    assert names(Model()) == ["experts.0", "experts.1"]
