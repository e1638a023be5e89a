"""Log formats: text, or one JSON object per line.

Both use the standard library's logging. Fields given as ``extra={"fields": {...}}`` are appended to
a text line as ``key=value``, and are top-level keys of a JSON object. A record is one line in
either form, its traceback included, and nothing that others wrote in it can forge another.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from kai_py.api.printable import printable, printable_json
from kai_py.config import LogFormat


def configure_logging(
    log_format: LogFormat, *, level: int = logging.INFO, stream: TextIO | None = None
) -> None:
    """Send all logging of this process to ``stream`` (standard error by default)."""
    handler = logging.StreamHandler(stream or sys.stderr)
    formatter = JsonFormatter() if log_format is LogFormat.JSON else TextFormatter()
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler], force=True)


class TextFormatter(logging.Formatter):
    """``2026-01-01T00:00:00.000Z INFO logger: message key=value``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; a traceback becomes the field ``exception``."""
        found = _fields(record)
        if record.exc_info is not None:
            found["exception"] = _traceback(self, record)
        fields = "".join(f" {key}={_field_text(value)}" for key, value in found.items())
        name = record.name.removeprefix("kai_py.")
        line = f"{_time(record)} {record.levelname} {name}: {record.getMessage()}{fields}"
        return printable(line)


class JsonFormatter(logging.Formatter):
    """``{"time": …, "level": …, "logger": …, "message": …}`` and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; a traceback becomes the key ``exception``."""
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info is not None:
            line["exception"] = _traceback(self, record)
        return printable_json(json.dumps(line, default=str, ensure_ascii=False))


def _field_text(value: object) -> str:
    """The value, in quotes where it would be taken for several."""
    text = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return json.dumps(text, ensure_ascii=False) if " " in text or not text else text


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return dict(getattr(record, "fields", {}))


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info else ""
