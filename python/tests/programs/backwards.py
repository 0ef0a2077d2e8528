"""What a step's forwards and backwards are."""
from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from .script import BACKWARDS, Backward, Script

Tensor = torch.Tensor


@BACKWARDS.of(10)
class OneBackward(Backward):
    """one forward, one backward"""

    one_backward = True

    def step(self, script: Script, step: int) -> None:
        script.backward(step, script.loss(step, script.forward(step)))
        script.update(step)


@BACKWARDS.of(3)
class Accumulated(Backward):
    """two or three forwards, each with its backward, then the update; the engine is told how many"""

    one_backward, loop = True, "engine"

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.accumulation = draw.choice((2, 3))

    def step(self, script: Script, step: int) -> None:
        for at in range(self.accumulation):
            script.backward(step, script.loss(step, script.forward(step)))
            script.update(step) if at == self.accumulation - 1 else script.world.update()


@BACKWARDS.of(2)
class AccumulatedByHand(Backward):
    """two forwards, each with its backward, before one update"""

    def step(self, script: Script, step: int) -> None:
        for _ in range(2):
            script.backward(step, script.loss(step, script.forward(step)) / 2)
        script.update(step)


@BACKWARDS.of(7)
class TwoForwards(Backward):
    """two forwards, with attributes switched in between, then one backward"""

    one_backward = True

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.chained, self.how = draw.random() < 0.3, draw.choice(("train", "eval first", "eval second"))

    def step(self, script: Script, step: int) -> None:
        model = script.world.model
        model.train(self.how != "eval first")
        one = script.forward(step)
        script.switch()
        model.train(self.how != "eval second")
        two = script.forward(step)
        model.train()
        script.backward(step, script.loss(step, one) + script.loss(step, two))
        script.switch()
        script.update(step)


@BACKWARDS.of(3)
class TwoForwardsTwoBackwards(Backward):
    """two forwards, with attributes switched in between, then a backward of each, in this order or the other"""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.reversed = draw.random() < 0.5

    def step(self, script: Script, step: int) -> None:
        losses = [script.loss(step, script.forward(step))]
        script.switch()
        losses.append(script.loss(step, script.forward(step)))
        for each in reversed(losses) if self.reversed else losses:
            script.backward(step, each)
        script.switch()
        script.update(step)


@BACKWARDS.of(3)
class TwoLosses(Backward):
    """two losses of one forward, each with a backward, the first of which retains the graph; switched in between"""

    def step(self, script: Script, step: int) -> None:
        out = script.forward(step)
        script.backward(step, script.loss(step, out), retain_graph=True)
        script.switch()
        script.backward(step, out.square().mean())
        script.switch()
        script.update(step)


@BACKWARDS.of(2)
class BackwardTwice(Backward):
    """the same loss goes back twice"""

    def step(self, script: Script, step: int) -> None:
        loss = script.loss(step, script.forward(step))
        script.backward(step, loss, retain_graph=True)
        script.backward(step, loss)
        script.update(step)


@BACKWARDS.of(3)
class GradientOfSome(Backward):
    """torch.autograd.grad of some weights and of the output first, then backward"""

    def step(self, script: Script, step: int) -> None:
        out = script.forward(step)
        loss = script.loss(step, out)
        model: Any = script.world.model
        some = [each for each in (out, model.head.weight, *list(model.units[0].parameters())[:2]) if each.requires_grad]
        for each in torch.autograd.grad(loss, some, retain_graph=True, allow_unused=True):
            script.world.note("gradient", each)
        script.backward(step, loss)
        script.update(step)


@BACKWARDS.of(2)
class GradientsByHand(Backward):
    """torch.autograd.grad of all weights, assigned to .grad, in place of backward"""

    def step(self, script: Script, step: int) -> None:
        parameters = [each for each in script.world.model.parameters() if each.requires_grad]
        loss = script.loss(step, script.forward(step))
        for each, gradient in zip(parameters, torch.autograd.grad(loss, parameters, allow_unused=True)):
            each.grad = gradient
        script.update(step)


@BACKWARDS.of(2)
class BackwardToSome(Backward):
    """backward(inputs=...) of some weights, then of all"""

    def step(self, script: Script, step: int) -> None:
        loss = script.loss(step, script.forward(step))
        loss.backward(inputs=list(script.world.model.head.parameters()), retain_graph=True)
        script.backward(step, loss)
        script.update(step)


@BACKWARDS.of(3)
class Cached(Backward):
    """outputs without gradients first, a loss of all of them, and a hook of it that runs the forwards again with
    gradients, and their backwards, within backward (cached contrastive losses)"""

    def step(self, script: Script, step: int) -> None:
        batches = [script.example(step) for _ in range(2)]
        with torch.no_grad():
            outputs = torch.cat([script.forward(step, each) for each in batches])
        outputs.requires_grad_()
        loss = script.loss(step, outputs)
        gradient, = torch.autograd.grad(loss, outputs)
        parts = gradient.split([each.shape[0] for each in batches])

        def again(scale: Tensor) -> None:
            with torch.enable_grad():
                for each, part in zip(batches, parts):
                    ((script.forward(step, each).float() * part).sum() * scale).backward()
        loss = loss.detach().requires_grad_()
        loss.register_hook(again)
        script.backward(step, loss)
        script.update(step)


