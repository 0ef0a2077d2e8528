"""A released parameter: what asks for no values reads none, and it says what it is."""
from __future__ import annotations

import pytest
import torch
from torch import nn

import penstock
import small_models as small
from compare import adamw
from cores import WITHIN_BACKWARD
from cores import test_core as core_of
from penstock.weights.lent import forbids
from penstock.weights.nothing import Nothing
from penstock.weights.parameter import Released
from twice import managed

pytestmark = pytest.mark.skipif(WITHIN_BACKWARD, reason="between a backward and its step nothing may be read")


LIKES = [torch.zeros_like, torch.ones_like, torch.empty_like, torch.rand_like, torch.randn_like,
         lambda w: torch.full_like(w, 3.0), lambda w: torch.randint_like(w, 3), lambda w: w.new_zeros(3),
         lambda w: w.new_empty((2, 3)), lambda w: w.new_ones(2), lambda w: w.new_full((2,), 1.5),
         lambda w: w.new_tensor([1, 2]), lambda w: w.to("meta"), lambda w: w.to(device="meta"),
         lambda w: w.to(torch.device("meta"), torch.bfloat16), lambda w: torch.zeros(w.numel()).view_as(w),
         lambda w: torch.zeros(3).type_as(w), lambda w: torch.zeros(()).expand_as(w)]


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("like", LIKES)
def test_what_asks_for_no_values_reads_none(like, within):
    engine = managed()
    weight, plain = engine.module.head.weight, torch.nn.Parameter(torch.zeros(11, small.WIDTH))
    value = small.loss(engine, small.ids()) if within else None
    engine.core.read = engine.core.visit = None  # neither is called
    made, expected = like(weight), like(plain)
    assert type(made) is type(expected) and made.shape == expected.shape and made.dtype == expected.dtype
    assert made.device == expected.device and made.stride() == expected.stride()
    assert made.requires_grad == expected.requires_grad and isinstance(weight, Released)
    assert value is None or value.requires_grad


@pytest.mark.parametrize("within", [False, True])
def test_a_released_parameter_says_what_it_is(within):
    engine = managed()
    weight = engine.module.head.weight
    value = small.loss(engine, small.ids()) if within else None
    for text in (repr(weight), str(weight), f"{weight}", "%s" % weight):
        assert "'head.weight'" in text and "(11, 8)" in text and "in the store" in text
    assert isinstance(weight, Released) and (value is None or value.requires_grad)
    if not within:
        with torch.no_grad():
            assert "tensor" in repr(weight.data)


def test_the_values_of_another_parameter_are_read():
    engine = managed()
    made = engine.module.head.weight.new_tensor(engine.module.norm.weight.detach())
    assert torch.equal(made, engine.weight("norm.weight"))
    with torch.no_grad():
        assert torch.equal(torch.zeros(()).add(engine.module.norm.weight), engine.weight("norm.weight"))


AT = torch.arange(small.WIDTH).repeat(2, 1)
AROUND = {
    "tensor": torch.tensor, "Tensor": lambda bias: torch.Tensor(bias).sum(), "of another": torch.zeros(2).new_tensor,
    "sparse": lambda bias: torch.sparse_coo_tensor(AT, bias, (small.WIDTH, small.WIDTH)).to_dense(),
    "compressed": lambda bias: torch.sparse_csr_tensor(torch.arange(small.WIDTH + 1), AT[0], bias).to_dense(),
    "nested": lambda bias: torch.nested.nested_tensor([bias]),
}


@pytest.mark.skipif(forbids is None, reason="torch cannot say so")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("around", AROUND)
def test_what_goes_around_its_class_is_an_error_that_names_it(around, within):
    engine = managed()
    kept = small.loss(engine, small.ids()) if within else None
    with pytest.raises(RuntimeError, match="penstock: parameter 'norm.bias' is read while its values are in the store"):
        AROUND[around](engine.module.norm.bias)
    with torch.no_grad():
        AROUND[around](engine.module.norm.bias.detach().clone())
    assert kept is None or kept.requires_grad


@pytest.mark.skipif(forbids is None, reason="torch cannot say so")
def test_a_backward_through_what_is_older_than_the_engine_is_an_error_that_names_it():
    model = small.Stack()
    weight = model.head.weight
    normed = torch._weight_norm(weight, weight.detach().norm(dim=1, keepdim=True), 0)  # whose backward asks how weights lie
    engine = penstock.initialize(model, adamw(model.parameters()), core=core_of())[0]
    with pytest.raises(RuntimeError, match="penstock: parameter 'head.weight' is read while its values .* a graph from before"):
        normed.sum().backward()
    engine.close()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("largest", [1, 5 << 20])
def test_who_reads_past_that_reads_nan(dtype, largest):
    space = Nothing(largest, torch.device("cpu"))._space
    if space is not None:
        assert torch.frombuffer(space, dtype=dtype).isnan().all() and len(space) >= largest


def test_a_parameter_may_have_no_elements():
    made = Nothing(0, torch.device("cpu")).like(nn.Parameter(torch.empty(0, 4)), "none")
    assert made.shape == (0, 4) and made.is_contiguous()


def test_parameters_do_not_seem_to_share_memory():
    parameters = list(managed().module.parameters())
    assert len({each.data_ptr() for each in parameters}) == len(parameters)
    assert parameters[0].data_ptr() == parameters[0].data_ptr()
