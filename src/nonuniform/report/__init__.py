"""What people look at: pages from a `summary.json`, read as plain data.

The pages need the extra `report` (plotly's JavaScript, jinja2). Whoever imports this package
without it is told so in one line.
"""

from importlib.util import find_spec

from nonuniform.errors import BadInput

for _package in ("jinja2", "plotly"):
    if find_spec(_package) is None:
        raise BadInput(
            f"a page needs {_package}, which is not installed: pip install 'nonuniform[report]'"
        )
