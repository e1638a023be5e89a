"""Which one was it? An example beside a bucket of a histogram, kept where OpenMetrics is asked for.

Names and values of an exemplar have at most 128 characters together (OpenMetrics 1.0, "Exemplars").
"""

MOST_CHARACTERS = 128


def exemplar(name: str, value: str) -> dict[str, str]:
    """The exemplar; a value too long loses its beginning, since names differ at their ends."""
    return {name: value[len(name) - MOST_CHARACTERS :]}
