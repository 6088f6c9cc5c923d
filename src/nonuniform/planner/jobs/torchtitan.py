"""torchtitan's TOML.

In: plain values. Out: `Account`. DESIGN "Outside contract". Knows torchtitan's sections and
defaults; its models only as far as the catalog has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from nonuniform.errors import BadInput
from nonuniform.planner.jobs.account import Account, Value, Word
from nonuniform.planner.jobs.fact import shown
from nonuniform.planner.jobs.given import Given, Notebook

COUNTS = {
    "parallelism.tensor_parallel_degree": "tensor",
    "parallelism.pipeline_parallel_degree": "pipeline",
    "parallelism.context_parallel_degree": "context",
    "parallelism.expert_parallel_degree": "expert",
    "training.tensor_parallel_degree": "tensor",
    "experimental.pipeline_parallel_degree": "pipeline",
    "experimental.context_parallel_degree": "context",
    "training.seq_len": "length",
    "training.steps": "steps",
}
READ = frozenset(
    (
        *("training.local_batch_size", "training.batch_size", "training.global_batch_size"),
        *("model.name", "model.flavor", "model.converters", "job.description"),
        *("activation_checkpoint.mode", "checkpoint.enable_checkpoint", "checkpoint.enable"),
        *("checkpoint.interval", "float8.recipe_name"),
        *("parallelism.data_parallel_replicate_degree",),
        *("parallelism.data_parallel_shard_degree", "parallelism.pipeline_parallel_schedule"),
        *("parallelism.pipeline_parallel_microbatch_size",),
        *("parallelism.fsdp_reshard_after_forward", "parallelism.enable_async_tensor_parallel"),
        *("training.enable_async_tensor_parallel", "training.data_parallel_replicate_degree"),
        *("training.data_parallel_shard_degree", "parallelism.enable_sequence_parallel"),
    )
)
# Sections of no consequence for sizes, memory and time.
PASSED = frozenset(
    (
        *("job", "profiling", "metrics", "optimizer", "lr_scheduler", "comm"),
        *("memory_estimation", "debug", "validation", "checkpoint", "float8", "mx", "quantize"),
        *("compile", "activation_checkpoint", "tokenizer"),
    )
)
PASSED_KEYS = frozenset(
    (
        *("dataset", "dataset_path", "max_norm", "seed", "deterministic", "gc_freq"),
        *("gc_debug", "compile", "tokenizer_path", "print_after_conversion", "hf_assets_path"),
        *("mixed_precision_param", "mixed_precision_reduce", "dtype", "disable_loss_parallel"),
        *("context_parallel_rotate_method", "norm_type", "custom_import", "custom_args_module"),
        *("data_parallel_type",),
    )
)
MODELS = {
    ("llama3", "8b"): "llama3_8b",
    ("llama3", "70b"): "llama3_70b",
    ("llama3", "405b"): "llama3_405b",
    ("qwen3", "30b-a3b"): "qwen3_30b_a3b",
}
PIECES = {
    "interleaved1f1b": 2,
    "zbvzerobubble": 2,
    "interleavedzerobubble": 2,
    "loopedbfs": 2,
    "dualpipev": 2,
}
DEFAULTS: Mapping[str, Value] = MappingProxyType(
    {"tensor": 1, "pipeline": 1, "context": 1, "expert": 1, "length": 2048, "micro_batch": 8}
)


def account(path: str, leaves: list[tuple[str, object]], book: Notebook) -> Account:
    values = {key: _given(key, value) for key, value in leaves}
    for key, ours in COUNTS.items():
        if key in values:
            book.count(ours, values[key])
    name = _model(book, values)
    _replicas(book, values)
    _batch(book, values)
    _program(book, values)
    _checkpoint(book, values)
    for key, given in values.items():
        section, _, last = key.partition(".")
        known = key in COUNTS or key in READ or section in PASSED or last in PASSED_KEYS
        if not known:
            book.leave(given, "")
    return Account(
        path=path,
        format="torchtitan",
        program="torchtitan",
        said=book.said,
        unknown=tuple(book.unknown),
        defaults=DEFAULTS,
        uneven="torchtitan cuts layers as evenly as it goes",
        model_name=name,
        notes=tuple(book.notes),
    )


def _given(key: str, value: object) -> Given:
    section, _, last = key.rpartition(".")
    return Given(last, value, f"[{section}] {last}", key, value is not False)


def _first(values: Mapping[str, Given], *keys: str) -> Given | None:
    return next((values[key] for key in keys if key in values), None)


def _model(book: Notebook, values: Mapping[str, Given]) -> str:
    name, flavor = values.get("model.name"), values.get("model.flavor")
    if "job.description" in values:
        book.put("name", shown(str(values["job.description"].value)), values["job.description"])
    if name is None or flavor is None:
        return ""
    found = MODELS.get((str(name.value).lower(), str(flavor.value).lower()), "")
    if found:
        book.said["model"] = Word(found, f"{name.note} and flavor = {shown(str(flavor.value), 40)}")
    else:
        text = f"{name.value} {flavor.value}"
        book.unknown.append(f"model {shown(text, 80)} (not in the catalog)")
    return found


def _replicas(book: Notebook, values: Mapping[str, Given]) -> None:
    copies = _first(
        values,
        "parallelism.data_parallel_replicate_degree",
        "training.data_parallel_replicate_degree",
    )
    shards = _first(
        values, "parallelism.data_parallel_shard_degree", "training.data_parallel_shard_degree"
    )
    many = _whole(book, copies) if copies else 1
    cut = _whole(book, shards) if shards else -1
    notes = " x ".join(item.note for item in (copies, shards) if item)
    if cut > 0 and shards is not None:
        book.said["data"] = Word(many * cut, notes, "derived" if many > 1 else "stated")
    elif cut != -1:
        raise BadInput(
            f"{book.path}: [parallelism] data_parallel_shard_degree = {cut}: -1 or above 0"
        )
    why = notes or "[parallelism] data_parallel_shard_degree is not given: all GPUs"
    if cut == 1:
        book.derive("zero", 0, f"{why}: weights are not cut")
        return
    policy = values.get("parallelism.fsdp_reshard_after_forward")
    kept = policy is not None and policy.value == "never"
    piped = book.said.get("pipeline", Word(1, "")).whole > 1
    kept = kept or (piped and (policy is None or policy.value == "default"))
    text = "weights stay whole until the backward pass" if kept else "weights are cut too"
    book.derive("zero", 2 if kept else 3, f"{why}; FSDP: {text}")


def _whole(book: Notebook, given: Given) -> int:
    if (
        isinstance(given.value, bool)
        or not isinstance(given.value, int)
        or abs(given.value) > 10**9
    ):
        raise BadInput(f"{book.path}: {given.note} = {given.value!r}: must be a whole number")
    return given.value


def _batch(book: Notebook, values: Mapping[str, Given]) -> None:
    local = _first(values, "training.local_batch_size", "training.batch_size")
    whole = values.get("training.global_batch_size")
    piped = book.said.get("pipeline", Word(1, "")).whole > 1
    if whole is not None and _whole(book, whole) > 0:
        book.count("sequences", whole)
    if not piped:
        if local is not None:
            book.count("micro_batch", local)
        return
    piece = values.get("parallelism.pipeline_parallel_microbatch_size")
    if piece is not None:
        book.count("micro_batch", piece)
    else:
        why = "the default of pipeline_parallel_microbatch_size"
        book.said["micro_batch"] = Word(1, why, "assumed")
    if local is not None and "sequences" not in book.said:
        size, micro = _whole(book, local), book.said["micro_batch"].whole
        if size < 1 or size % micro:
            raise BadInput(
                f"{book.path}: {local.note} = {size} does not divide by the micro batch = {micro}"
            )
        book.derive("accumulation", size // micro, f"{local.note} / micro batch = {size} / {micro}")


def _program(book: Notebook, values: Mapping[str, Given]) -> None:
    mode = values.get("activation_checkpoint.mode")
    if mode is not None and str(mode.value) in ("none", "selective", "full"):
        book.put("recompute", str(mode.value), mode)
    else:
        book.said["recompute"] = Word("selective", "the default of torchtitan", "assumed")
    _precision(book, values)
    cut = values.get("parallelism.enable_sequence_parallel")
    if cut is not None and not cut.on:
        book.put("sequence_parallel", False, cut)
    else:
        book.derive("sequence_parallel", True, "torchtitan cuts norms along the sequence")
    hidden = _first(
        values, "parallelism.enable_async_tensor_parallel", "training.enable_async_tensor_parallel"
    )
    if hidden is not None:
        book.put("overlap_tensor", hidden.on, hidden)
    else:
        book.derive("overlap_tensor", False, "enable_async_tensor_parallel is not given")
    book.derive("overlap_data", True, "FSDP fetches ahead")
    book.derive("overlap_pipeline", True, "its schedules send beside computation")
    schedule = values.get("parallelism.pipeline_parallel_schedule")
    pieces = PIECES.get(str(schedule.value).lower(), 1) if schedule is not None else 1
    if schedule is not None and pieces > 1:
        book.derive("interleave", pieces, f"{schedule.note} = {shown(str(schedule.value), 40)}")


def _precision(book: Notebook, values: Mapping[str, Given]) -> None:
    given = values.get("model.converters")
    listed = given.value if given is not None else ()
    names = listed.split(",") if isinstance(listed, str) else listed
    text = " ".join(str(name) for name in names) if isinstance(names, list | tuple) else ""
    if given is not None and "mx" in text:
        book.put("precision", "mxfp8", given)
    elif given is not None and "float8" in text:
        book.put("precision", "fp8", given)
    else:
        book.derive("precision", "bf16", "mixed precision is on, no converter to 8 bits is given")


def _checkpoint(book: Notebook, values: Mapping[str, Given]) -> None:
    on = _first(values, "checkpoint.enable_checkpoint", "checkpoint.enable")
    every = values.get("checkpoint.interval")
    if on is None or not on.on:
        why = on.note if on is not None else "[checkpoint] is not switched on"
        book.notes.append(("checkpoints", "none", why))
    elif every is not None:
        book.count("checkpoint_every_steps", every)
    else:
        book.said["checkpoint_every_steps"] = Word(500, "the default of torchtitan", "assumed")
