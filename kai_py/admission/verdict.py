"""Verdict on an edit: sentences that refuse it, and sentences that only warn."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdmissionVerdict:
    """Sentences that each name the object, the field and the remedy."""

    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def edit_verdict(now: AdmissionVerdict, before: AdmissionVerdict) -> AdmissionVerdict:
    """Refuse only new problems; problems of the object before the edit become warnings."""
    new = tuple(text for text in now.refusals if text not in before.refusals)
    old = tuple(text for text in now.refusals if text in before.refusals)
    return AdmissionVerdict(new, (*now.warnings, *old))
