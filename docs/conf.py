"""How Sphinx builds the site (`make site`), and the order of its pages.

Everything a page needs lies beside it, so the site works from a folder without a network.
"""

from pathlib import Path

from sphinx.application import Sphinx

RUNBOOKS = sorted(
    f"runbooks/{page.stem}" for page in (Path(__file__).parent / "runbooks").glob("*.md")
)
NAVIGATION = {
    "Start": ["quickstart", "tasks/share-a-cluster", "concepts", "install"],
    "Tasks": [
        "tasks/serving",
        "tasks/distributed-training",
        "tasks/grove",
        "tasks/coexist",
        "tasks/spot-nodes",
        "from-slurm",
        "migrate-from-kai",
    ],
    "Topics": [
        "frameworks",
        "devices",
        "gpu-sharing",
        "fairness",
        "placement",
        "goodput",
        "packing",
        "what-if",
        "nodes",
    ],
    "Operations": [
        "troubleshooting",
        "audit",
        "security",
        "reliability",
        "upgrade",
        "webhook",
        "dashboard",
        "metrics",
    ],
    "Runbooks": RUNBOOKS,
    "Reference": [
        "annotations",
        "reference/commands",
        "reference/configuration",
        "reference/resources",
        "reference/scenarios",
        "reference/metrics",
    ],
    "Internals": [
        "architecture",
        "cycle",
        "glossary",
        "benchmarks",
        "kai-differences",
        "contributing",
    ],
}

project = html_title = "kai_py"
extensions = ["myst_parser", "sphinx_copybutton"]
exclude_patterns = ["scenarios"]
html_theme = "furo"
html_show_sphinx = False
html_copy_source = False
html_show_copyright = False
# A summary of a page that was found would be fetched, which a page from a folder may not do.
html_show_search_summary = False
highlight_language = "none"
# Headings are linked to as Git servers name them.
myst_heading_anchors = 4


def setup(app: Sphinx) -> None:
    """Add the navigation to the first page, where Git servers would show it as code."""
    app.connect("source-read", add_navigation)


def add_navigation(_app: Sphinx, page: str, source: list[str]) -> None:
    """Append a table of contents per group to the source of the first page."""
    if page == "index":
        source[0] += "".join(
            "\n".join(["\n```{toctree}", ":hidden:", f":caption: {group}", "", *pages, "```\n"])
            for group, pages in NAVIGATION.items()
        )
