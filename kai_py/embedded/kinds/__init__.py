"""Built-in kinds: defaults, validation and admission of each.

Only what matters to schedulers, controllers and users is checked. Unknown fields of built-in kinds
are kept, not dropped: the embedded cluster has no schemas for them.
"""

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from kai_py.embedded.documents import Json
from kai_py.embedded.errors import FieldError
from kai_py.embedded.store import Store

Mutate: TypeAlias = Callable[[Json], None]
Check: TypeAlias = Callable[[Json], list[FieldError]]
CheckUpdate: TypeAlias = Callable[[Json, Json], list[FieldError]]
Admit: TypeAlias = Callable[[Json, Store], None]


def _mutate_nothing(_document: Json) -> None:
    return None


def _admit_all(_document: Json, _store: Store) -> None:
    return None


def _no_errors(_document: Json) -> list[FieldError]:
    return []


def _no_difference(_new: Json, _old: Json) -> list[FieldError]:
    return []


class KindRules(Struct, frozen=True, kw_only=True):
    """How the server treats the objects of one kind.

    `prepare` sets the fields that only the server sets on creation (initial status, generated
    selectors); `default` sets absent fields on every write; `admit` may read other objects on
    creation and raises RequestError to refuse; the validations return field errors. Comparisons get
    (new, old).
    """

    prepare: Mutate = _mutate_nothing
    default: Mutate = _mutate_nothing
    admit: Admit = _admit_all
    validate: Check = _no_errors
    validate_update: CheckUpdate = _no_difference
    validate_status: CheckUpdate = _no_difference
