"""The answer of a plan in three sentences, and three more that can be said in a meeting.

In: a summary as a `Place`. Out: sentences filled with its figures. Which sentences are said
follows from the verdict: "do it", "don't do it" and "it can't be told" each have their own. Works
nothing out: every number is one of the summary's. Does not know what a page looks like.
"""

from __future__ import annotations

from dataclasses import dataclass

from nonuniform.report.figures import Figure, Place
from nonuniform.report.phrases import Phrase
from nonuniform.report.said import Both, Joined, Said, Verbatim
from nonuniform.report.texts import Texts

# More of them do not fit into a sentence; the table has all.
CHANGES_SAID = 3
# Reasons that lie in the job: what it would save otherwise is not to be said.
BY_ITSELF = ("tensor-parallel-1", "few-failures", "short-job", "preemptible")


@dataclass(frozen=True)
class Spoken:
    """A sentence for a meeting, and the one caveat that belongs to it."""

    words: Said
    caveat: Said


@dataclass(frozen=True)
class Told:
    """What the sentences are made of."""

    texts: Texts
    summary: Place
    worth: str
    job: Place
    today: Place
    chosen: Place

    @property
    def recommendation(self) -> Place:
        return self.summary["recommendation"]

    @property
    def changes(self) -> bool:
        """Another answer than today's; also the same one with spares."""
        return bool(self.summary["verdict"]["change"].data)

    def name(self, place: Place) -> Said:
        """Of a policy, as the files write it."""
        return Verbatim(place.key)


def told(summary: Place, texts: Texts) -> Told:
    verdict = summary["verdict"]
    job = job_named(summary, summary["recommendation"]["job"].words())
    policies = job["policies"]
    worth = verdict["worth"].words()
    return Told(
        texts, summary, worth if worth in ("yes", "no") else "unclear", job,
        policies[verdict["today"].words()], policies[verdict["policy"].words()],
    )  # fmt: skip


def job_named(summary: Place, name: str) -> Place:
    """The job of this name, or the first."""
    jobs = list(summary["jobs"])
    return next((job for job in jobs if job["name"].words() == name), summary["jobs"][0])


def answer(told: Told) -> tuple[Said, Said, Said]:
    if told.worth == "yes":
        return _first_yes(told), _do(told), _sure(told, "if_yes", _certainty(told))
    if told.worth == "no":
        return _first_no(told), _stay(told, "if_no"), _sure(told, "if_no", "sure")
    return _first_unclear(told), _stay(told, "if_unclear"), _sure(told, "if_unclear", "sure")


def _first_yes(told: Told) -> Said:
    """With what the best answer without unequal replicas would bring."""
    simpler = max(
        (place for name, place in told.job["policies"].items() if name.startswith("dp-drop")),
        key=lambda place: float(place["net"]["value"].data),
    )
    return told.texts(
        "plan.if_yes.first",
        job=told.job["name"].name(),
        policy=told.name(told.chosen),
        today=told.name(told.today),
        saved=told.recommendation["saved"].figure(),
        net=told.recommendation["net"].figure(),
        simpler=told.name(simpler),
        simpler_net=simpler["net"].figure(),
    )


def _do(told: Told) -> Said:
    advice = told.recommendation
    boost = advice.get("boost")
    gaps: dict[str, Said | str | int] = {
        "policy": told.name(told.chosen),
        "reserve": _reserve(told),
        "min_degree": advice["min_degree"].figure(),
        "checkpoint": advice["checkpoint_every"]["recommended"].figure(),
    }
    if boost is None:
        return told.texts("plan.if_yes.do", **gaps)
    return told.texts("plan.if_yes.do_boost", boost=boost.figure(), **gaps)


def _reserve(told: Told) -> Said:
    spares = told.recommendation["spare_domains"].figure()
    if not spares.value:
        return told.texts("plan.reserve.none")
    where = Phrase(told.recommendation["spares_where"].words())
    return told.texts("plan.reserve.some", spares=spares, where=where)


def _certainty(told: Told) -> str:
    return "sure" if told.recommendation["stable"].data else "loose"


def _sure(told: Told, table: str, how: str) -> Said:
    changes = _changes(told)
    gaps: dict[str, Said | str | int] = {}
    if table == "if_yes":
        gaps["margin"] = told.recommendation["margin"].figure()
    if table == "if_no" and _untried(told):
        return told.texts("plan.if_no.sure_untried")
    if changes is None:
        return told.texts(f"plan.{table}.{how}_same", **gaps)
    return told.texts(f"plan.{table}.{how}_changes", changes=changes, **gaps)


def _changes(told: Told) -> Said | None:
    """What changes the answer; None if nothing that was tried does."""
    rows = [row for row in told.recommendation["changes"] if row["changed"].data]
    if told.worth == "no":
        rows = [row for row in rows if row["policy"].words().startswith("ntp")]
    items = [
        told.texts(
            "plan.change.item",
            what=told.texts.known("what_changes", row["what"].words()),
            setting=setting(row, told.texts),
            policy=row["policy"].name(),
        )
        for row in rows
    ]
    if not items:
        return None
    more = [told.texts("plan.change.others")] if len(items) > CHANGES_SAID else []
    return Joined((*items[:CHANGES_SAID], *more), Both("; ", "、"))


