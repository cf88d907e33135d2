"""A run as Markdown."""

from collections.abc import Collection

from scaleproof.report.document import build_document
from scaleproof.report.figures import plates
from scaleproof.report.records import Finding, Run
from scaleproof.report.sections import Document, Section
from scaleproof.report.tables import Column, Row, Table

SPECIAL = "\\`*_{}[]#|~$"
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def escape(text: str) -> str:
    """Escape text so that Markdown shows it as it is, on one line."""
    line = " ".join(text.split())
    return "".join(ENTITIES.get(c, f"\\{c}" if c in SPECIAL else c) for c in line)


def render_markdown(run: Run) -> str:
    """Render a run as Markdown."""
    return document_text(build_document(run), plates(run))


def document_text(document: Document, figures: Collection[str]) -> str:
    """Render a document as Markdown; the sections named have a figure in a file beside it."""
    parts = [heading(document)]
    parts += [section_text(section, section.identifier in figures) for section in document.sections]
    return "\n\n".join(parts) + "\n"


def heading(document: Document) -> str:
    """Render the title, the headline and what it means."""
    lines = [
        f"# {escape(document.title)}",
        escape(document.subject),
        f"**{'⚠ ' if document.alarm else ''}{escape(document.headline)} ({escape(document.detail)})**",
    ]
    if document.alarm:
        lines.append(f"> **⚠ {escape(document.alarm)}**")
    return "\n\n".join([*lines, *(escape(paragraph) for paragraph in document.meaning)])


def section_text(section: Section, figure: bool) -> str:
    """Render one section, with its figure where it has one."""
    parts = [f"## {escape(section.title)}", *(escape(paragraph) for paragraph in section.paragraphs)]
    if section.findings:
        parts.append("\n".join(finding_text(finding) for finding in section.findings))
    if figure:
        parts.append(f"![{escape(section.title)}]({section.identifier}.png)")
    parts += [table_text(table) for table in section.tables]
    return "\n\n".join(parts)


def finding_text(finding: Finding) -> str:
    """Render one finding as an item of a list."""
    return f"- **{finding.severity.capitalize()}, {escape(finding.name)}:** {escape(finding.meaning)}"


def rule(column: Column) -> str:
    """Render the piece of the rule below a head, which carries the alignment."""
    return "---:" if column.numeric else ":---"


def row_text(row: Row) -> str:
    """Render one line of a table."""
    cells = [escape(cell) for cell in row.cells]
    return "| " + " | ".join(f"**{cell}**" if row.strong and cell else cell for cell in cells) + " |"


def table_text(table: Table) -> str:
    """Render a table between its caption and its notes."""
    head = "| " + " | ".join(escape(column.title) for column in table.columns) + " |"
    rules = "| " + " | ".join(rule(column) for column in table.columns) + " |"
    lines = "\n".join([head, rules, *(row_text(row) for row in table.rows)])
    return "\n\n".join([f"**{escape(table.caption)}.**", lines, *(escape(note) for note in table.notes)])
