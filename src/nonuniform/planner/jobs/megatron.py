"""Megatron-LM's arguments.

In: arguments, of a script or of YAML. Out: `Account`. DESIGN "Outside contract". Knows what
Megatron-LM does where an argument is missing; nothing of how the arguments were found.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from nonuniform.planner.jobs.account import Account, Value, Word
from nonuniform.planner.jobs.given import Given, Notebook, by_name

COUNTS = {
    "tensor-model-parallel-size": "tensor",
    "model-parallel-size": "tensor",
    "pipeline-model-parallel-size": "pipeline",
    "context-parallel-size": "context",
    "expert-model-parallel-size": "expert",
    "micro-batch-size": "micro_batch",
    "global-batch-size": "sequences",
    "seq-length": "length",
    "num-layers": "layers",
    "hidden-size": "hidden",
    "num-attention-heads": "heads",
    "kv-channels": "head_dim",
    "vocab-size": "vocab",
    "num-experts": "experts",
    "num-moe-experts": "experts",
    "train-iters": "steps",
    "train-samples": "samples",
    "save-interval": "checkpoint_every_steps",
    "num-layers-per-virtual-pipeline-stage": "chunk_layers",
    "num-virtual-stages-per-pipeline-rank": "interleave",
    "virtual-pipeline-model-parallel-size": "interleave",
}
# Read below, beside the counts.
SWITCHES = frozenset(
    (
        *("num-query-groups", "group-query-attention", "ffn-hidden-size"),
        *("moe-ffn-hidden-size", "moe-router-topk", "swiglu", "gated-linear-unit"),
        *("untie-embeddings-and-output-weights", "share-embeddings-and-output-weights", "bf16"),
        *("fp16", "fp8-format", "fp8", "fp8-recipe", "fp4-format", "recompute-granularity"),
        *("recompute-activations", "sequence-parallel", "tp-comm-overlap"),
        *("overlap-grad-reduce", "no-overlap-p2p-communication", "use-distributed-optimizer"),
        *("use-torch-fsdp2", "use-megatron-fsdp", "use-custom-fsdp"),
        *("data-parallel-sharding-strategy", "account-for-embedding-in-pipeline-split"),
        *("account-for-loss-in-pipeline-split", "decoder-first-pipeline-num-layers"),
        *("decoder-last-pipeline-num-layers", "pipeline-model-parallel-layout"),
        *("exit-duration-in-mins", "window-size", "overlap-param-gather"),
    )
)
SIGNS = frozenset(COUNTS) | SWITCHES  # a command that has some of these starts Megatron-LM
# Of no consequence for sizes, memory and time: what is learnt, from what, what is written where.
PASSED = re.compile(
    r"^(lr|min-lr|decoupled|weight-decay|adam|sgd|clip-grad|init-method|seed$|tokenizer|vocab-file|merge-file"
    r"|data-|train-data|valid-data|test-data|split|mock-data|num-workers|dataloader|no-create-attention-mask"
    r"|log|tensorboard|wandb|timing|profile|eval|save$|load$|ckpt|dist-ckpt|no-load|no-save|use-dist-ckpt"
    r"|finetune|exit-|attention-dropout|hidden-dropout|norm|layernorm|apply-layernorm|apply-query"
    r"|disable-bias|add-|position-embedding|use-rotary|rotary|rope|use-rope|no-rope|no-position|max-position"
    r"|make-vocab-size|loss-scale|initial-loss|min-loss|hysteresis|distributed|manual-gc|empty-unused"
    r"|use-mcore|use-legacy|transformer-impl|attention-backend|use-flash|no-masked|no-bias|bias-|no-gradient"
    r"|no-persist|no-mmap|reset-|eod|attention-softmax|accumulate|num-dataset|tiktoken|async-save|optimizer$"
    r"|moe-router-(load|pre|dtype|score|bias|enable)|moe-aux|moe-z|moe-token-disp|moe-grouped|moe-permute"
    r"|cross-entropy|calculate-per|check-for|no-check|tp-comm-overlap-cfg|cuda-graph|local-rank|lazy|use-cpu"
    r"|recompute-(method|num-layers|modules)|fp8-(amax|margin|param|interval)|non-persistent|override-opt|use-checkpoint|spec$|yaml-cfg|squared)"
)
VOCABULARIES = {
    "GPT2BPETokenizer": (50257, "the vocabulary of GPT-2"),
    "Llama2Tokenizer": (32000, "the vocabulary of Llama 2"),
    "Llama3Tokenizer": (128256, "the vocabulary of Llama 3"),
}
DEFAULTS: Mapping[str, Value] = {"tensor": 1, "pipeline": 1, "context": 1, "expert": 1}


def account(
    path: str, form: str, items: Sequence[Given], book: Notebook, mine: set[str]
) -> Account:
    """`mine`: arguments that belong to a launcher and were read by it."""
    flags = {name: item for name, item in by_name(items).items() if item.on}
    for item in items:
        if item.name in COUNTS and item.on:
            book.count(COUNTS[item.name], item)
    _model(book, flags)
    _numbers(book, flags)
    _program(book, flags)
    uneven = _stages(book, flags)
    passed = 0
    for item in items:
        if item.name in SIGNS or item.name in mine or not item.on:
            continue
        if PASSED.match(item.name):
            passed += 1
        else:
            book.leave(item)
    if passed:
        text = f"{passed} argument{'s' if passed > 1 else ''}"
        book.notes.append(("not used", text, "they change neither sizes nor time"))
    return Account(
        path=path,
        format=form,
        program="Megatron-LM",
        said=book.said,
        unknown=tuple(book.unknown),
        defaults=DEFAULTS,
        uneven=uneven,
        notes=tuple(book.notes),
    )


def _model(book: Notebook, flags: Mapping[str, Given]) -> None:
    groups = flags.get("num-query-groups")
    if groups is not None and "group-query-attention" in flags:
        book.count("kv_heads", groups)
    elif groups is not None:
        book.leave(groups, "without --group-query-attention it does nothing")
    gated = flags.get("swiglu") or flags.get("gated-linear-unit")
    _switch(book, "gated", gated, "--swiglu")
    untied = flags.get("untie-embeddings-and-output-weights")
    if untied is not None:
        book.put("tied", False, untied)
    else:
        book.derive("tied", True, "--untie-embeddings-and-output-weights is not given")
    experts = "experts" in book.said
    wide = flags.get("moe-ffn-hidden-size") if experts else None
    wide = wide or flags.get("ffn-hidden-size")
    if wide is not None:
        book.count("ffn", wide)
    if experts and "moe-router-topk" in flags:
        book.count("experts_per_token", flags["moe-router-topk"])
    elif experts:
        book.said["experts_per_token"] = Word(2, "the default of --moe-router-topk", "assumed")
    if "window-size" in flags:
        first = re.match(r"\W*(\d{1,9})", str(flags["window-size"].value))
        if first:
            book.put("window", int(first[1]), flags["window-size"])
    if "vocab" not in book.said and "tokenizer-type" in flags:
        kind = str(flags["tokenizer-type"].value)
        if kind in VOCABULARIES:
            number, why = VOCABULARIES[kind]
            book.derive("vocab", number, f"{flags['tokenizer-type'].note}: {why}")


def _numbers(book: Notebook, flags: Mapping[str, Given]) -> None:
    """Precision of the products."""
    eight = flags.get("fp8-format") or flags.get("fp8")
    if "fp4-format" in flags:
        text = "as mxfp8: FP4 is not modelled"
        book.said["precision"] = Word("mxfp8", f"{flags['fp4-format'].note}; {text}", "assumed")
    elif eight is not None:
        recipe = str(flags["fp8-recipe"].value) if "fp8-recipe" in flags else ""
        book.put("precision", "mxfp8" if recipe == "mxfp8" else "fp8", eight)
    elif "bf16" in flags:
        book.put("precision", "bf16", flags["bf16"])
    elif "fp16" in flags:
        book.derive("precision", "bf16", f"{flags['fp16'].note}: as fast as bf16")
    else:
        note = "neither --bf16 nor --fp16 is given; fp32 is not modelled"
        book.said["precision"] = Word("bf16", note, "assumed")


def _program(book: Notebook, flags: Mapping[str, Given]) -> None:
    """What is recomputed, cut over the replicas, and hidden behind computation."""
    granular = flags.get("recompute-granularity")
    if granular is not None and str(granular.value) in ("full", "selective"):
        book.put("recompute", str(granular.value), granular)
    elif "recompute-activations" in flags:
        book.put("recompute", "selective", flags["recompute-activations"])
    else:
        book.derive("recompute", "none", "--recompute-granularity is not given")
    _zero(book, flags)
    _switch(book, "sequence_parallel", flags.get("sequence-parallel"), "--sequence-parallel")
    _switch(book, "overlap_tensor", flags.get("tp-comm-overlap"), "--tp-comm-overlap")
    _switch(book, "overlap_data", flags.get("overlap-grad-reduce"), "--overlap-grad-reduce")
    interleaved = "interleave" in book.said or "chunk_layers" in book.said
    hidden = interleaved and "no-overlap-p2p-communication" not in flags
    why = "with interleaved stages, unless --no-overlap-p2p-communication"
    book.derive("overlap_pipeline", hidden, why)
    if "exit-duration-in-mins" in flags and "limit_days" not in book.said:
        given = flags["exit-duration-in-mins"]
        if not given.missing and str(given.value).isdigit() and len(str(given.value)) < 9:
            book.put("limit_days", int(str(given.value)) / 1440 or 1 / 1440, given)


def _zero(book: Notebook, flags: Mapping[str, Given]) -> None:
    fsdp = next(
        (
            f
            for n, f in flags.items()
            if n in ("use-torch-fsdp2", "use-megatron-fsdp", "use-custom-fsdp")
        ),
        None,
    )
    levels = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
    strategy = flags.get("data-parallel-sharding-strategy")
    if fsdp is not None and fsdp.name == "use-torch-fsdp2":
        book.put("zero", 3, fsdp)
    elif fsdp is not None:
        level = levels.get(str(strategy.value), 0) if strategy is not None else 0
        book.put("zero", level, strategy or fsdp)
    elif "use-distributed-optimizer" in flags:
        book.put("zero", 1, flags["use-distributed-optimizer"])
    else:
        book.derive("zero", 0, "--use-distributed-optimizer is not given")


def _switch(book: Notebook, key: str, given: Given | None, name: str) -> None:
    if given is not None:
        book.put(key, True, given)
    else:
        book.derive(key, False, f"{name} is not given")


def _stages(book: Notebook, flags: Mapping[str, Given]) -> str:
    """What else is laid on the stages like a layer, and why they may be uneven."""
    names = ("account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split")
    extra = [flags[name] for name in names if name in flags]
    if extra:
        note = " and ".join(item.spelled for item in extra)
        book.said["extra_layers"] = Word(len(extra), note, "stated")
    for name in (
        "pipeline-model-parallel-layout",
        "decoder-first-pipeline-num-layers",
        "decoder-last-pipeline-num-layers",
    ):
        if name in flags:
            return flags[name].note
    return ""


def launch_keys(book: Notebook, items: Sequence[Given]) -> set[str]:
    """GPUs, where YAML gives them beside Megatron-LM's arguments."""
    names = {
        "world-size": "gpus",
        "gpus": "gpus",
        "nodes": "nodes",
        "nnodes": "nodes",
        "num-nodes": "nodes",
        "gpus-per-node": "gpus_per_node",
        "nproc-per-node": "gpus_per_node",
        "data-parallel-size": "data",
    }
    for item in items:
        if item.name in names:
            book.count(names[item.name], item)
        if item.name == "job-name" and isinstance(item.value, str) and item.value.strip():
            book.put("name", item.value.strip(), item)
    return {*names, "job-name"}
