"""What people do with models of transformers beside training: caches, generate(), checkpointing, LoRA, Accelerate."""
from __future__ import annotations

import pytest
import torch

import penstock
from compare import Training, adamw, differences
from cores import NATIVE
from cores import test_core as OpenFakeCore
from families import FAMILIES, batches

transformers = pytest.importorskip("transformers")

NAMED = {each.name: each for each in FAMILIES}


@pytest.fixture(autouse=True)
def quiet():
    transformers.logging.set_verbosity_error()


def training(name: str, count: int = 3, change=None, **options) -> Training:
    family = NAMED[name]

    def make():
        model = family.make(0.1)
        if change is not None:
            model = change(model) or model
        return model
    return Training(make, list(batches(family, count)), **options)


@pytest.mark.parametrize("options", [dict(), dict(num_beams=3), dict(do_sample=True, top_k=20)],
                         ids=["greedy", "beams", "sampled"])
@pytest.mark.parametrize("name", ["GPT-2", "Qwen2", "T5", "Mamba"])
def test_generate_gives_the_tokens_of_plain_torch(name, options):
    family = NAMED[name]
    torch.manual_seed(0)
    plain = family.make(0.1).eval()
    torch.manual_seed(0)
    model = family.make(0.1)
    opener = OpenFakeCore()
    engine, _, _, _ = penstock.initialize(model, core=opener)
    prompt = next(batches(family, 1))["input_ids"]
    options = dict(max_new_tokens=6, min_new_tokens=6, pad_token_id=0, **options)
    torch.manual_seed(5)
    expected = plain.generate(prompt, **options)
    torch.manual_seed(5)
    assert torch.equal(expected, engine.eval().module.generate(prompt, **options))
    if not NATIVE:
        assert {kind for kind, _ in opener.last.passes} == {"inference"} and opener.last.kind is None


def test_generate_may_come_between_steps():
    def loss(model, batch):
        inner = getattr(model, "module", model)
        inner.eval()
        more = inner.generate(batch["input_ids"], max_new_tokens=3, pad_token_id=0, do_sample=False)
        inner.train()
        return model(input_ids=more, labels=more).loss
    training("Llama", loss=loss).check()


def test_a_cache_that_is_filled_in_training_is_filled_once():
    def loss(model, batch):
        ids = batch["input_ids"]
        first = model(input_ids=ids[:, :5], use_cache=True)
        second = model(input_ids=ids[:, 5:], past_key_values=first.past_key_values, labels=ids[:, 5:], use_cache=True)
        assert second.past_key_values.get_seq_length() == ids.shape[1]
        return second.loss + first.logits.pow(2).mean()
    for name in ("GPT-2", "Llama", "Gemma 3"):
        training(name, loss=loss).check()


def test_hidden_states_and_attentions_may_be_in_the_loss():
    def loss(model, batch):
        out = model(**batch, output_hidden_states=True, output_attentions=True)
        return out.loss + sum(each.pow(2).mean() for each in out.hidden_states) + out.attentions[1].max()

    def eager(model):
        model.set_attn_implementation("eager")
    for name in ("GPT-2", "BERT", "Qwen2"):
        training(name, loss=loss, change=eager).check()


def test_layerdrop_leaves_layers_out():
    def drop(model):
        for part in (model.model.encoder, model.model.decoder):
            part.layerdrop = 0.5
    training("BART", count=6, change=drop).check()


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_of_the_model_is_recomputed_once(reentrant):
    counts = []

    def enable(model):
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        model.enable_input_require_grads()
        counts.append(0)

        def count(*_):
            counts[-1] += 1
        model.model.layers[0].self_attn.register_forward_pre_hook(count)
    training("Llama", count=3, change=enable).check()
    assert counts == [6, 6]


def test_flops_of_a_loss_over_experts_that_are_not_used():
    one = training("Mixtral", count=4)
    one.check()


