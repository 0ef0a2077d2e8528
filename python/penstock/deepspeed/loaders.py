"""deepspeed.runtime.dataloader."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler


class DeepSpeedDataLoader:
    """Of a program's own making: rows of one micro-batch, in an order that torch's generator draws; of several processes
    each has its rows by DistributedSampler, as in DeepSpeed. (That which initialize(training_data=...) gives goes on where
    the training does: penstock.run.loader.)"""

    def __init__(self, dataset: Any, batch_size: int, collate_fn: Callable[..., Any] | None = None,
                 data_sampler: Any = None, local_rank: int = -1, dataloader_drop_last: bool = False,
                 num_local_io_workers: int | None = None, pin_memory: bool = False,
                 data_parallel_world_size: int | None = None, data_parallel_rank: int | None = None, **_: Any) -> None:
        self.dataset, self.batch_size = dataset, batch_size
        if data_sampler is None and not isinstance(dataset, IterableDataset):
            several = (data_parallel_world_size or 1) > 1
            data_sampler = DistributedSampler(dataset, data_parallel_world_size, data_parallel_rank) if several else \
                RandomSampler(dataset)
        self.data_sampler = data_sampler
        self.dataloader: DataLoader[Any] = DataLoader(
            dataset, batch_size, sampler=data_sampler, collate_fn=collate_fn, drop_last=dataloader_drop_last,
            num_workers=num_local_io_workers or 0, pin_memory=pin_memory and torch.cuda.is_available())
        self._rows: Iterator[Any] | None = None

    def __iter__(self) -> DeepSpeedDataLoader:
        self._rows = iter(self.dataloader)
        return self

    def __next__(self) -> Any:
        if self._rows is None:
            self._rows = iter(self.dataloader)
        return next(self._rows)

    def __len__(self) -> int:
        return len(self.dataloader)


class RepeatingLoader:
    """Begins again where it ends. One that has nothing ends."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.data_iter = iter(loader)

    def __iter__(self) -> RepeatingLoader:
        return self

    def __len__(self) -> int:
        return len(self.loader)

    def __next__(self) -> Any:
        try:
            return next(self.data_iter)
        except StopIteration:
            self.data_iter = iter(self.loader)
            return next(self.data_iter)
