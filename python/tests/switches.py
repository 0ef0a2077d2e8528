"""Programs that switch what is trained, step by step, over a plain model and over a managed one."""
from __future__ import annotations

import torch

import penstock
import small_models as small
from compare import Trained, differences, seed
from cores import ACTIVATIONS, test_core

STEPS = 6
KEPT = penstock.Settings(activations=ACTIVATIONS)


def of_all(kind, **options):
    return lambda model: kind(model.parameters(), foreach=False, **options)


OPTIMIZERS = {
    "adamw": of_all(torch.optim.AdamW, lr=1e-2, weight_decay=0.1),
    "adam": of_all(torch.optim.Adam, lr=1e-2, weight_decay=0.1),
    "sgd": of_all(torch.optim.SGD, lr=0.1, momentum=0.9, dampening=0.5, weight_decay=0.1),
    "adagrad": of_all(torch.optim.Adagrad, lr=1e-2, weight_decay=0.1),
}


class Program:
    """The same loop over a plain model and over a managed one. `loop(model, optimizer)` gives the losses."""

    def __init__(self, make, loop, optimizer=OPTIMIZERS["adamw"], later=()):
        self.make, self.loop, self.optimizer, self.later = make, loop, optimizer, later

    def plain(self):
        seed()
        model = self.make()
        losses = self.loop(model, self.optimizer(model))
        return Trained(losses, model.state_dict(), torch.rand(()).item())

    def managed(self, core=None):
        seed()
        model = self.make()
        engine, optimizer, _, _ = penstock.initialize(model, self.optimizer(model), core=core or test_core(),
                                                      trainable=self.later, settings=KEPT)
        losses = self.loop(model, optimizer)
        return Trained(losses, engine.state_dict(), torch.rand(()).item(), engine=engine)

    def check(self, core=None):
        found = self.managed(core)
        differing = differences(self.plain(), found)
        assert not differing, "; ".join(differing)
        return found


def switch(module, on):
    for each in module.parameters():
        each.requires_grad_(on)


def step(optimizer, loss, **zeroing):
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(**zeroing)
    return loss.item()


def turns(change):
    """A loop of steps before each of which `change(model, number)` switches."""
    def loop(model, optimizer):
        losses = []
        for number in range(STEPS):
            change(model, number)
            losses.append(step(optimizer, small.loss(model, small.ids(number))))
        return losses
    return loop


# Who trains when: each of these is a program that people write.
def blocks_in_turn(model, number):
    for at, block in enumerate(model.blocks):
        switch(block, at == number % len(model.blocks))


def all_or_the_head(model, number):
    switch(model, number % 2 == 0)
    switch(model.head, True)


def from_the_top(model, number):
    """Unfreezing layer by layer."""
    for at, block in enumerate(reversed(model.blocks)):
        switch(block, number >= 1 + at)


def embeddings_stop(model, number):
    switch(model.embedding, number < 2)


def norms_alone_in_between(model, number):
    """Parts of each unit."""
    for block in model.blocks:
        switch(block.linear, number not in (2, 3))


def all_but_one_bias(model, number):
    model.blocks[1].linear.bias.requires_grad_(number % 3 == 0)


SWITCHES = [blocks_in_turn, all_or_the_head, from_the_top, embeddings_stop, norms_alone_in_between, all_but_one_bias]
