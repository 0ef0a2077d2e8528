"""Which core a test trains over: the stand-in, or with PENSTOCK_TEST_CORE=native the one on NVMe, in a folder that goes
with it; PENSTOCK_TEST_DEVICE says on which device, PENSTOCK_TEST_ORDER in which order units are updated, and
PENSTOCK_TEST_ACTIVATIONS=keep that graphs are kept."""
from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from typing import Any

import torch

from fake_core import OpenFakeCore
from penstock.core import Core, ModelSpec, ReadWeight

NATIVE = os.environ.get("PENSTOCK_TEST_CORE") == "native"
# Where native cores compute: "emulated" has memory apart from the host's; "cuda" asks for a GPU.
DEVICE = os.environ.get("PENSTOCK_TEST_DEVICE", "cpu")
OPTIONS: dict[str, Any] = {} if DEVICE == "cpu" else {"device": DEVICE, "device_budget_bytes": 256 << 20}
# The ways of updating that differ, and what Store says of each; the third one speculates where the settings clip.
WAYS: dict[str, dict[str, Any]] = {
    **{order: {"update_order": order} for order in ("after_backward", "deferred", "within")},
    "speculative": {"update_order": "within"},
    "balanced": {"update_order": "within", "deferred_share": "auto"},
}
OPTIONS |= WAYS[os.environ.get("PENSTOCK_TEST_ORDER", "after_backward")]
ACTIVATIONS: Any = os.environ.get("PENSTOCK_TEST_ACTIVATIONS", "auto")
WITHIN_BACKWARD = OPTIONS["update_order"] == "within"  # gradients are not there after it


class OpenNativeCore:
    """Opens native cores with these options, and remembers the last."""

    def __init__(self, folder: str | os.PathLike[str] | None = None, **options: Any) -> None:
        self.folder = os.fspath(folder or tempfile.mkdtemp(prefix="penstock-python-"))
        if folder is None:
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.options = {**OPTIONS, **options}
        self.last: Any = None

    def __call__(self, model: ModelSpec, first: ReadWeight) -> Core:
        from penstock.native.core import NativeCore
        from penstock.store import Store
        self.last = NativeCore(model, first, Store(self.folder, **self.options))
        self.last.opener = self  # the folder lives as long
        return self.last  # type: ignore[no-any-return]


def test_core(window_bytes: int | None = None, folder: str | os.PathLike[str] | None = None) -> Any:
    return OpenNativeCore(folder) if NATIVE else OpenFakeCore(window_bytes, folder)


test_core.__test__ = False  # type: ignore[attr-defined]


def round_each_operation() -> None:
    """MKL's square root of a vector is not always correctly rounded; in double, and rounded once, it is."""
    def sqrt(self: torch.Tensor) -> torch.Tensor:
        return plain(self.double()).float() if self.dtype == torch.float32 else plain(self)
    plain = torch.Tensor.sqrt
    torch.Tensor.sqrt = sqrt  # type: ignore[method-assign]
