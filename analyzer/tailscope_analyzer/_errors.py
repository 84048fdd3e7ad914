"""What can go wrong between a question and its answer.

AnalyzerError
├── SourceError      no collector answers, or a data directory cannot be opened
├── QueryError       the collector refused the question (`code` says how)
│   └── NotFoundError    it knows no such trace or route
└── InputError       a table, a time or a percentile that cannot mean anything
"""

from __future__ import annotations


class AnalyzerError(Exception):
    """Say in one sentence what is wrong, with the value and the way out."""


class SourceError(AnalyzerError):
    """Tell that the data cannot be reached."""


class QueryError(AnalyzerError):
    """Carry the collector's refusal of a question."""

    def __init__(self, message: str, *, code: str = "bad_query", status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class NotFoundError(QueryError):
    """Tell that the collector knows no such trace."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="not_found", status=404)


class InputError(AnalyzerError):
    """Tell that an argument or a table cannot be used as given."""
