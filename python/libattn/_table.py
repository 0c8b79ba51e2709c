# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small tables that print as text and show as HTML in notebooks."""
from __future__ import annotations

import html
from collections.abc import Iterator, Sequence


class Table:
    """Rows of text with a title: `print(table)`, or the last line of a notebook's cell. Iterating gives dicts."""

    def __init__(self, columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
        self.columns, self.rows, self.title = tuple(columns), [tuple(row) for row in rows], title

    def __iter__(self) -> Iterator[dict[str, str]]:
        return (dict(zip(self.columns, row)) for row in self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        lines = [self.columns, *self.rows]
        widths = [max(len(str(line[i])) for line in lines) for i in range(len(self.columns))]
        text = ["  ".join(str(cell).ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
        return "\n".join(([self.title] if self.title else []) + text)

    def _repr_html_(self) -> str:
        def line(tag: str, cells: Sequence[str]) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

        body = "".join(line("td", row) for row in self.rows)
        title = f"<caption>{html.escape(self.title)}</caption>" if self.title else ""
        return f"<table>{title}{line('th', self.columns)}{body}</table>"
