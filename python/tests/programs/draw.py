"""A program of a seed."""
from __future__ import annotations

import random
from typing import Any

from cores import WAYS

from .arguments import GIVES, TAKES
from .calls import CALLS
from .named import Named, name_of
from .nouns import NOUNS
from .part import PARTS
from .program import Program, UnitPlan
from .script import BACKWARDS, OUTSIDE
from .world import OPTIMIZERS

WITHIN = [order for order, said in WAYS.items() if said["update_order"] == "within"]


# Features that plain torch refuses to have in one program, or that raise in it.
CHECKPOINTS = {"checkpointed", "checkpointed_with_shared", "model_checkpointed", "checkpoint_within"}
REENTRANT = {"reentrant", "reentrant_with_shared", "model_reentrant", "reentrant_within"}
HOLD_GRAPHS = {"memory_with_graph", "fills_callers_list", "keeps_weight", "filled", "hook_keeps_output"}
SEVERAL_BACKWARDS = {"accumulated", "accumulated_by_hand", "two_forwards_two_backwards", "cached", "thrown_away",
                     "caught_errors", "unused_forward", "two_losses", "backward_twice", "model_in_parts",
                     "forward_in_hook", "distilled", "evaluation_within"}
CLASHES: tuple[tuple[set[str], ...], ...] = (
    ({"aliased"}, {"fast_weights"}),  # torch leaves the others in their place
    ({"function_transforms"}, {*CHECKPOINTS, *REENTRANT, "within_saved_hooks", "saved_hooks_around"}),
    (REENTRANT, {"gradient_of_some", "gradients_by_hand", "backward_to_some", "gradient_penalty", "backward_twice",
                 "two_losses"}),
    (CHECKPOINTS, {"memory", "memory_with_graph", "keeps_detached_weight", "keeps_weight", "fills_callers_list",
                   "growing_buffer", "collections", "skips_by_chance", "two_forwards", "two_forwards_two_backwards",
                   "eval_before_backward", "frozen_mode", "evaluation_within", "in_evaluation", "for_one_forward",
                   "hook_keeps_output", "filled", "two_inputs", "made_at_the_first_call", "switched", "batch_norm"}),
    (HOLD_GRAPHS, {*SEVERAL_BACKWARDS, "copied_model", *REENTRANT}),
    ({"old_norm", "hooks_its_activation", "reads_in_backward", "calls_in_backward"}, {"copied_model"}),
    # The weight is that of the hook's first call, whose graph was made before penstock.initialize().
    ({"old_norm"}, {"by_chance"}, {"weight_in_loss"}),
    ({"tries_it"}, {"running_statistic", "memory", "growing_buffer"}),
    ({"changes_its_input"}, {"hook_keeps_output", "full_backward", *CHECKPOINTS, *REENTRANT, "with_anothers_weight",
                             "calls_another_in_backward"}),
)


def features(program: Program) -> set[str]:
    """The names of all."""
    each = [program.takes, program.backward, *program.outside]
    for unit in program.units:
        each += [*unit.parts, unit.gives, unit.call]
    return {name_of(one) for one in each}


def draw_program(seed: int) -> Program:
    draw = random.Random(seed)
    while True:
        program = _draw(seed, draw)
        has = features(program) | {program.stem}
        if not any(all(has & each for each in clash) for clash in CLASHES):
            return program


def _draw(seed: int, draw: random.Random) -> Program:
    order = draw.choice(list(WAYS))
    afterwards = {kind: [name for name, each in NOUNS[kind].makers.items() if not each.one_backward]  # type: ignore
                  for kind in ("outside", "backwards")}
    but = afterwards if order in WITHIN else {"outside": [], "backwards": []}
    units = tuple(_unit(draw) for _ in range(draw.choice((1, 2, 2, 3, 3, 4))))
    backward = BACKWARDS.draw(draw, but["backwards"])
    outside = _some(draw, OUTSIDE, draw.choice((0, 1, 1, 2, 3)), but["outside"])
    if any(name_of(part) == "raises" for unit in units for part in unit.parts) and order not in WITHIN:
        outside = (*outside, "caught_errors/0") if "caught_errors" not in map(name_of, outside) else outside
    loop = BACKWARDS.makers[name_of(backward)].loop or draw.choice(("engine", "torch"))  # type: ignore
    stem = draw.choice(("linear", "linear", "tokens", "tied", "aliased"))
    return Program(seed, stem, units, _route(draw, len(units)), TAKES.draw(draw), outside, backward, loop,
                   draw.choice(list(OPTIMIZERS)), draw.choice((3, 3, 4, 5)), order,
                   draw.choice(("units", "units", "units", "parts", "resident")))


def _unit(draw: random.Random) -> UnitPlan:
    parts = tuple(PARTS.draw(draw) for _ in range(draw.choice((1, 1, 2, 3))))
    return UnitPlan(parts, GIVES.draw(draw), CALLS.draw(draw))


def _some(draw: random.Random, named: Named[Any], count: int, but: list[str]) -> tuple[str, ...]:
    """Features of different names."""
    features: dict[str, str] = {}
    for _ in range(count):
        feature = named.draw(draw, [*but, *features])
        features[name_of(feature)] = feature
    return tuple(features.values())


def _route(draw: random.Random, units: int) -> tuple[int, ...]:
    route = list(range(units))
    how = draw.choice(("in order", "in order", "twice", "shuffled", "without one"))
    if how == "twice":
        route.insert(draw.randrange(units), draw.randrange(units))
    elif how == "shuffled":
        draw.shuffle(route)
    elif how == "without one" and units > 1:
        route.remove(draw.randrange(units))
    return tuple(route)
