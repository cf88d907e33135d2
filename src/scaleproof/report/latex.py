"""A run as a LaTeX document with booktabs tables."""

import re
import textwrap

from scaleproof.report.document import build_document
from scaleproof.report.figures import plates
from scaleproof.report.records import Finding, Run
from scaleproof.report.sections import Document, Section
from scaleproof.report.tables import Column, Row, Table

PHRASES = {"ℓ∞": r"$\ell_\infty$", "ℓ₂": r"$\ell_2$", "ℓ₁": r"$\ell_1$"}
CHARACTERS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "%": r"\%",
    "&": r"\&",
    "#": r"\#",
    "$": r"\$",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    "–": r"\textendash{}",
    "’": "'",
    "α": r"$\alpha$",
    "ε": r"$\varepsilon$",
    "×": r"$\times$",
    "ℓ": r"$\ell$",
    "∞": r"$\infty$",
}
LONG_WORD, PIECE, HEAD_WIDTH, PAGE_ROWS = 24, 8, 13, 30
PREAMBLE = r"""\documentclass[a4paper,10pt]{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage{textcomp}
\usepackage[margin=22mm]{geometry}
\usepackage{booktabs,longtable,array,graphicx}
\setlength{\parindent}{0pt}
\setlength{\parskip}{0.6em}
\setlength{\emergencystretch}{3em}
"""


def character(c: str) -> str:
    """Escape one character; one that LaTeX cannot set becomes its code point."""
    if c in CHARACTERS:
        return CHARACTERS[c]
    if " " <= c <= "~" or ("À" <= c <= "ſ" and c not in "×÷ŉſ"):
        return c
    return f"{{[}}U+{ord(c):04X}{{]}}"


def word(text: str) -> str:
    """Escape a word without spaces, and let a long one break."""
    pieces = [character(c) for c in text]
    step = PIECE if len(pieces) > LONG_WORD else len(pieces)
    parts = ("".join(pieces[start : start + step]) for start in range(0, len(pieces), step))
    return re.sub(r"-(?=-)", "-{}", r"\allowbreak{}".join(parts))


def escape(text: str) -> str:
    """Escape text so that LaTeX sets it as it is."""
    for phrase, markup in PHRASES.items():
        before, found, after = text.partition(phrase)
        if found:
            return escape(before) + edge(before, -1) + markup + edge(after, 0) + escape(after)
    return " ".join(word(part) for part in text.split())


def edge(text: str, end: int) -> str:
    """Return the space that splitting at a phrase would lose."""
    return " " if text and text[end].isspace() else ""


def render_latex(run: Run) -> str:
    """Render a run as a LaTeX document."""
    document = build_document(run)
    figures = plates(run)
    parts = [PREAMBLE + "\n" + r"\begin{document}", heading(document)]
    parts += [section_text(section, section.identifier in figures) for section in document.sections]
    return "\n\n".join([*parts, r"\end{document}"]) + "\n"


def heading(document: Document) -> str:
    """Render the title, the headline and what it means."""
    title = rf"{{\LARGE {escape(document.title)}\par}}"
    claim = f"{escape(document.headline)} ({escape(document.detail)})"
    strong = rf"{{\large\bfseries {claim}\par}}"
    alarm = (
        [rf"\fbox{{\parbox{{0.97\linewidth}}{{\bfseries {escape(document.alarm)}}}}}"]
        if document.alarm
        else []
    )
    meaning = [escape(paragraph) for paragraph in document.meaning]
    return "\n\n".join([title, escape(document.subject), strong, *alarm, *meaning])


def section_text(section: Section, figure: bool) -> str:
    """Render one section, with its figure where it has one."""
    parts = [rf"\section*{{{escape(section.title)}}}", *(escape(p) for p in section.paragraphs)]
    if section.findings:
        items = "\n".join(finding_text(finding) for finding in section.findings)
        parts.append("\\begin{itemize}\n" + items + "\n\\end{itemize}")
    if figure:
        parts.append(rf"\includegraphics[width=\linewidth]{{{section.identifier}.png}}")
    parts += [table_text(table) for table in section.tables]
    return "\n\n".join(parts)


def finding_text(finding: Finding) -> str:
    """Render one finding as an item of a list."""
    name = f"{finding.severity.capitalize()}, {escape(finding.name)}"
    return rf"\item \textbf{{{name}:}} {escape(finding.meaning)}"


def is_prose(table: Table) -> bool:
    """Tell whether a table holds names and values or whole sentences rather than numbers."""
    pairs = len(table.columns) == 2 and not any(column.numeric for column in table.columns)
    return pairs or any(column.prose for column in table.columns)


def alignment(table: Table) -> str:
    """Return the column specification of a table, sharing what room there is among columns of prose."""
    wide = sum(column.prose for column in table.columns)
    if wide:
        part = (1 - 0.1 * (len(table.columns) - wide)) / wide - 0.03
        paragraph = rf">{{\raggedright\arraybackslash}}p{{{part:.2f}\linewidth}}"
        kinds = (paragraph if c.prose else "r" if c.numeric else "l" for c in table.columns)
        return "@{}" + "".join(kinds) + "@{}"
    if is_prose(table):
        return r"@{}>{\raggedright}p{0.28\linewidth}>{\raggedright\arraybackslash}p{0.66\linewidth}@{}"
    return "@{}" + "".join("r" if column.numeric else "l" for column in table.columns) + "@{}"


def head_cell(column: Column) -> str:
    """Render a head, broken into short lines."""
    lines = textwrap.wrap(column.title, HEAD_WIDTH, break_long_words=False) or [""]
    side = "r" if column.numeric else "l"
    return rf"\shortstack[{side}]{{" + r" \\ ".join(escape(line) for line in lines) + "}"


def row_text(row: Row) -> str:
    """Render one line of a table."""
    cells = [escape(cell) for cell in row.cells]
    return " & ".join(rf"\textbf{{{cell}}}" if row.strong else cell for cell in cells) + r" \\"


def table_text(table: Table) -> str:
    """Render a table with its caption above and its notes below, breaking over pages where it is long."""
    head = " & ".join(head_cell(column) for column in table.columns) + r" \\"
    lines = list(map(row_text, table.rows))
    first = next((position for position, row in enumerate(table.rows) if row.strong), None)
    if first:
        lines.insert(first, r"\midrule")
    caption = rf"\textbf{{{escape(table.caption)}.}}"
    notes = [rf"{{\footnotesize {escape(note)}\par}}" for note in table.notes]
    small = r"\small" if len(table.columns) < 7 else r"\footnotesize"
    if len(table.rows) > PAGE_ROWS or is_prose(table):
        body = long_body(table, head, lines)
        return "\n".join([caption, r"{" + small, *body, "}", *notes])
    body = [rf"\begin{{tabular}}{{{alignment(table)}}}", r"\toprule", head, r"\midrule", *lines]
    body += [r"\bottomrule", r"\end{tabular}"]
    group = [r"\begin{table}[htbp]", r"\centering" + small, caption + r"\par\smallskip", *body]
    return "\n".join([*group, r"\par\smallskip", *notes, r"\end{table}"])


def long_body(table: Table, head: str, lines: list[str]) -> list[str]:
    """Render a table that may break over pages, with its head on each."""
    opening = [rf"\begin{{longtable}}{{{alignment(table)}}}", r"\toprule", head, r"\midrule", r"\endhead"]
    return [*opening, *lines, r"\bottomrule", r"\end{longtable}"]