def setting(row: Place, texts: Texts) -> Said:
    """A factor, or what was allowed or not."""
    if row["setting"].words() == f"x{row['factor'].data:g}":
        return texts("plan.change.times", factor=row["factor"].figure())
    return texts.known("setting", row["setting"].words())


def _untried(told: Told) -> bool:
    return not list(told.recommendation["changes"])


def _first_no(told: Told) -> Said:
    reason = told.summary["verdict"]["reason"].words()
    key = f"plan.if_no.{reason}"
    rival = _rival(told)
    if key not in told.texts or (reason in ("costs-more", "within-noise") and rival is None):
        key = "plan.if_no.saves"
    gaps: dict[str, Said | str | int] = {
        "job": told.job["name"].name(),
        "degree": told.job["degree"].figure(),
        "blast": told.job["blast_gpus"].figure(),
        "failures": told.job["failures_expected"].figure().as_count(),
        "days": told.job["days"].figure(),
    }
    if rival is not None:
        gaps |= {"policy": rival["policy"].name(), "net": rival["net"].figure()}
    return told.texts(key, **gaps)


def _rival(told: Told) -> Place | None:
    """The best answer with unequal replicas that was not chosen; none where the job itself speaks
    against any."""
    if told.summary["verdict"]["reason"].words() in BY_ITSELF:
        return None
    rows = list(told.recommendation["alternatives"])
    return next((row for row in rows if row["policy"].words().startswith("ntp")), None)


def _stay(told: Told, table: str) -> Said:
    if table == "if_no" and told.changes:
        return told.texts(
            "plan.if_no.do_change",
            policy=told.name(told.chosen),
            reserve=_reserve(told),
            net=told.recommendation["net"].figure(),
            today=told.name(told.today),
        )
    return told.texts(
        f"plan.{table}.do",
        today=told.name(told.today),
        loss=told.today["loss"].figure(),
        lost=told.today["lost"].figure(),
    )


def _first_unclear(told: Told) -> Said:
    rival = _rival(told)
    policy, net = (
        (rival["policy"].name(), rival["net"].figure())
        if rival is not None
        else (told.name(told.chosen), told.chosen["net"].figure())
    )
    return told.texts("plan.if_unclear.first", job=told.job["name"].name(), policy=policy, net=net)


def talk(told: Told) -> tuple[Spoken, Spoken, Spoken]:
    """Each sentence with its interval and one caveat."""
    table = {"yes": "talk_yes", "no": "talk_no", "unclear": "talk_unclear"}[told.worth]
    one = told.texts(
        f"plan.{table}.one",
        job=told.job["name"].name(),
        loss=told.today["loss"].figure(),
        lost=told.today["lost"].figure(),
    )
    second, third = (_yes_two, _yes_three) if told.worth == "yes" else (_no_two, _no_three)
    return Spoken(one, _as_failures(told)), second(told), third(told)


def _as_failures(told: Told) -> Said:
    for row in told.summary["inputs"]:
        if row["what"].words() == "failures":
            return told.texts("plan.caveats.failures", failures=row["name"].name())
    return told.texts("plan.caveats.failures_unknown")


def _yes_two(told: Told) -> Spoken:
    advice = told.recommendation
    words = told.texts(
        "plan.talk_yes.two", policy=told.name(told.chosen),
        saved=advice["saved"].figure(), net=advice["net"].figure(),
    )  # fmt: skip
    return Spoken(words, told.texts("plan.caveats.prices"))


def _yes_three(told: Told) -> Spoken:
    margin = told.recommendation["margin"].figure()
    payback = told.chosen.get("payback_days")
    words = (
        told.texts("plan.talk_yes.three_never", margin=margin)
        if payback is None
        else told.texts("plan.talk_yes.three", margin=margin, payback=payback.figure())
    )
    if told.chosen["runnable"].data:
        return Spoken(words, told.texts("plan.caveats.simulated"))
    return Spoken(words, told.texts("plan.caveats.not_runnable", policy=told.name(told.chosen)))


def _no_two(told: Told) -> Spoken:
    table = "talk_no" if told.worth == "no" else "talk_unclear"
    rival = _rival(told)
    prices = told.texts("plan.caveats.prices")
    if told.worth == "no" and told.changes:
        net: Figure = told.recommendation["net"].figure()
        return Spoken(
            told.texts("plan.talk_no.two_change", policy=told.name(told.chosen), net=net), prices
        )
    if rival is None:
        return Spoken(told.texts("plan.talk_no.two_none"), prices)
    words = told.texts(
        f"plan.{table}.two", policy=rival["policy"].name(), net=rival["net"].figure()
    )
    return Spoken(words, prices)


def _no_three(told: Told) -> Spoken:
    failed = told.job["failed_share"]["mean"].figure()
    if told.worth == "unclear":
        words = told.texts("plan.talk_unclear.three", failed=failed)
        return Spoken(words, told.texts("plan.caveats.simulated"))
    changes = _changes(told)
    size = told.texts("plan.caveats.size")
    if _untried(told):
        return Spoken(told.texts("plan.talk_no.three_untried", failed=failed), size)
    if changes is None:
        return Spoken(told.texts("plan.talk_no.three_same", failed=failed), size)
    return Spoken(told.texts("plan.talk_no.three_changes", failed=failed, changes=changes), size)
