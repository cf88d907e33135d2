"""Turn a run folder into a report: a page, Markdown, LaTeX and figures."""

from pathlib import Path

from scaleproof.files import write_atomically
from scaleproof.report.folder import load_run
from scaleproof.report.records import Run

__all__ = ["Run", "load_run", "render"]


def render(folder: Path) -> list[Path]:
    """Write the report of a run into its folder and return the files written, replacing earlier ones."""
    folder = Path(folder)
    return [write_atomically(folder / name, content) for name, content in contents(load_run(folder)).items()]


def contents(run: Run) -> dict[str, bytes]:
    """Return every file of the report by its name."""
    from scaleproof.report.html import render_html
    from scaleproof.report.latex import render_latex
    from scaleproof.report.markdown import render_markdown

    texts = {
        "report.html": render_html(run),
        "report.md": render_markdown(run),
        "report.tex": render_latex(run),
    }
    return {name: text.encode("utf-8") for name, text in texts.items()} | figure_files(run)


def figure_files(run: Run) -> dict[str, bytes]:
    """Return the figures of a run as files."""
    from scaleproof.report import style
    from scaleproof.report.figures import plates

    export = {"png": style.png, "svg": style.svg}
    found: dict[str, bytes] = {}
    for name, plate in plates(run).items():
        figure = plate.draw()
        found |= {f"{name}.{kind}": export[kind](figure) for kind in plate.formats}
    return found
