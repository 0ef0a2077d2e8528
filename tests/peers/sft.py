"""Fine-tuning as scripts for TRL 0.15 and transformers 4.49 write it: sft.py SETTINGS, by peers.py."""
import json
import sys

with open(sys.argv[1]) as file:
    settings = json.load(file)
if "deepspeed" in settings:
    import penstock.deepspeed  # noqa: F401  the only new line

from datasets import load_dataset  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed  # noqa: E402
from trl import SFTConfig, SFTTrainer  # noqa: E402

model_path, data_path = settings.pop("model"), settings.pop("data")
resume, lora = settings.pop("resume_from_checkpoint", None), settings.pop("lora")
peft_config = None
if lora:
    from peft import LoraConfig

    peft_config = LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM")
set_seed(42)  # adapters are drawn before the trainer draws
tokenizer = AutoTokenizer.from_pretrained(model_path, trust_remote_code=True)
tokenizer.pad_token = tokenizer.eos_token
rows = load_dataset("json", data_files=data_path, split="train")
train_dataset = rows.map(
    lambda row: {"text": f"{row['instruction']} {row['output']}"}, remove_columns=rows.column_names)
training_args = SFTConfig(
    warmup_ratio=0.25, lr_scheduler_type="constant_with_warmup", weight_decay=0.0, max_seq_length=64,
    ddp_find_unused_parameters=False, gradient_checkpointing=True, dataloader_num_workers=2,
    dataloader_pin_memory=True, **settings)
trainer = SFTTrainer(
    model=AutoModelForCausalLM.from_pretrained(model_path), processing_class=tokenizer, args=training_args,
    train_dataset=train_dataset, peft_config=peft_config)
trainer.train(resume_from_checkpoint=resume)
trainer.save_model()
