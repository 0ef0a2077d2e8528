"""An adapter is trained by TRL's SFTTrainer, and the model beneath it stays on the drive, by one line. Run again it
goes on from its last checkpoint.

    python examples/sft_lora.py /nvme/sft

prints TRL's own lines, and at the end

    trained for 12 steps: 3,584 of 79,680 parameters
    the adapter, loaded again, answers as it did: True
"""
import sys
from pathlib import Path

import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer

import penstock.hugging_face

place = Path(sys.argv[1] if len(sys.argv) > 1 else "example-sft")
base = place / "base"  # stands for the directory of the model that you have
if not base.exists():
    letters = Tokenizer(models.BPE({letter: at for at, letter in enumerate("_$ +=0123456789")}, []))
    PreTrainedTokenizerFast(tokenizer_object=letters, pad_token="_", eos_token="$").save_pretrained(base)
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(vocab_size=16, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                                 num_attention_heads=4, num_key_value_heads=2, pad_token_id=0, bos_token_id=None,
                                 eos_token_id=1)).save_pretrained(base)

sums = [{"prompt": f"{a} + {b} = ", "completion": f"{a + b}"} for a in range(8) for b in range(12)]
trainer = SFTTrainer(
    model=str(base), train_dataset=Dataset.from_list(sums),
    peft_config=LoraConfig(r=8, target_modules=["q_proj", "v_proj"]),
    args=SFTConfig(output_dir=str(place / "out"), num_train_epochs=1, save_steps=6, logging_steps=3, learning_rate=1e-2,
                   per_device_train_batch_size=8, report_to=[], use_cpu=not torch.cuda.is_available(), bf16=False))
penstock.hugging_face.offload(trainer, place / "store")  # the line
trainer.train(resume_from_checkpoint=get_last_checkpoint(place / "out"))
trainer.save_model(str(place / "adapter"))
trained, total = trainer.model.get_nb_trainable_parameters()
print(f"trained for {trainer.state.global_step} steps: {trained:,} of {total:,} parameters")

again = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), place / "adapter").to(trainer.args.device)
question = trainer.processing_class("3 + 4 = ", return_tensors="pt").input_ids.to(trainer.args.device)
with torch.no_grad():
    answers = [model.eval()(question).logits for model in (trainer.model, again)]
print(f"the adapter, loaded again, answers as it did: {torch.equal(*answers)}")
