"""A run as one HTML page that needs no network."""

import base64
import hashlib
import json
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from scaleproof.report import pictures
from scaleproof.report.document import build_document
from scaleproof.report.explorer import Explorer, run_explorer
from scaleproof.report.figures import plates
from scaleproof.report.pictures import Picture
from scaleproof.report.plate import Plate
from scaleproof.report.records import Run
from scaleproof.report.sections import Document

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

SCRIPTS = ("theme.js", "tables.js", "dialog.js", "figures.js", "gallery.js", "explorer.js")


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure of the page, in a version for wide screens and one for narrow ones, with its points."""

    wide: str
    narrow: str
    description: str
    caption: str
    points: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Album:
    """The gallery of a page: its pictures, how many there are in all, and the section that it follows."""

    pictures: list[Picture]
    count: int
    factor: int
    after: str

    def choices(self, field: str) -> list[tuple[str, str]]:
        """List the different values of a field, for a filter."""
        return [(value, value) for value in sorted({getattr(picture, field) for picture in self.pictures})]

    @property
    def margins(self) -> bool:
        """Tell whether every picture has a margin to sort by."""
        return all(picture.margin is not None for picture in self.pictures)


def render_html(run: Run) -> str:
    """Render a run as one self-contained HTML page."""
    document = build_document(run)
    made = f"Written by scaleproof {run.run.versions.get('scaleproof', '')} from a run of {run.run.created}."
    return render_page(
        document,
        plates(run),
        footer=made,
        album=album(run, document),
        explorer=explorer(run),
    )


def render_page(
    document: Document,
    figures: dict[str, Plate],
    *,
    footer: str,
    album: Album | None = None,
    explorer: Explorer | None = None,
) -> str:
    """Render a document with its figures as one self-contained HTML page."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"prose": prose, "packed": packed}
    template = environment.from_string(read_template("report.html.j2"))
    script = "\n".join(read_template(name) for name in SCRIPTS)
    return template.render(
        document=document,
        footer=footer,
        style=Markup(read_template("report.css")),
        script=Markup(script),
        policy=policy(script),
        drawings={name: drawing(plate) for name, plate in figures.items()},
        album=album,
        explorer=explorer,
    )


def policy(script: str) -> str:
    """Write the rule that keeps a browser from fetching anything and from running any script but ours."""
    digest = base64.b64encode(hashlib.sha256(f"\n{script}\n".encode()).digest()).decode("ascii")
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def prose(text: str) -> "Markup":
    """Escape text and set the subscripts of norms."""
    from markupsafe import Markup, escape

    return Markup(str(escape(text)).replace("ℓ∞", "ℓ<sub>∞</sub>"))


def packed(value: object) -> "Markup":
    """Write data for the script, in a way that no text in it can end the element around it."""
    from markupsafe import Markup

    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def read_template(name: str) -> str:
    """Read a file that comes with the package."""
    return files("scaleproof.report").joinpath("templates", name).read_text(encoding="utf-8")


def drawing(plate: Plate) -> Drawing:
    """Draw one figure for both widths."""
    from scaleproof.report.points import figure_points

    wide, narrow = plate.draw(), plate.draw(narrow=True)
    return Drawing(
        wide=address(wide),
        narrow=address(narrow),
        description=plate.description,
        caption=plate.caption,
        points={"wide": figure_points(wide), "narrow": figure_points(narrow)},
    )


def address(figure: "Figure") -> str:
    """Put a figure into the page as SVG."""
    from scaleproof.report.style import svg

    return pictures.data_address(svg(figure), "image/svg+xml")


def explorer(run: Run) -> Explorer | None:
    """Build the table of verdicts image by image, where they are at hand."""
    evaluation = run.training.selected.evaluation if run.training else run.evaluation
    return None if evaluation is None or run.verdicts is None else run_explorer(evaluation, run.verdicts)


def album(run: Run, document: Document) -> Album | None:
    """Build the gallery, where the run has one."""
    measured = run.evaluation or run.sweep
    if run.gallery is None or measured is None or len(run.gallery.label) == 0:
        return None
    attacks = run.evaluation.attacks if run.evaluation else ()
    rows = run.sweep.rows if run.sweep else ()
    labels = {row.attack: row.label for row in rows} | {attack.name: attack.label for attack in attacks}
    norm, classes = measured.threat.norm, measured.data.classes
    places = ("attacks", "checks", "findings", "scale")  # before classes, costs and settings
    return Album(
        pictures=pictures.build_pictures(run.gallery, classes, labels, norm, run.verdicts),
        count=len(run.gallery.label),
        factor=pictures.amplification(run.gallery),
        after=[section.identifier for section in document.sections if section.identifier in places][-1],
    )
