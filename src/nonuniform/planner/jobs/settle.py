"""From what a file says to a job whose sizes go together, or one line that says which do not.

In: `Account`. Out: `JobDescription` and its facts. Stated values are held against each other,
missing ones follow from equations, and what is left is assumed and marked:
    world = tensor x pipeline x context x data
    global batch = micro batch x data x accumulation
DESIGN "Outside contract". Knows no formats.
"""

from __future__ import annotations

from math import ceil
from typing import cast

from nonuniform.errors import BadInput
from nonuniform.perf.model import Model
from nonuniform.perf.parallelism import Recompute
from nonuniform.planner.jobs.account import Account, Word
from nonuniform.planner.jobs.description import JobDescription
from nonuniform.planner.jobs.fact import Fact, shown
from nonuniform.planner.jobs.ledger import Ledger
from nonuniform.planner.jobs.shape import shape

SIZES = {
    "tensor": "tensor parallel",
    "pipeline": "pipeline stages",
    "context": "context parallel",
    "expert": "expert parallel",
}
_PROGRAM = {
    "precision": "precision",
    "recompute": "recomputation",
    "zero": "ZeRO stage",
    "sequence_parallel": "sequence parallel",
    "overlap_tensor": "tensor-parallel traffic hidden",
    "overlap_data": "gradient traffic hidden",
    "overlap_pipeline": "pipeline traffic hidden",
}
_OTHERWISE: dict[str, str | int | bool] = {
    "precision": "bf16",
    "recompute": "none",
    "zero": 0,
    "sequence_parallel": False,
    "overlap_tensor": False,
    "overlap_data": False,
    "overlap_pipeline": False,
}


def settle(account: Account) -> tuple[JobDescription, tuple[Fact, ...]]:
    ledger = Ledger(f"job {shown(account.path.rsplit('/', 1)[-1], 60)}", dict(account.said))
    return _Settling(account, ledger).job(), tuple(ledger.facts)


