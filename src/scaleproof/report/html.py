"""A run as one HTML page that needs no network."""

from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from scaleproof.report import pictures
from scaleproof.report.document import build_document
from scaleproof.report.figures import plates
from scaleproof.report.pictures import Picture
from scaleproof.report.records import Run
from scaleproof.report.sections import Document

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure of the page, in a version for wide screens and one for narrow ones."""

    wide: str
    narrow: str
    description: str
    caption: str


def render_html(run: Run) -> str:
    """Render a run as one self-contained HTML page."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["prose"] = prose
    template = environment.from_string(read_template("report.html.j2"))
    document = build_document(run)
    return template.render(
        document=document,
        run=run.run,
        style=Markup(read_template("report.css")),
        drawings=drawings(run),
        pictures=gallery_pictures(run),
        gallery_after=gallery_place(run, document),
        gallery_count=0 if run.gallery is None else len(run.gallery.label),
        factor=1 if run.gallery is None else pictures.amplification(run.gallery),
    )


def prose(text: str) -> "Markup":
    """Escape text and set the subscripts of norms."""
    from markupsafe import Markup, escape

    return Markup(str(escape(text)).replace("ℓ∞", "ℓ<sub>∞</sub>"))


def read_template(name: str) -> str:
    """Read a file that comes with the package."""
    return files("scaleproof.report").joinpath("templates", name).read_text(encoding="utf-8")


def drawings(run: Run) -> dict[str, Drawing]:
    """Draw the figures, each under the section that it belongs to."""
    return {
        name: Drawing(
            wide=address(plate.draw()),
            narrow=address(plate.draw(narrow=True)),
            description=plate.description,
            caption=plate.caption,
        )
        for name, plate in plates(run).items()
    }


def address(figure: "Figure") -> str:
    """Put a figure into the page as SVG."""
    from scaleproof.report.style import svg

    return pictures.data_address(svg(figure), "image/svg+xml")


def gallery_place(run: Run, document: Document) -> str:
    """Return the section that the gallery follows: the last one before classes, costs and settings."""
    if run.gallery is None or len(run.gallery.label) == 0:
        return ""
    before = [s.identifier for s in document.sections if s.identifier in ("attacks", "findings", "scale")]
    return before[-1]


def gallery_pictures(run: Run) -> list[Picture]:
    """Build the pictures of the gallery, where the run has one."""
    measured = run.evaluation or run.sweep
    if run.gallery is None or measured is None:
        return []
    attacks = run.evaluation.attacks if run.evaluation else ()
    rows = run.sweep.rows if run.sweep else ()
    labels = {row.attack: row.label for row in rows} | {attack.name: attack.label for attack in attacks}
    return pictures.build_pictures(run.gallery, measured.data.classes, labels)
