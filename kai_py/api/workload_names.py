"""Names of workloads and queues in texts, for readers who may not know of them.

The name of a workload is NAMESPACE/NAME, NAMESPACE/KIND/NAME or the key of a gang, with one more
part. What stands before it ("gang", "workload", …) is part of what is replaced. The name of a queue
follows that word, or begins a line of KAI's that says what the queue uses.
"""

import re
from collections.abc import Callable, Container, Sequence

from kai_py.api.texts import first_of

OF_ANOTHER_NAMESPACE = "of another namespace"
_NAMED = re.compile(
    r"(?<![\w./-])(?:((?:[Aa] )?(?:[Ww]orkload|[Gg]ang|[Pp]od|[Cc]laim|[Jj]ob)) )?"
    r"(([a-z0-9][-a-z0-9]*)(?:/[A-Za-z0-9](?:[\w.-]*\w)?){1,3})"
)
_QUEUE = re.compile(
    r"""(?:(?<!mean )(?<!use )\b([Qq])ueue (["']?)|^(?=\S+ uses <))"""
    r"([a-z0-9](?:[-a-z0-9.]*[a-z0-9])?)(?(2)\2)",
    re.MULTILINE,
)
_QUEUE_LIST = re.compile(r" ?Queues for namespace \S+: (?:\S+, )*\S+(?: and \d+ more\.)?")


def queue_list(namespace: str, queues: Sequence[str]) -> str:
    """A sentence that lists the queues that a namespace may use."""
    return f"Queues for namespace {namespace}: {first_of(queues)}."


def without_queue_list(text: str) -> str:
    """The text without that sentence, which changes whenever a queue comes or goes."""
    return _QUEUE_LIST.sub("", text) if "Queues for " in text else text


def mentions(text: str, namespaces: Container[str]) -> bool:
    """Whether a name in one of ``namespaces`` may be in the text: a quick look. O(text)."""
    return any(
        part[part.rfind(" ") + 1 :].lstrip("(\"'[") in namespaces for part in text.split("/")[:-1]
    )


def without_names(
    text: str, hidden: Container[str], described: Callable[[str], str] = lambda _: ""
) -> str:
    """The text without names of workloads in ``hidden`` namespaces.

    ``described``: what is said of a name instead, after a noun, such as "of queue a"; "" for the
    namespace.
    """

    def replaced(found: re.Match[str]) -> str:
        noun, name, namespace = found.groups()
        if namespace not in hidden:
            return found[0]
        return f"{noun or 'a workload'} {described(name) or OF_ANOTHER_NAMESPACE}"

    return _NAMED.sub(replaced, text)


def without_queues(text: str, is_hidden: Callable[[str], bool]) -> str:
    """The text without names of queues that are hidden.

    "Did you mean queue X" and "use queue X" name what the reader's namespace may use.
    """

    def replaced(found: re.Match[str]) -> str:
        initial, _, name = found.groups()
        if not is_hidden(name):
            return found[0]
        return "another queue" if initial == "q" else "Another queue"

    return _QUEUE.sub(replaced, text) if "ueue " in text or " uses <" in text else text
