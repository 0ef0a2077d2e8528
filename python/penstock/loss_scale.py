"""The factor that keeps small gradients of fp16 above zero: halved when one overflows, doubled when none has."""
from __future__ import annotations

import json
from dataclasses import asdict, dataclass


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

    @staticmethod
    def dynamic(power: int = 16, window: int = 1000, hysteresis: int = 2, least: float = 1.0,
                consecutive: bool = False) -> LossScale:
        return LossScale(2.0 ** power, window, hysteresis, least, False, consecutive, hysteresis)

    def after(self, overflow: bool) -> None:
        """A step has ended."""
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

    def encode(self) -> str:
        return json.dumps(asdict(self))

    def take(self, text: str) -> None:
        for key, value in json.loads(text).items():
            setattr(self, key, value)
