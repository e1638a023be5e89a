"""What is said of an edit: sentences that refuse it, and sentences that only warn."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdmissionVerdict:
    """Each sentence names the object, the field and what to do."""

    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def edit_verdict(now: AdmissionVerdict, before: AdmissionVerdict) -> AdmissionVerdict:
    """Whoever edits something else is not held up by what was wrong before; it is told again."""
    new = tuple(text for text in now.refusals if text not in before.refusals)
    old = tuple(text for text in now.refusals if text in before.refusals)
    return AdmissionVerdict(new, (*now.warnings, *old))
