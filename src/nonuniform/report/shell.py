"""The skeleton of every page: one HTML file that needs nothing else and asks nobody for anything.

In: a title, the body as HTML, the charts. Out: the page with its style, scripts and data inlined.
The content security policy names the scripts by their hashes and allows no connection, so that
even a mistake in escaping would not run what a file says. `live` is for a page that a server on
the same address keeps up to date: it may connect back to it and run one more script.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from nonuniform import __version__
from nonuniform.report.blocks import Chart
from nonuniform.report.said import LANGUAGES, Language, Said
from nonuniform.report.texts import Texts


def page(
    title: Said,
    body: Markup,
    lang: Language,
    texts: Texts,
    charts: Sequence[Chart] = (),
    live: str = "",
) -> str:
    """The whole page; `live` is JavaScript of a page that updates itself."""
    scripts = [asset("page.js")]
    if charts:
        scripts.insert(0, plotly_script())
    if live:
        scripts.append(live)
    return (
        environment(texts)
        .get_template("page.html")
        .render(
            title=title,
            body=body,
            lang=lang,
            style=Markup(asset("page.css")),
            scripts=[Markup(script) for script in scripts],
            policy=security_policy(scripts, connect=bool(live)),
            charts=Markup(as_data({chart.name: chart.spec for chart in charts})),
            words=Markup(as_data(script_words(title, texts))),
            version=__version__,
        )
    )


def render(template: str, texts: Texts, **values: Any) -> Markup:
    """A part of a page, from a template in `templates/`."""
    return Markup(environment(texts).get_template(template).render(**values))


def environment(texts: Texts) -> jinja2.Environment:
    """Escapes everything; a name that a template misspells is an error."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("nonuniform.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["t"] = texts
    made.globals["known"] = texts.known
    return made


def security_policy(scripts: Sequence[str], connect: bool) -> str:
    """Nothing from anywhere, except what is in the page; styles because plotly writes some."""
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {hashes}",
            "style-src 'unsafe-inline'",
            "img-src data:",
            f"connect-src {chr(39)}self{chr(39)}" if connect else "connect-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def as_data(value: Any) -> str:
    """JSON that can stand within a script element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def script_words(title: Said, texts: Texts) -> Mapping[str, Mapping[str, str]]:
    """What the page's script needs to say."""
    return {
        lang: {"title": title.text(lang), "switched": texts("shell.switched").text(lang)}
        for lang in LANGUAGES
    }


@lru_cache(maxsize=8)
def asset(name: str) -> str:
    return (files("nonuniform.report") / "assets" / name).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def plotly_script() -> str:
    """plotly's own bundle; it would end the script element early if it held such a tag."""
    script = (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    return script.replace("</script", "<\\/script").replace("\r\n", "\n")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
