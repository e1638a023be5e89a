"""The dashboard: static files that read the HTTP API under /v1 only; it works offline.

The files hold no data of the cluster, so they are served without authentication; the content
security policy forbids the page to load or send anything elsewhere.
"""

from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files

from aiohttp import web

SCRIPTS = (
    "api", "app", "blocks", "chart", "colours", "decisions", "dom", "freshness", "gangs", "links",
    "map", "nodes", "outcome", "pages", "queues", "squares", "tiles", "what-if",
)  # fmt: skip
FILES: Mapping[str, tuple[str, str]] = {
    "/": ("index.html", "text/html"),
    "/dashboard/style.css": ("style.css", "text/css"),
    **{f"/dashboard/{name}.js": (f"{name}.js", "text/javascript") for name in SCRIPTS},
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def dashboard_routes() -> list[web.RouteDef]:
    """Routes of the dashboard's files."""
    return [web.get(path, _file(*served)) for path, served in FILES.items()]


def _file(name: str, content_type: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_request: web.Request) -> web.Response:
        text = files(__name__).joinpath(name).read_text(encoding="utf-8")
        return web.Response(text=text, content_type=content_type, charset="utf-8", headers=HEADERS)

    return answer
