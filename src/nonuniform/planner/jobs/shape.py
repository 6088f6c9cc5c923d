"""The model of a job, from what its file says.

In: an account, and what was understood so far. Out: `Model` or None, with a fact for each of its
numbers. DESIGN "Outside contract". Does not know: which format the file has.
"""

from __future__ import annotations

from nonuniform.errors import BadInput
from nonuniform.perf.catalog import load_model
from nonuniform.perf.model import Model
from nonuniform.planner.jobs.account import Account, Word
from nonuniform.planner.jobs.ledger import Ledger

NEEDED = ("layers", "hidden", "heads")
VOCABULARY = 128_256  # where nothing says it: of today's models
NAMES = {
    "kv_heads": "KV heads",
    "head_dim": "width of a head",
    "ffn": "FFN width",
    "vocab": "vocabulary",
    "gated": "gated FFN",
    "tied": "embeddings tied",
    "experts_per_token": "experts of a token",
}


def shape(account: Account, ledger: Ledger) -> Model | None:
    """None, with a fact that says so, where the file does not describe a model."""
    if account.model_name:
        model = load_model(account.model_name)
        where = account.said["model"].note if "model" in account.said else ""
        ledger.note("model", f"{model.name}: {_sizes(model)}", f"catalog; {where}", "stated")
        return model
    lacks = [key for key in NEEDED if key not in account.said]
    if lacks:
        why = f"the file does not give {', '.join(lacks)}"
        ledger.note("model", "not described", f"{why}; no step time can be computed", "assumed")
        return None
    try:
        return _own(account, ledger)
    except BadInput as error:
        where = f"{account.path}: "
        raise BadInput(where + str(error).removeprefix(where)) from None


def _own(account: Account, ledger: Ledger) -> Model:
    layers, hidden, heads = (ledger.take(key, key).whole for key in NEEDED)
    sizes = _derived(account, ledger, hidden, heads)
    gated, tied = (bool(_given(ledger, key, False).value) for key in ("gated", "tied"))
    rest = {
        key: ledger.take(key, NAMES.get(key, key)).whole
        for key in ("window", "experts", "experts_per_token")
        if key in account.said
    }
    if not rest.get("experts"):
        rest.pop("experts_per_token", None)
    elif "experts_per_token" not in rest:
        rest["experts_per_token"] = _given(ledger, "experts_per_token", 2).whole
    return Model(
        name=str(account.said["name"].value) if "name" in account.said else "model",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=sizes["kv_heads"],
        head_dim=sizes["head_dim"],
        ffn=sizes["ffn"],
        vocab=sizes["vocab"],
        gated=gated,
        tied=tied,
        window=rest.get("window", 0),
        experts=rest.get("experts", 0),
        experts_per_token=rest.get("experts_per_token", 0),
    )


def _derived(account: Account, ledger: Ledger, hidden: int, heads: int) -> dict[str, int]:
    """Numbers that follow from others where the file is silent."""
    said = account.said
    if "head_dim" not in said:
        if hidden % heads:
            raise BadInput(
                f"{account.path}: hidden / heads = {hidden} / {heads} is not whole "
                f"({said['hidden'].note}, {said['heads'].note})"
            )
        ledger.derive("head_dim", hidden // heads, f"hidden / heads = {hidden} / {heads}")
    ledger.default("kv_heads", Word(heads, "as many as heads: no groups are given", "derived"))
    if "ffn" not in said:
        gated = "gated" in said and bool(said["gated"].value)
        width = int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden
        equation = f"4 x 2/3 x {hidden}, in whole 64" if gated else f"4 x hidden = 4 x {hidden}"
        ledger.derive("ffn", width, equation)
    ledger.default("vocab", Word(VOCABULARY, "the file does not say", "assumed"))
    keys = ("kv_heads", "head_dim", "ffn", "vocab")
    return {key: ledger.take(key, NAMES[key]).whole for key in keys}


def _given(ledger: Ledger, key: str, otherwise: int | bool) -> Word:
    ledger.default(key, Word(otherwise, "the file does not say", "assumed"))
    return ledger.take(key, NAMES[key])


def _sizes(model: Model) -> str:
    return f"{model.layers} layers, hidden {model.hidden}, {model.heads} heads"
