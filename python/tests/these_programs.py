"""Programs of programs/ that are named: one of each kind, shrunk, for test_programs.py and its mutants."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

from programs.program import Program, UnitPlan


def of(*parts: str, gives: str = "alone", call: str = "called", units: int = 2, **others: Any) -> Program:
    """Units that are alike, but for a plain one at the end."""
    unit = UnitPlan(parts or ("linear",), gives, call)
    every = (*[unit] * (units - 1), UnitPlan())
    return replace(Program(1, units=every, route=tuple(range(units))), **others)


PARTS = {
    "a number in an attribute": of("counter"), "a list": of("collections/14"), "a dict of dicts": of("collections/5"),
    "a tuple": of("collections/19"), "a list of tensors": of("collections/0"),
    "a set and a deque": of("collections/7", "collections/9"),
    "a memory": of("memory/0"), "a memory with its graph": of("memory_with_graph", backward="two_forwards/1"),
    "a buffer in place": of("buffer_in_place/1"), "a buffer rebound": of("buffer_rebound"),
    "a tensor attribute": of("tensor_attribute"), "batch norm": of("batch_norm/2", backward="two_forwards/2"),
    "a growing buffer": of("growing_buffer/1", route=(0, 0, 1)), "made at the first call": of("made_at_the_first_call"),
    "an iterator": of("iterator/1"), "state in a closure": of("state_in_closure"),
    "an object's state": of("state_in_object/0", "state_in_object/1"),
    "an adapter that is switched": of("adapter", backward="two_forwards/1"),
    "a task that is switched in place": of("task", backward="two_forwards_two_backwards/1"),
    "the caller's list": of("fills_callers_list", takes="filled/2"),
    "dropout": of("dropout/1"), "global generators": of("global_noise/0", "global_noise/2", "global_noise/7"),
    "a generator of its own": of("own_generator/0", "own_generator/1", "own_generator/3", "own_generator/4"),
    "generators that are given": of("linear", takes="generators/1"),
    "an input that is changed": of("changes_its_input/0"),
    "rows of an input that are changed": of("changes_its_input/5"),
    "a weight on ctx": of("custom_function/0"), "weights that are saved": of("custom_function/1"),
    "old norms": of("old_norm/0", "old_norm/1", "old_norm/2", route=(0, 0, 1)),
    "parametrized": of("parametrized/0", "parametrized/1", "parametrized/2"),
    "torch.func": of("function_transforms"), "functional call within": of("functional_call"),
    "a weight that is kept": of("keeps_weight/0", "keeps_weight/1"), "a detached weight that is kept": of(
        "keeps_detached_weight"),
    "a view in a hook": of("view_in_hook"), "views for a while": of("views_meanwhile"),
    "saved hooks within": of("saved_hooks_within/0", "saved_hooks_within/1", "saved_hooks_within/5"),
    "autocast within": of("autocast_within"),
    "a checkpoint within": of("checkpoint_within/1", "reentrant_within/1"),
    "hooks on activations": of("hooks_its_activation/0", "reads_in_backward/1", "calls_in_backward/0"),
}
CROSSINGS = {
    "one carrier": of(takes="carried/2"), "a carrier called twice": of(takes="carried/0", route=(0, 0, 1)),
    "a dataclass": of(takes="one_object/7"), "containers come out": of(gives="containers/2"),
    "state behind a namespace": of("state_in_closure", gives="containers/3"),
    "state behind a dataclass": of("state_in_closure", gives="containers/2"),
    "state behind a user dict": of("state_in_closure", gives="containers/9"),
    "weights come out": of(gives="weights/5"), "views of weights come out": of(gives="weights/0"),
    "functional call": of(call="functional"),
    "functional call with a bias": of(call="functional_with_bias"), "its forward": of(call="its_forward"),
    "within saved hooks": of("dropout/1", call="within_saved_hooks/1"), "within autocast": of(call="within_autocast"),
    "twice in two modes": of("batch_norm/2", call="in_evaluation"), "switched between calls": of(
        "adapter", call="two_inputs"),
    "changed afterwards": of(call="changed_after"), "a checkpoint around": of("dropout/1", call="checkpointed"),
    "a reentrant checkpoint around": of("dropout/1", call="reentrant"),
    "another's weight": of(call="with_anothers_weight"),
}
SCRIPTS = {
    "a statistic in the loss": of("linear", "linear", outside=("statistic_in_loss/5",)),
    "steering": of("linear", "linear", outside=("output_changed/4",)),
    "a hook for one forward": of("linear", "linear", outside=("for_one_forward/5",)), "a running statistic": of(
        "linear", "linear", outside=("running_statistic/5",)),
    "full backward hooks": of(outside=("full_backward/1", "activation_hook/1")),
    "an output that a hook keeps": of("linear", "linear", outside=("hook_keeps_output/0",)),
    "weights in a hook": of(outside=("weights_logged_in_hook/1", "weights_logged_in_hook/2")),
    "a penalty over all": of(units=4, outside=("penalty_on_weights/1",)),
    "all weights in one": of(units=4, outside=("penalty_on_weights/4",)), "anchored": of(outside=("anchored/1",)),
    "inference mode first": of(outside=("evaluation/0",)), "an evaluation within": of(outside=("evaluation_within/0",)),
    "eval before backward": of("dropout/1", outside=("eval_before_backward/1",)),
    "switched off and on": of(outside=("toggled/1",), optimizer="adamw", steps=5),
    "a patched forward": of(outside=("patched_forward/7",)), "a patched part": of(outside=("patched_forward/0",)),
    "a cached loss": of(backward="cached", units=4), "a forward in a hook": of(backward="forward_in_hook/1"),
    "two losses": of("dropout/1", backward="two_losses"), "backward twice": of(backward="backward_twice"),
    "errors that are caught": of("raises", outside=("caught_errors",)), "parts are units": of("counter", cut="parts"),
    "a thread": of("dropout/1", backward="in_thread"), "data that is assigned": of(outside=("data_assigned/1",)),
    "torch.func in a forward that is called directly": of("function_transforms", call="its_forward"),
    "a weight is read in a backward to weights": of("reads_in_backward/11", backward="gradient_of_some/12"),
    "reentrant, called twice": of("linear", call="reentrant_with_shared/10", route=(0, 0, 1), order="within"),
    "gradients that are kept": of(outside=("gradients_kept/1",)), "shapes alone": of(outside=("likes/1",)),
}
THESE = {**PARTS, **CROSSINGS, **SCRIPTS}
REFUSED = {"a detached weight that is kept", "a view in a hook"}  # the README says so
# State that nobody can put back: where a forward runs again, this is noticed.
REFUSED_WHERE_FORWARDS_RUN_AGAIN = {
    "an iterator", "state in a closure", "state behind a namespace", "state behind a dataclass",
    "state behind a user dict", "an output that a hook keeps", "a running statistic", "a dict of dicts",
    "functional call with a bias"}
