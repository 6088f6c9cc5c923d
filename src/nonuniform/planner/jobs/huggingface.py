"""Hugging Face TrainingArguments and config.json, with DeepSpeed's JSON.

In: plain values of up to four kinds of tables. Out: `Account`. DESIGN "Outside contract". Knows
their keys and defaults; nothing of how the tables were found (huggingface_files.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from nonuniform.errors import BadInput
from nonuniform.planner.jobs.account import Account, Value, Word
from nonuniform.planner.jobs.given import Given, Notebook
from nonuniform.planner.jobs.huggingface_files import Table

TRAINING = {
    "per_device_train_batch_size": "micro_batch",
    "gradient_accumulation_steps": "accumulation",
    "max_steps": "steps",
    "save_steps": "checkpoint_every_steps",
    "max_seq_length": "length",
    "max_length": "length",
    "model_max_length": "length",
    "block_size": "length",
    "cutoff_len": "length",
    "tp_size": "tensor",
    "cp_size": "context",
}
# Read below, beside the counts.
TRAINING_READ = frozenset(
    (
        *("bf16", "fp16", "gradient_checkpointing", "deepspeed", "fsdp", "run_name"),
        *("save_strategy", "num_train_epochs", "model_name_or_path", "config_name"),
        *("torch_dtype", "fsdp_config"),
    )
)
CONFIG = {
    "num_hidden_layers": "layers",
    "n_layer": "layers",
    "hidden_size": "hidden",
    "n_embd": "hidden",
    "num_attention_heads": "heads",
    "n_head": "heads",
    "num_key_value_heads": "kv_heads",
    "head_dim": "head_dim",
    "vocab_size": "vocab",
    "num_local_experts": "experts",
    "num_experts": "experts",
    "n_routed_experts": "experts",
    "num_experts_per_tok": "experts_per_token",
}
GATED = ("silu", "swish", "swiglu", "geglu", "gelu_pytorch_tanh")
UNGATED_MODELS = ("gpt2", "gpt_neox", "gptj", "opt", "bloom", "falcon", "starcoder2", "phi")
UNLIKE = (
    "kv_lora_rank",
    "first_k_dense_replace",
    "n_shared_experts",
    "shared_expert_intermediate_size",
)
DEEPSPEED = {
    "train_batch_size": "sequences",
    "train_micro_batch_size_per_gpu": "micro_batch",
    "gradient_accumulation_steps": "accumulation",
}
DEEPSPEED_READ = frozenset(
    ("bf16", "fp16", "zero_optimization", "tensor_parallel", "sequence_parallel_size")
)
DEEPSPEED_PASSED = frozenset(
    (
        *("optimizer", "scheduler", "gradient_clipping", "steps_per_print"),
        *("wall_clock_breakdown", "fp16_opt_level", "zero_allow_untested_optimizer"),
        *("zero_force_ds_cpu_optimizer", "prescale_gradients", "flops_profiler"),
        *("communication_data_type", "activation_checkpointing", "tensorboard", "dump_state"),
        *("comms_logger", "wandb"),
    )
)
PASSED_STARTS = (
    *(
        "output",
        "overwrite",
        "do_",
        "eval",
        "per_device_eval",
        "learning_rate",
        "lr_",
        "weight_decay",
        "adam",
    ),
    *(
        "warmup",
        "logging",
        "log_",
        "report_to",
        "seed",
        "data_seed",
        "dataloader",
        "push_to_hub",
        "hub_",
        "label",
    ),
    *(
        "max_grad_norm",
        "save_total",
        "save_safetensors",
        "save_only",
        "remove_unused",
        "optim",
        "metric",
        "dataset",
    ),
    *(
        "load_best",
        "greater",
        "tf32",
        "ddp_",
        "resume",
        "group_by",
        "prediction",
        "torch_compile",
        "tokenizer",
    ),
    *(
        "disable_tqdm",
        "run_",
        "train_file",
        "validation",
        "streaming",
        "preprocessing",
        "gradient_checkpointing_",
    ),
)
DEFAULTS: Mapping[str, Value] = MappingProxyType(
    {"tensor": 1, "pipeline": 1, "context": 1, "expert": 1, "micro_batch": 8, "accumulation": 1}
)


def account(path: str, tables: Mapping[str, Table], book: Notebook) -> Account:
    """`tables`: any of training, deepspeed, config and accelerate."""
    training, deepspeed = _values(tables, "training"), _values(tables, "deepspeed")
    _counts(book, training, TRAINING)
    _counts(book, deepspeed, DEEPSPEED)
    _training(book, training)
    _deepspeed(book, deepspeed)
    _model(book, _values(tables, "config"))
    _counts(book, _values(tables, "accelerate"), {"num_processes": "gpus", "num_machines": "nodes"})
    _precision(book, training, deepspeed)
    seen = {*TRAINING, *TRAINING_READ, *DEEPSPEED, *DEEPSPEED_READ, *DEEPSPEED_PASSED}
    for given in (*training.values(), *deepspeed.values()):
        if given.name not in seen and not given.name.startswith(PASSED_STARTS):
            book.leave(given)
    return Account(
        path=path,
        format="huggingface",
        program="Transformers",
        said=book.said,
        unknown=tuple(book.unknown),
        defaults=DEFAULTS,
        notes=tuple(book.notes),
    )


def _values(tables: Mapping[str, Table], role: str) -> dict[str, Given]:
    table = tables.get(role)
    if table is None:
        return {}
    return {
        key: _given(table, key, value) for key, value in table.values.items() if value is not None
    }


def _given(table: Table, key: str, value: object) -> Given:
    if isinstance(value, Given):
        return value
    return Given(key, value, f"{table.file}: {key}", key, value is not False)


def _counts(book: Notebook, values: Mapping[str, Given], names: Mapping[str, str]) -> None:
    """ "auto" leaves it to the other file; -1 means that it is not set."""
    for key, ours in names.items():
        given = values.get(key)
        if given is None or given.value in ("auto", -1, "-1"):
            continue
        if key == "save_steps" and (isinstance(given.value, float) and 0 < given.value < 1):
            book.leave(given, "a share of all steps")
        elif ours == "checkpoint_every_steps" and values.get("save_strategy", given).value in (
            "no",
            "epoch",
        ):
            book.leave(given, "save_strategy says otherwise")
        else:
            book.count(ours, given)


def _training(book: Notebook, values: Mapping[str, Given]) -> None:
    if "run_name" in values:
        book.put("name", str(values["run_name"].value), values["run_name"])
    again = values.get("gradient_checkpointing")
    if again is not None and _true(again):
        book.put("recompute", "full", again)
    elif values:
        book.derive("recompute", "none", "gradient_checkpointing is not on")
    if "max_steps" not in values and "num_train_epochs" in values:
        book.leave(values["num_train_epochs"], "the size of the data is not known")
    fsdp = str(values["fsdp"].value) if "fsdp" in values else ""
    if "full_shard" in fsdp or "hybrid_shard" in fsdp:
        book.put("zero", 3, values["fsdp"])
    elif "shard_grad_op" in fsdp:
        book.put("zero", 2, values["fsdp"])


def _deepspeed(book: Notebook, values: Mapping[str, Given]) -> None:
    zero = values.get("zero_optimization")
    table: Any = zero.value if zero is not None else None
    if zero is not None and isinstance(table, dict):
        note = zero.note
        book.count("zero", Given("stage", table.get("stage", 0), f"{note}.stage", "stage"))
        if book.said["zero"].whole > 3:
            raise BadInput(f"{book.path}: {note}.stage = {table['stage']}: known are 0, 1, 2, 3")
        hidden = table.get("overlap_comm", book.said["zero"].whole == 3)
        book.derive("overlap_data", hidden is True, f"{note}.overlap_comm")
        for key in ("offload_optimizer", "offload_param"):
            device = table[key].get("device") if isinstance(table.get(key), dict) else None
            if device not in (None, "none"):
                book.unknown.append(f"{key} to {device} ({note}: offloading is not modelled)")
    cut = values.get("tensor_parallel")
    if cut is not None and isinstance(cut.value, dict):
        for key in ("autotp_size", "tp_size"):
            if key in cut.value:
                book.count("tensor", Given(key, cut.value[key], f"{cut.note}.{key}", key))
    ulysses = values.get("sequence_parallel_size")
    if ulysses is not None:
        book.count("context", ulysses)


def _model(book: Notebook, values: Mapping[str, Given]) -> None:
    if not values:
        return
    _counts(book, values, CONFIG)
    kind = str(values["model_type"].value) if "model_type" in values else ""
    experts = "experts" in book.said
    wide = values.get("moe_intermediate_size") if experts else None
    wide = wide or values.get("intermediate_size") or values.get("n_inner")
    if wide is not None:
        book.count("ffn", wide)
    act = values.get("hidden_act") or values.get("activation_function")
    gated = act is not None and str(act.value) in GATED and kind not in UNGATED_MODELS
    why = f"{act.note} = {act.value}" if act is not None else "no activation is given"
    book.derive("gated", gated, f"{why}; {kind or 'no model_type'}")
    tied = values.get("tie_word_embeddings")
    if tied is not None and isinstance(tied.value, bool):
        book.put("tied", tied.value, tied)
    else:
        book.derive("tied", True, "the default of tie_word_embeddings")
    window = values.get("sliding_window")
    if window is not None and values.get("use_sliding_window", window).value is not False:
        book.count("window", window)
    for key in UNLIKE:
        if key in values and values[key].value not in (0, None):
            book.leave(values[key], "not modelled: the model is taken without it")


def _precision(
    book: Notebook, training: Mapping[str, Given], deepspeed: Mapping[str, Given]
) -> None:
    for values in (training, deepspeed):
        for key in ("bf16", "fp16"):
            given = values.get(key)
            if given is None or not _true(given):
                continue
            if key == "bf16":
                book.put("precision", "bf16", given)
            else:
                book.derive("precision", "bf16", f"{given.note}: as fast as bf16")
            return
    book.said["precision"] = Word(
        "bf16", "neither bf16 nor fp16 is on; fp32 is not modelled", "assumed"
    )


def _true(given: Given) -> bool:
    value = given.value.get("enabled") if isinstance(given.value, dict) else given.value
    return value is True or (isinstance(value, str) and value.lower() in ("true", "1", ""))