def test_lora_by_peft_trains_adapters_alone():
    peft = pytest.importorskip("peft")

    def adapt(model):
        return peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=8, lora_dropout=0.1, task_type="CAUSAL_LM",
                                                          target_modules=["q_proj", "v_proj"]))
    found = training("Llama", count=4, change=adapt).check()
    trainable = [each.name for unit in found.core.units for each in unit.parameters if each.trainable]
    assert trainable and all("lora_" in each for each in trainable)
    if NATIVE:
        return
    assert set(found.core.store["moment0"]) == {
        (u, i) for u, unit in enumerate(found.core.units) for i, each in enumerate(unit.parameters) if each.trainable}


def test_lora_adapters_of_fp32_on_a_base_of_bf16(tmp_path):
    peft = pytest.importorskip("peft")

    def adapt(model):
        return peft.get_peft_model(model.bfloat16(), peft.LoraConfig(r=4, task_type="CAUSAL_LM",
                                                                     target_modules=["q_proj", "v_proj"]))
    found = training("Llama", count=3, change=adapt).check()
    assert {each.dtype for unit in found.core.units for each in unit.parameters} == {torch.bfloat16, torch.float32}
    found.engine.module.save_pretrained(tmp_path)
    from safetensors.torch import load_file
    saved = load_file(tmp_path / "adapter_model.safetensors")
    assert saved and all("lora_" in name and not torch.isnan(each).any() for name, each in saved.items())


def test_a_model_that_changes_its_weights_in_eval_has_plain_torchs_bits():
    """RWKV divides them there, and multiplies them again at the next forward in training."""
    def rescaled(model):
        model.config.rescale_every = 1

    def loss(model, batch):
        inner = getattr(model, "module", model)
        inner.eval()
        with torch.no_grad():
            evaluated = inner(**batch).logits.sum()
        inner.train()
        return model(**batch).loss + evaluated
    training("RWKV", change=rescaled, loss=loss).check()


def test_weights_of_a_base_are_not_those_of_a_model_that_peft_has_wrapped(tmp_path):
    peft = pytest.importorskip("peft")
    base = NAMED["Llama"].make(0.0)
    base.save_pretrained(tmp_path)
    with torch.device("meta"):
        model = peft.get_peft_model(type(base)(base.config), peft.LoraConfig(r=2, target_modules=["q_proj"]))
    with pytest.raises(penstock.WeightsError, match="does not fit PeftModel(.|\n)*base_model.model.model(.|\n)*lora_A"):
        penstock.initialize(model, core=OpenFakeCore(), weights=tmp_path)


def test_save_pretrained_gives_a_model_with_the_same_logits(tmp_path):
    for name in ("GPT-2", "T5"):
        found = training(name).managed()
        found.engine.module.save_pretrained(tmp_path / name)
        again = type(found.engine.module).from_pretrained(tmp_path / name).eval()
        batch = next(batches(NAMED[name], 1))
        with torch.no_grad():
            assert torch.equal(again(**batch).logits, found.engine.eval()(**batch).logits)


def test_autocast_is_the_same():
    def loss(model, batch):
        with torch.autocast("cpu", torch.bfloat16):
            return model(**batch).loss
    training("Llama", loss=loss).check()


@pytest.mark.afterwards
def test_an_accelerate_loop_clips_accumulates_and_steps_the_same():
    accelerate = pytest.importorskip("accelerate")

    def run(managed: bool):
        torch.manual_seed(3)
        family = NAMED["GPT-2"]
        model = family.make(0.1)
        optimizer = adamw(model.parameters())
        if managed:
            engine, optimizer, _, _ = penstock.initialize(model, optimizer, core=OpenFakeCore())
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
        model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
        losses = []
        for batch in batches(family, 6):
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    losses.append(float(accelerator.clip_grad_norm_(model.parameters(), 0.5)))
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            losses.append(loss.item())
        return losses, {k: v.clone() for k, v in accelerator.get_state_dict(model).items()}
    plain, managed = run(False), run(True)
    assert plain[0] == managed[0]
    assert all(torch.equal(plain[1][name], managed[1][name]) for name in plain[1])


def test_units_may_be_cut_finer_by_class():
    found = training("Llama").managed(units=["LlamaMLP", "LlamaAttention", "LlamaRMSNorm"])
    assert not differences(training("Llama").plain(), found)
    assert "model.layers.1.mlp" in [unit.name for unit in found.core.units]
