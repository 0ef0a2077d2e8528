"""sentence-transformers: losses over cached gradients, whose second forward is within a backward, beside plain torch."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import penstock
from cores import ACTIVATIONS, WITHIN_BACKWARD
from cores import test_core as OpenFakeCore
from penstock.weights.bits import same_bits
from tiny_language import text, tokenizer

sentence_transformers = pytest.importorskip("sentence_transformers")
transformers = pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")

PAIRS = [(text(each, 3 + each % 5), text(100 + each, 6)) for each in range(24)]


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    torch.manual_seed(2)
    transformers.BertModel(transformers.BertConfig(
        vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        max_position_embeddings=32, pad_token_id=0)).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def model_of(base: Path) -> Any:
    from sentence_transformers import models

    encoder = models.Transformer(str(base), max_seq_length=16)
    return sentence_transformers.SentenceTransformer(modules=[encoder, models.Pooling(32)], device="cpu")


def loss_of(name: str, model: Any) -> Any:
    from sentence_transformers import losses

    small = {"mini_batch_size": 3} if name.startswith("Cached") else {}
    if name == "Matryoshka":
        return losses.MatryoshkaLoss(model, losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=3), [32, 8])
    return getattr(losses, name)(model, **small)


def by_hand(name: str, base: Path, managed: bool) -> tuple[list[float], dict[str, torch.Tensor]]:
    """A loop of the program's."""
    transformers.set_seed(1)
    model = model_of(base)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    engine = None
    if managed:
        engine, optimizer, _, _ = penstock.initialize(model, optimizer, core=OpenFakeCore(), settings=penstock.Settings(
            activations=ACTIVATIONS))
    loss, losses = loss_of(name, model), []
    model.train()
    for step in range(3):
        rows = PAIRS[8 * step:8 * step + 8]
        features = [model.tokenize([each[column] for each in rows]) for column in (0, 1)]
        value = loss(features, torch.zeros(len(rows)))
        value.backward()
        if not WITHIN_BACKWARD:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(value.item())
    model.eval()
    losses.append(float(torch.as_tensor(model.encode([PAIRS[0][0]])).double().sum()))
    return losses, engine.state_dict() if engine is not None else model.state_dict()


@pytest.mark.parametrize("name", ["CachedMultipleNegativesRankingLoss", "CachedGISTEmbedLoss", "Matryoshka",
                                  "MultipleNegativesRankingLoss"])
def test_a_loop_with_cached_gradients(name, base):
    if name == "CachedGISTEmbedLoss":
        pytest.skip("it wants a guide")
    (was, weights), (now, own) = by_hand(name, base, False), by_hand(name, base, True)
    assert was == now
    assert not [each for each in weights if not same_bits(weights[each], own[each])]


@pytest.mark.skipif(WITHIN_BACKWARD, reason="a Trainer clips and logs norms after backward")
def test_its_trainer_with_cached_gradients(base, tmp_path):
    def run(managed: bool) -> Any:
        transformers.set_seed(1)
        model = model_of(base)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
        if managed:
            _, optimizer, _, _ = penstock.initialize(model, optimizer, core=OpenFakeCore())
        arguments = sentence_transformers.SentenceTransformerTrainingArguments(
            output_dir=str(tmp_path), max_steps=3, per_device_train_batch_size=8, max_grad_norm=0.5, logging_steps=1,
            save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True, seed=1, dataloader_pin_memory=False)
        trainer = sentence_transformers.SentenceTransformerTrainer(
            model=model, args=arguments, optimizers=(optimizer, None),
            train_dataset=datasets.Dataset.from_dict({"anchor": [each for each, _ in PAIRS],
                                                      "positive": [each for _, each in PAIRS]}),
            loss=loss_of("CachedMultipleNegativesRankingLoss", model))
        trainer.train()
        history = [{key: each[key] for key in ("loss", "grad_norm") if key in each} for each in trainer.state.log_history]
        return history, {name: each.clone() for name, each in trainer.accelerator.get_state_dict(trainer.model).items()}
    (was, weights), (now, own) = run(False), run(True)
    assert len(was) > 2 and was == now
    assert not [each for each in weights if not same_bits(weights[each], own[each])]