class _Settling:
    def __init__(self, account: Account, ledger: Ledger) -> None:
        self.account = account
        self.ledger = ledger

    def job(self) -> JobDescription:
        ledger = self.ledger
        name = shown(str(ledger.take("name", "name").value))
        self._sizes()
        self._interleave()
        model = shape(self.account, ledger)
        self._world()
        self._batch()
        self._agree(model)
        self._duration()
        program = {key: self._program(key) for key in _PROGRAM}
        self._flag("preemptible", "preemptible")
        self._flag("requeue", "queued again after a failure")
        for note in self.account.notes:
            ledger.note(*note, "stated")
        return self._described(name, model, program)

    def _described(
        self, name: str, model: Model | None, program: dict[str, int | float | str | bool]
    ) -> JobDescription:
        ledger, words = self.ledger, self.ledger.words
        piped = words["pipeline"].whole > 1
        return JobDescription(
            name=name,
            model=model,
            tensor=words["tensor"].whole,
            pipeline=words["pipeline"].whole,
            context=words["context"].whole,
            expert=words["expert"].whole,
            interleave=words["interleave"].whole,
            micro_batch=words["micro_batch"].whole,
            data=ledger.get("data"),
            sequences=ledger.get("sequences"),
            length=ledger.get("length"),
            gpus=ledger.get("gpus"),
            domain=ledger.get("domain"),
            nodes=ledger.get("nodes"),
            gpus_per_node=ledger.get("gpus_per_node"),
            steps=ledger.get("steps"),
            tokens=self._real("tokens"),
            days=self._real("days"),
            limit_days=self._real("limit_days"),
            checkpoint_every_steps=ledger.get("checkpoint_every_steps"),
            precision=str(program["precision"]),
            recompute=cast(Recompute, str(program["recompute"])),
            zero=int(program["zero"]),
            sequence_parallel=bool(program["sequence_parallel"]),
            overlap_tensor=bool(program["overlap_tensor"]),
            overlap_data=bool(program["overlap_data"]),
            overlap_pipeline=bool(program["overlap_pipeline"]),
            preemptible=bool(words["preemptible"].value),
            requeue=bool(words["requeue"].value),
            uneven=piped and (bool(self.account.uneven) or ledger.has("extra_layers")),
        )

    def _refuse(self, text: str, *keys: str) -> BadInput:
        """`keys`: whose flags are named."""
        words = [self.ledger.words[key] for key in keys if key in self.ledger.words]
        named = dict.fromkeys(word.note for word in words if word.kind != "assumed")
        notes = "; ".join(named)
        return BadInput(f"{self.account.path}: {text} ({shown(notes, 300)})")

    def _assume(self, key: str, value: int | bool | str) -> None:
        defaults = self.account.defaults
        why = f"not in the file: the default of {self.account.program}"
        if key in defaults:
            self.ledger.default(key, Word(defaults[key], why, "assumed"))
        self.ledger.default(key, Word(value, "not in the file", "assumed"))

    def _sizes(self) -> None:
        if not self.ledger.has("experts") and not self.account.model_name:
            self.ledger.default("expert", Word(1, "no experts are given", "derived"))
        for key, name in SIZES.items():
            self._assume(key, 1)
            self.ledger.take(key, name)

    def _interleave(self) -> None:
        ledger = self.ledger
        layers, chunk = ledger.get("layers"), ledger.get("chunk_layers")
        pipeline = ledger.words["pipeline"].whole
        if chunk is not None and layers is not None and not ledger.has("interleave"):
            total = layers + (ledger.get("extra_layers") or 0)
            text = f"layers / (pipeline x layers of a piece) = {total} / ({pipeline} x {chunk})"
            if total % (pipeline * chunk):
                raise self._refuse(f"{text} is not whole", "layers", "pipeline", "chunk_layers")
            ledger.derive("interleave", total // (pipeline * chunk), text)
        ledger.default("interleave", Word(1, "the file gives no pieces of stages", "derived"))
        ledger.take("interleave", "pieces of a stage")

    def _world(self) -> None:
        """GPUs and replicas."""
        ledger = self.ledger
        self._owned()
        tensor, pipeline, context = (
            ledger.words[k].whole for k in ("tensor", "pipeline", "context")
        )
        replica = tensor * pipeline * context
        product = f"tensor x pipeline x context = {tensor} x {pipeline} x {context} = {replica}"
        gpus, data = ledger.get("gpus"), ledger.get("data")
        keys = ("tensor", "pipeline", "context", "gpus")
        if gpus is not None and gpus % replica:
            raise self._refuse(f"world = {gpus} GPUs do not divide by {product}", *keys)
        if gpus is not None and data is not None and gpus != replica * data:
            text = (
                f"world = tensor x pipeline x context x data = {tensor} x {pipeline} x {context} x "
                f"{data} = {replica * data}, but the job has {gpus} GPUs"
            )
            raise self._refuse(text, *keys, "data")
        if gpus is not None and data is None:
            ledger.derive("data", gpus // replica, f"world / ({product}) = {gpus} / {replica}")
        elif gpus is None:
            self._data_of_batch()
            data = ledger.get("data")
            if data is not None:
                text = f"{product.rsplit(' = ', 1)[0]} x {data}".replace(" =", " x data =", 1)
                ledger.derive("gpus", replica * data, text)
        if ledger.has("gpus", "data"):
            ledger.take("gpus", "GPUs")
            ledger.take("data", "data parallel")
        else:
            ledger.note("GPUs", "not known", "the file does not say on how many it runs", "assumed")

    def _owned(self) -> None:
        ledger = self.ledger
        nodes, each, gpus = (ledger.get(key) for key in ("nodes", "gpus_per_node", "gpus"))
        for key, name in (
            ("nodes", "nodes"),
            ("gpus_per_node", "GPUs of a node"),
            ("domain", "domain"),
        ):
            if ledger.has(key):
                ledger.take(key, name)
        if nodes is None or each is None:
            return
        text = f"nodes x GPUs of a node = {nodes} x {each}"
        if gpus is not None and gpus != nodes * each:
            line = f"{text} = {nodes * each}, but gpus = {gpus}"
            raise self._refuse(line, "nodes", "gpus_per_node", "gpus")
        notes = f"{text} ({ledger.words['nodes'].note}; {ledger.words['gpus_per_node'].note})"
        if gpus is None:
            ledger.derive("gpus", nodes * each, notes)

    def _data_of_batch(self) -> None:
        """Replicas that follow from the batch where the GPUs are not said."""
        ledger = self.ledger
        keys = ("sequences", "micro_batch", "accumulation")
        if ledger.has("data") or not ledger.has(*keys):
            return
        batch, micro, steps = (ledger.words[key].whole for key in keys)
        text = f"global batch / (micro batch x accumulation) = {batch} / ({micro} x {steps})"
        if batch % (micro * steps):
            raise self._refuse(f"{text} is not whole", *keys)
        ledger.derive("data", batch // (micro * steps), text)

    def _batch(self) -> None:
        ledger = self.ledger
        data, batch, steps = (ledger.get(k) for k in ("data", "sequences", "accumulation"))
        if (
            not ledger.has("micro_batch")
            and data
            and batch
            and steps
            and batch % (data * steps) == 0
        ):
            text = f"global batch / (data x accumulation) = {batch} / ({data} x {steps})"
            ledger.derive("micro_batch", batch // (data * steps), text)
        self._assume("micro_batch", 1)
        micro = ledger.take("micro_batch", "micro batch", " sequences").whole
        if batch is None and data is not None:
            self._assume("accumulation", 1)
            word = ledger.take("accumulation", "accumulation")
            text = f"micro batch x data x accumulation = {micro} x {data} x {word.whole}"
            ledger.derive("sequences", micro * data * word.whole, text)
        elif batch is not None and data is not None:
            self._divide_batch(batch, micro, data, steps)
        for key, name, unit in (
            ("sequences", "global batch", " sequences"),
            ("length", "length", " tokens"),
        ):
            if key == "length" and key in self.account.defaults:
                self._assume(key, 1)
            if ledger.has(key):
                ledger.take(key, name, unit)
            else:
                ledger.note(name, "not known", "the file does not say", "assumed")

    def _divide_batch(self, batch: int, micro: int, data: int, steps: int | None) -> None:
        keys = ("sequences", "micro_batch", "data", "accumulation")
        if batch % (micro * data):
            text = (
                f"global batch = {batch} does not divide by micro batch x data = {micro} x {data}"
            )
            raise self._refuse(f"{text} = {micro * data}", *keys)
        if steps is not None and batch != micro * data * steps:
            text = f"global batch = micro batch x data x accumulation = {micro} x {data} x {steps}"
            raise self._refuse(f"{text} = {micro * data * steps}, but {batch} is given", *keys)
        if steps is None:
            text = f"global batch / (micro batch x data) = {batch} / ({micro} x {data})"
            self.ledger.derive("accumulation", batch // (micro * data), text)
        self.ledger.take("accumulation", "accumulation")

    def _agree(self, model: Model | None) -> None:
        """Model, batch and spread against each other."""
        ledger, words = self.ledger, self.ledger.words
        tensor, context, expert = (words[k].whole for k in ("tensor", "context", "expert"))
        length = ledger.get("length")
        if length is not None and length % context:
            raise self._refuse(
                f"length / context = {length} / {context} is not whole", "length", "context"
            )
        data = ledger.get("data")
        if data is not None and (data * context * tensor) % expert:
            text = f"data x context x tensor / expert = {data} x {context} x {tensor} / {expert}"
            raise self._refuse(f"{text} is not whole", "expert", "data", "context", "tensor")
        if model is None:
            return
        if model.heads % tensor:
            text = f"heads / tensor = {model.heads} / {tensor} is not whole"
            raise self._refuse(text, "heads", "model", "tensor")
        if expert > 1 and (not model.experts or model.experts % expert):
            text = f"experts / expert = {model.experts} / {expert} is not whole"
            raise self._refuse(text, "experts", "model", "expert")
        self._layers(model.layers)

    def _layers(self, layers: int) -> None:
        words, uneven = self.ledger.words, self.account.uneven
        pipeline, pieces = words["pipeline"].whole, words["interleave"].whole
        extra = self.ledger.get("extra_layers") or 0
        total = layers + extra
        if extra:
            note = words["extra_layers"].note
            text = f"{layers} + {extra}"
            self.ledger.note("layers on stages", text, f"{note}: counted as layers", "stated")
        fits = total >= pipeline * pieces if uneven else total % (pipeline * pieces) == 0
        if not fits:
            text = f"layers / (pipeline x interleave) = {total} / ({pipeline} x {pieces})"
            why = "leaves a stage without a layer" if uneven else "is not whole"
            raise self._refuse(
                f"{text} {why}", "layers", "model", "pipeline", "interleave", "extra_layers"
            )
        if uneven and pipeline > 1:
            self.ledger.note("stages", "may be uneven", uneven, "stated")

    def _duration(self) -> None:
        ledger = self.ledger
        batch, length = ledger.get("sequences"), ledger.get("length")
        if ledger.has("samples") and not ledger.has("steps") and batch:
            samples = ledger.take("samples", "samples").whole
            ledger.derive(
                "steps", ceil(samples / batch), f"samples / global batch = {samples} / {batch}"
            )
        if batch and length:
            if ledger.has("steps") and not ledger.has("tokens"):
                text = f"steps x global batch x length = {ledger.get('steps')} x {batch} x {length}"
                ledger.derive("tokens", float(ledger.words["steps"].whole * batch * length), text)
            elif ledger.has("tokens") and not ledger.has("steps"):
                tokens = float(ledger.words["tokens"].value)
                text = f"tokens / (global batch x length) = {tokens:g} / ({batch} x {length})"
                ledger.derive("steps", ceil(tokens / (batch * length)), text)
        if ledger.has("limit_days") and not (
            ledger.has("steps") or ledger.has("days") or ledger.has("tokens")
        ):
            limit = ledger.words["limit_days"]
            note = f"its time limit: the file gives no steps ({limit.note})"
            ledger.words["days"] = Word(limit.value, note, "assumed")
        for key, name, unit in (
            ("steps", "steps", ""),
            ("tokens", "tokens", ""),
            ("days", "duration", " days"),
            ("limit_days", "time limit", " days"),
            ("checkpoint_every_steps", "checkpoint every", " steps"),
        ):
            if ledger.has(key):
                ledger.take(key, name, unit)

    def _program(self, key: str) -> int | float | str | bool:
        self._assume(key, _OTHERWISE[key])
        return self.ledger.take(key, _PROGRAM[key]).value

    def _flag(self, key: str, name: str) -> None:
        self.ledger.default(key, Word(False, "the file does not say that it is", "assumed"))
        self.ledger.take(key, name)

    def _real(self, key: str) -> float | None:
        return float(self.ledger.words[key].value) if self.ledger.has(key) else None