@BACKWARDS.of(2)
class ForwardInHook(Backward):
    """a hook on the output runs another forward, with gradients or without, within backward"""

    one_backward = True

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.gradients = draw.random() < 0.5

    def step(self, script: Script, step: int) -> None:
        other, out = script.example(step), script.forward(step)

        def forward(gradient: Tensor) -> Tensor:
            with torch.set_grad_enabled(self.gradients):
                return gradient + 0.001 * script.world.model(other).mean().detach()
        out.register_hook(forward)
        script.backward(step, script.loss(step, out))
        script.update(step)


@BACKWARDS.of(1)
class GradientPenalty(Backward):
    """a penalty on the gradient to the stem's output, which is differentiated again"""

    one_backward = True

    def step(self, script: Script, step: int) -> None:
        kept: list[Tensor] = []
        handle = script.world.model.stem.register_forward_hook(lambda module, given, out: kept.append(out))
        loss = script.loss(step, script.forward(step))
        handle.remove()
        gradient, = torch.autograd.grad(loss, kept[0], create_graph=True)
        script.backward(step, loss + 0.1 * gradient.square().sum())
        script.update(step)


@BACKWARDS.of(1)
class WeightPenalty(Backward):
    """a penalty on the gradients to weights, of all or of some, which are differentiated again"""

    one_backward = True

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.every = draw.choice((1, 2, 5))

    def step(self, script: Script, step: int) -> None:
        loss = script.loss(step, script.forward(step))
        weights = [each for each in script.world.model.parameters() if each.requires_grad][::self.every]
        gradients = torch.autograd.grad(loss, weights, create_graph=True, allow_unused=True)
        penalty = sum(each.square().sum() for each in gradients if each is not None)
        script.backward(step, loss + 0.01 * penalty)
        script.update(step)


@BACKWARDS.of(1)
class ModelCheckpointed(Backward):
    """the model as a whole within torch's checkpoint, not reentrant"""

    one_backward = True

    def step(self, script: Script, step: int) -> None:
        out = checkpoint(script.world.model, script.example(step), use_reentrant=False)
        script.backward(step, script.loss(step, out))
        script.update(step)


@BACKWARDS.of(1)
class ModelReentrant(Backward):
    """the model as a whole within torch's reentrant checkpoint"""

    one_backward = True

    def step(self, script: Script, step: int) -> None:
        gradients = torch.ones((), requires_grad=True)  # what is checkpointed must be given something that has them
        data = script.example(step)
        out = checkpoint(lambda _: script.world.model(data), gradients, use_reentrant=True)
        script.backward(step, script.loss(step, out))
        script.update(step)


@BACKWARDS.of(1)
class InThread(Backward):
    """the forward is made by another thread, the backward by this one"""

    one_backward = True

    def step(self, script: Script, step: int) -> None:
        with ThreadPoolExecutor(1) as thread:
            out = thread.submit(script.forward, step).result()
        script.backward(step, script.loss(step, out))
        script.update(step)


@BACKWARDS.of(1)
class Closure(Backward):
    """optimizer.step is given a closure that makes forward and backward"""

    one_backward, loop = True, "torch"

    def step(self, script: Script, step: int) -> None:
        def closure() -> Tensor:
            loss = script.loss(step, script.forward(step))
            script.backward(step, loss)
            return loss
        script.world.note("closure", script.world.optimizer.step(closure))
        script.world.optimizer.zero_grad()


@BACKWARDS.of(2)
class ThrownAway(Backward):
    """every other step's first gradients are thrown away by zero_grad, and a forward's graph is never used"""

    def step(self, script: Script, step: int) -> None:
        script.backward(step, script.loss(step, script.forward(step)))
        if step % 2:
            script.world.optimizer.zero_grad()
        script.forward(step)
        script.backward(step, script.loss(step, script.forward(step)))
        script.update(step)


@BACKWARDS.of(2)
class ModelInParts(Backward):
    """the script calls the model's modules one by one, some of them twice, and goes back through a part by hand"""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.split = draw.random() < 0.5

    def step(self, script: Script, step: int) -> None:
        model: Any = script.world.model
        model.takes.begin()
        cut = model.stem(script.example(step)) + 0.0
        middle = len(model.route) // 2
        for unit in model.route[:middle]:
            cut = model.calls[unit](model, model.units[unit], cut)
        x = cut.detach().requires_grad_() if self.split else cut
        out = x * 1.0
        for unit in model.route[middle:]:
            out = model.calls[unit](model, model.units[unit], out)
        script.backward(step, script.loss(step, model.head(out)))
        if self.split:
            cut.backward(x.grad)
        script.update(step)
