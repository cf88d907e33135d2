"""Several run folders side by side: one page, and a short table for the command line."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from scaleproof.files import write_atomically
from scaleproof.report.compare.document import compare_document, runs_explorer
from scaleproof.report.compare.entries import Entry, load_entries
from scaleproof.report.compare.seeds import load_seeds, of_seeds, seeds_document
from scaleproof.report.compare.tables import summary_table
from scaleproof.report.sections import Document
from scaleproof.report.tables import Table

__all__ = ["compare"]

FOOTER = "Written by scaleproof from the run folders named above."


def compare(folders: Sequence[Path], out: Path) -> tuple[Document, tuple[Table, ...]]:
    """Write the comparison of run folders with the first, as HTML or Markdown; return it and its short tables."""
    folders, out = [Path(folder) for folder in folders], Path(out)
    if len(folders) > 1 and of_seeds(folders):
        document = seeds_document(load_seeds(folders))
        write(out, document, partial(over_seeds, document))
        return document, document.sections[0].tables
    entries = load_entries(folders)
    document = compare_document(entries)
    write(out, document, partial(page, entries, document))
    return document, (summary_table(entries),)


def write(out: Path, document: Document, page: Callable[[], str]) -> None:
    """Write a comparison into a file that is not there yet, by the ending of its name."""
    renders: dict[str, Callable[[], str]] = {".html": page, ".md": partial(text, document)}
    render = renders.get(out.suffix)
    if render is None:
        raise ValueError(f"--out must end in .html or .md, got {str(out)!r}: give it such a name")
    if out.exists():
        raise ValueError(f"{out} exists: give another --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, render().encode("utf-8"))


def page(entries: tuple[Entry, ...], document: Document) -> str:
    """Render a comparison as one HTML page."""
    from scaleproof.report.compare.figures import compare_plates
    from scaleproof.report.html import render_page

    return render_page(document, compare_plates(entries), footer=FOOTER, explorer=runs_explorer(entries))


def over_seeds(document: Document) -> str:
    """Render a comparison over seeds as one HTML page."""
    from scaleproof.report.html import render_page

    return render_page(document, {}, footer=FOOTER)


def text(document: Document) -> str:
    """Render a comparison as Markdown, without figures."""
    from scaleproof.report.markdown import document_text

    return document_text(document, ())
