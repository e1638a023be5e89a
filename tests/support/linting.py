"""What lint says of one YAML text."""

from kai_py.lint.check import LintReport, lint_together


def lint(text: str) -> LintReport:
    """Check a YAML text of any number of objects."""
    return lint_together([text])[0]
