"""Questions that a reader with limited rights may ask: about objects that it may see, and how many.

Simulations are made one after another, each takes up to two minutes, and they are finished also
after their readers have left; streams stay open. Without a limit a reader who asks again and again
keeps all others waiting.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from aiohttp import web

from kai_py.api.choices import Subject
from kai_py.api.problems import nearest_path
from kai_py.api.sent_objects import decode_objects
from kai_py.api.texts import printable
from kai_py.observe.cluster_view import ClusterView
from kai_py.observe.http_answers import READER
from kai_py.observe.http_explanations import OnFound, Suggest
from kai_py.observe.subject import named, names_of
from kai_py.observe.suggestion import NoAnswerError, SuggestionSearch
from kai_py.observe.visibility import Visibility

DEFAULT_NAMESPACE = "default"
ADD = "add"
MAX_NAME = 512
"""Characters of a name that an answer repeats."""
NO_GANG = "not part of any gang of this scheduler"


def namespaces_of(subject: Subject, name: str) -> tuple[str, ...]:
    """The namespace of a subject; a name without one is of ``default``, as for ``subject``."""
    if subject is Subject.QUEUE:
        return ()
    return (name.partition("/")[0] if "/" in name else DEFAULT_NAMESPACE,)


def check_subject(seen: Visibility, subject: Subject, name: str) -> None:
    """Raise HTTPForbidden unless the subject may be explained to the reader."""
    if subject is Subject.QUEUE:
        if name in seen.queues:
            return
        needed = f"the right to get queues/{name} is missing"
    else:
        [namespace] = namespaces_of(subject, name)
        if namespace in seen.namespaces:
            return
        needed = f"the right to list pods in namespace {namespace} is missing"
    raise web.HTTPForbidden(text=printable(f"{subject} {name}: {needed}") + "\n")


def check_changes(view: ClusterView, seen: Visibility, changes: Iterable[tuple[str, str]]) -> None:
    """Raise HTTPForbidden unless the reader sees what each change is about.

    ``changes``: pairs of kind and text, as of a query. Raises ValueError for objects to add that
    cannot be read.
    """
    for kind, text in changes:
        if kind == "remove" and not seen.sees(text):
            raise _refusal(f"remove={text}", "it is in a namespace whose pods you may not list")
        if kind == ADD:
            for document in decode_objects(text):
                namespace = document["metadata"]["namespace"]
                if namespace not in seen.namespaces:
                    raise _refusal("add", f"you may not list pods in namespace {namespace[:63]}")
        if kind == "set" and _queue_of(text, view) not in seen.queues:
            raise _refusal(f"set={text}", "this queue is not yours, and you may not get it")
        if kind == "drain" and not (seen.nodes or _has_own_pods(view, seen, text)):
            reason = "none of your pods is on it, and you may not list nodes"
            raise _refusal(f"drain={text}", reason)


def _queue_of(text: str, view: ClusterView) -> str:
    """The queue of NAME.FIELD=VALUE, "" if none has the name; the longest, as names have dots."""
    named = (each.name for each in view.snapshot.queues if text.startswith(f"{each.name}."))
    return max(named, key=len, default="")


def _has_own_pods(view: ClusterView, seen: Visibility, node: str) -> bool:
    return any(seen.sees(gang.key) for gang, _ in view.members_on.get(node, ()))


def _refusal(change: str, reason: str) -> web.HTTPForbidden:
    return web.HTTPForbidden(text=printable(f"{change[:200]}: {reason}") + "\n")


def not_found_text(view: ClusterView, seen: Visibility | None, subject: Subject, name: str) -> str:
    """The message for an unknown ``name``, with the nearest one that the reader sees."""
    known = list(names_of(view.snapshot, subject))
    if seen is not None:
        sees = seen.queues.__contains__ if subject is Subject.QUEUE else seen.sees
        known = [each for each in known if sees(each)]
    nearest = nearest_path(name, known) if name not in known else ""
    problem = "not found" if nearest or subject is Subject.QUEUE else NO_GANG
    meant = f" (did you mean {nearest}?)" if nearest else ""
    return printable(f"{named(subject, name[:MAX_NAME])}: {problem}{meant}") + "\n"


class ReaderLimits:
    """Work under way, by reader."""

    def __init__(self, what: str, most: int, most_of_reader: int) -> None:
        """``what``: the noun for messages, in the plural."""
        self._what, self._most, self._most_of_reader = what, most, most_of_reader
        self._counts: Counter[str] = Counter()

    @contextmanager
    def counted(self, request: web.Request) -> Iterator[None]:
        """Count ``request`` during the block; raises NoAnswerError where there are too many."""
        known = request.get(READER)
        reader = "" if known is None else known.name
        if self._counts.total() >= self._most:
            raise NoAnswerError(f"there are {self._most} {self._what} already: ask again later")
        if reader and self._counts[reader] >= self._most_of_reader:
            raise NoAnswerError(f"you have {self._most_of_reader} {self._what} already")
        self._counts[reader] += 1
        try:
            yield
        finally:
            self._counts[reader] -= 1
            if not self._counts[reader]:
                del self._counts[reader]

    def limited(self, search: Suggest | None, request: web.Request) -> Suggest | None:
        """The search for suggestions, as far as the reader of ``request`` may ask for it."""
        if search is None:
            return None

        async def ask(gang: str, on_found: OnFound) -> SuggestionSearch:
            with self.counted(request):
                return await search(gang, on_found)

        return ask
