"""The loader of penstock.initialize(training_data=...): its order is DeepSpeed's, and it goes on where a run does."""
from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

import penstock
import small_models as small
from cores import test_core

ROWS = 11


class Rows(Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        return index


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(ROWS))


def open_loader(folder=None, data=None, rows=2, **options):
    torch.manual_seed(0)
    engine, _, loader, _ = penstock.initialize(
        small.Stack(), core=test_core(folder=folder), training_data=Rows() if data is None else data,
        settings=penstock.Settings(micro_batch=rows), **options)
    return engine, loader


def train(engine):
    engine.backward(small.loss(engine, small.ids(0)))
    engine.step()


def epoch_of(loader, train=lambda: None):
    seen = []
    for batch in loader:
        seen += batch.tolist()
        train()
    return seen


@pytest.mark.parametrize("seed", [0, 7])
def test_epochs_are_shuffled_as_deepspeeds_sampler_does(seed):
    engine, loader = open_loader(shuffle_seed=seed)
    sampler = DistributedSampler(Rows(), num_replicas=1, rank=0, seed=seed)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        assert epoch_of(loader, lambda: train(engine)) == list(sampler) != list(range(ROWS))


def test_shuffle_false_says_otherwise():
    engine, loader = open_loader(shuffle=False)
    for _ in range(2):
        assert epoch_of(loader, lambda: train(engine)) == list(range(ROWS))


def test_what_a_loader_draws_leaves_torchs_random_states_as_they_are():
    engine, loader = open_loader()
    before = torch.get_rng_state()
    epoch_of(loader)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("data", [Rows, Stream])
@pytest.mark.parametrize("stopped", [1, 5, 6, 7, 12, 13])
def test_a_training_that_is_stopped_goes_on_with_the_row_behind(data, stopped, tmp_path):
    def rows_of(folder, steps):
        """What `steps` further steps see."""
        engine, loader = open_loader(folder, data())
        seen = []
        while len(seen) < steps:
            for batch in loader:
                seen.append((loader.epoch, batch.tolist()))
                train(engine)
                if len(seen) == steps:
                    break
        engine.close()
        return seen
    whole = rows_of(tmp_path / "whole", 15)
    assert rows_of(tmp_path / "parts", stopped) + rows_of(tmp_path / "parts", 15 - stopped) == whole


@pytest.mark.parametrize("data", [Rows, Stream])
def test_a_training_that_is_stopped_at_the_end_of_an_epoch_begins_the_next(data, tmp_path):
    engine, loader = open_loader(tmp_path, data())
    for number, _ in enumerate(loader):
        train(engine)
        if number == 5:
            break
    engine.close()
    engine, loader = open_loader(tmp_path, data())
    assert sorted(epoch_of(loader, lambda: train(engine))) == list(range(ROWS)) and loader.epoch == 2
    engine.close()


def test_what_was_only_looked_at_comes_again(tmp_path):
    engine, loader = open_loader(tmp_path)
    first = next(iter(loader)).tolist()
    assert next(iter(loader)).tolist() == first
    whole = epoch_of(loader)
    assert epoch_of(loader) == whole, "an evaluation over the training data is no epoch"
    batches = iter(loader)
    next(batches)
    train(engine)
    engine.close()
    engine, loader = open_loader(tmp_path)
    assert next(iter(loader)).tolist() == next(iter(loader)).tolist() == whole[2:4]
    assert epoch_of(loader) == whole[2:], "the rest of the epoch"
    engine.close()


def test_an_epoch_that_a_training_leaves_early_is_over(tmp_path):
    engine, loader = open_loader(tmp_path)
    for _ in range(3):
        epoch, batches = loader.epoch, iter(loader)
        for _ in range(2):
            next(batches)
            train(engine)
    assert (epoch, loader.epoch) == (1, 2)
    engine.close()
    engine, loader = open_loader(tmp_path)
    next(iter(loader))
    assert (loader.epoch, loader.batches) == (2, 3)
    engine.close()


def test_gradients_alone_count_as_use():
    """An accumulation that ends in the next epoch."""
    engine, loader = open_loader()
    epoch_of(loader, lambda: small.loss(engine, small.ids(0)).backward())
    assert loader.epoch == 1


def test_a_position_that_is_committed_holds_all_micro_batches(tmp_path):
    torch.manual_seed(0)

    def begin():
        engine, _, loader, _ = penstock.initialize(small.Stack(), core=test_core(folder=tmp_path), training_data=Rows(),
                                                   settings=penstock.Settings(micro_batch=2, accumulation=4))
        return engine, loader
    engine, loader = begin()
    for _ in range(2):
        epoch_of(loader, lambda: train(engine))
    assert engine.global_steps == 3
    engine.close()
    engine, loader = begin()
    next(iter(loader))
    assert (loader.epoch, loader.batches) == (2, 1) and engine.global_steps == 3
    engine.close()


def test_a_checkpoint_takes_the_loader_back(tmp_path):
    engine, loader = open_loader(tmp_path / "store")
    batches = iter(loader)
    next(batches)
    train(engine)
    engine.save_checkpoint(tmp_path / "checkpoints", "one")
    second = next(batches).tolist()
    train(engine)
    engine.load_checkpoint(tmp_path / "checkpoints", "one")
    assert next(iter(loader)).tolist() == second
    engine.close()


def test_an_opening_without_the_loader_that_there_was_says_whose_the_data_are(tmp_path, caplog):
    def goes_on(**options):
        torch.manual_seed(0)
        caplog.clear()
        with penstock.initialize(small.Stack(), core=test_core(folder=tmp_path), **options)[0] as engine:
            train(engine)
        return [each.levelname for each in caplog.records if "which batches come next is the script's" in each.getMessage()]
    caplog.set_level("INFO", "penstock")
    assert goes_on(training_data=Rows()) == goes_on(training_data=Rows()) == []
    assert goes_on() == ["WARNING"] and goes_on() == ["INFO"]


def test_other_data_begin_the_next_epoch_and_that_is_told(tmp_path, caplog):
    engine, loader = open_loader(tmp_path)
    next(iter(loader))
    train(engine)
    engine.close()
    engine, loader = open_loader(tmp_path, rows=3)
    assert "training_data: rows, batch size" in caplog.text and loader.epoch == 1
    assert len(epoch_of(loader)) == ROWS
    engine.close()


def test_workers_load_the_same_rows():
    engine, loader = open_loader(num_workers=2)
    seen = epoch_of(loader)
    assert seen == epoch_of(open_loader()[1]) and loader.num_workers == 2


def test_pinning_is_torchs():
    assert open_loader(pin_memory=True)[1].pin_memory and not open_loader()[1].pin_memory


def test_a_loader_of_ones_own_is_refused_by_name():
    with pytest.raises(penstock.UsageError, match="training_data=.*a loader of your own"):
        open_loader(data=DataLoader(Rows()))


def test_a_loader_does_not_keep_its_engine(tmp_path):
    import gc
    import weakref
    engine, loader = open_loader(tmp_path)
    there = weakref.ref(engine)
    del engine
    gc.collect()
    assert there() is None and len(loader) == 6


def test_data_without_rows_is_refused():
    with pytest.raises(penstock.UsageError, match="the data set has no rows"):
        penstock.initialize(small.Stack(), core=test_core(), training_data=[])
