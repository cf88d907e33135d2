"""Several run folders side by side: one page, and a short table for the command line."""

from collections.abc import Sequence
from pathlib import Path

from scaleproof.files import write_atomically
from scaleproof.report.compare.document import compare_document, runs_explorer
from scaleproof.report.compare.entries import Entry, load_entries
from scaleproof.report.compare.tables import summary_table
from scaleproof.report.sections import Document
from scaleproof.report.tables import Table

__all__ = ["compare"]


def compare(folders: Sequence[Path], out: Path) -> tuple[Document, Table]:
    """Write the comparison of run folders with the first, as HTML or Markdown; return it and a short table."""
    entries, out = load_entries(folders), Path(out)
    document = compare_document(entries)
    render = {".html": page, ".md": text}.get(out.suffix)
    if render is None:
        raise ValueError(f"--out must end in .html or .md, got {str(out)!r}: give it such a name")
    if out.exists():
        raise ValueError(f"{out} exists: give another --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, render(entries, document).encode("utf-8"))
    return document, summary_table(entries)


def page(entries: tuple[Entry, ...], document: Document) -> str:
    """Render a comparison as one HTML page."""
    from scaleproof.report.compare.figures import compare_plates
    from scaleproof.report.html import render_page

    footer = "Written by scaleproof from the run folders named above."
    return render_page(document, compare_plates(entries), footer=footer, explorer=runs_explorer(entries))


def text(entries: tuple[Entry, ...], document: Document) -> str:
    """Render a comparison as Markdown, without figures."""
    from scaleproof.report.markdown import document_text

    return document_text(document, ())
