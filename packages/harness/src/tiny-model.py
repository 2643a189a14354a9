# Writes a model with random weights and a tokenizer of bytes, and LoRA adapters for it, so that a real engine runs without a download.
#
# Arguments: the kind (llama, or gemma3 for sliding windows and full attention), the folder to write, and names of adapters.
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

kind, folder, *adapters = sys.argv[1:]
out = pathlib.Path(folder)
out.mkdir(parents=True, exist_ok=True)

TEMPLATE = """{%- if tools %}<|im_start|>tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{{ message['role'] }}
{{ message['content'] or '' }}{% for call in message.get('tool_calls') or [] %}{{ call | tojson }}{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

letters = sorted(pre_tokenizers.ByteLevel.alphabet())
tokenizer = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens(["<s>", "</s>", "<|im_start|>", "<|im_end|>"])
fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="</s>")
fast.chat_template = TEMPLATE
fast.save_pretrained(out)

HIDDEN, HEADS, KV_HEADS, HEAD = 128, 4, 2, 32
common = {
    "vocab_size": 320,
    "hidden_size": HIDDEN,
    "intermediate_size": 256,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD,
    "max_position_embeddings": 4096,
    "bos_token_id": 256,
    "eos_token_id": 257,
    "pad_token_id": 257,
}
torch.manual_seed(0)
if kind == "gemma3":
    layers = ["sliding_attention"] * 3 + ["full_attention"]
    config = transformers.Gemma3TextConfig(**common, num_hidden_layers=4, layer_types=layers, sliding_window=64, query_pre_attn_scalar=HEAD)
    model = transformers.Gemma3ForCausalLM(config)
else:
    layers = ["full_attention"] * 2
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**common, num_hidden_layers=2))
model.to(torch.bfloat16).save_pretrained(out)

for number, name in enumerate(adapters):
    torch.manual_seed(1 + number)
    at = out / "adapters" / name
    at.mkdir(parents=True, exist_ok=True)
    told = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": 8,
        "lora_alpha": 16,
        "bias": "none",
        "target_modules": ["q_proj", "v_proj"],
        "base_model_name_or_path": "tiny",
    }
    (at / "adapter_config.json").write_text(json.dumps(told))
    weights = {}
    for layer in range(len(layers)):
        for module, width in (("q_proj", HEADS * HEAD), ("v_proj", KV_HEADS * HEAD)):
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            weights[f"{prefix}.lora_A.weight"] = torch.randn(8, HIDDEN) * 0.1
            weights[f"{prefix}.lora_B.weight"] = torch.randn(width, 8) * 0.1
    save_file(weights, str(at / "adapter_model.safetensors"))
