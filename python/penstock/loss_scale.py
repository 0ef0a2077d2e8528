"""The factor that keeps small gradients of fp16 above zero: halved when one overflows, doubled when none has."""
from __future__ import annotations

import json
from dataclasses import asdict, dataclass


IN_VAIN = 4  # steps in a row that overflow at the least scale; one alone may be a bad batch


@dataclass
class LossScale:
    """As DeepSpeed's: the first `hysteresis` - 1 overflows since the last doubling change nothing but their step.
    A fixed one stays."""

    value: float = 65536.0
    window: int = 1000  # steps without overflow until it doubles
    hysteresis: int = 2
    least: float = 1.0
    fixed: bool = False
    consecutive: bool = False  # overflows are counted from the last step without one, not from the last doubling
    patience: int = 2  # overflows until it is halved
    steps: int = 0
    last_overflow: int = -1
    in_vain: int = 0  # newest steps that overflowed though the scale could not be less

    @staticmethod
    def dynamic(power: int = 16, window: int = 1000, hysteresis: int = 2, least: float = 1.0,
                consecutive: bool = False) -> LossScale:
        return LossScale(2.0 ** power, window, hysteresis, least, False, consecutive, hysteresis)

    def after(self, overflow: bool) -> None:
        """A step has ended."""
        self.in_vain = self.in_vain + 1 if overflow and (self.fixed or self.value <= self.least) else 0
        if self.fixed:
            return
        if overflow:
            if self.patience <= 1:
                self.value = max(self.value / 2, self.least)
            else:
                self.patience -= 1
            self.last_overflow = self.steps
            self.steps += 1
            return
        if self.consecutive:
            self.patience = self.hysteresis
        if (self.steps - self.last_overflow) % self.window == 0:
            self.patience = self.hysteresis
            self.value *= 2
        self.steps += 1

    def is_in_vain(self) -> bool:
        """No further step is going to be made, as it seems."""
        return self.in_vain >= IN_VAIN

    def told_in_vain(self) -> str:
        return (f"the gradients of {self.in_vain} steps in a row were not finite at loss scale {self.value:g}, "
                f"{'which is fixed' if self.fixed else 'the least'}: nothing is updated any more. Look for the first "
                "loss that is not finite; a lower learning rate, gradient_clipping or bfloat16 help if fp16 overflows"
                f"{', and so does a dynamic scale (fp16.loss_scale 0)' if self.fixed else ''}")

    def encode(self) -> str:
        return json.dumps(asdict(self))

    def take(self, text: str) -> None:
        for key, value in json.loads(text).items():
            setattr(self, key, value)
