"""What importing costs, which way imports point, and how large things may grow."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import scaleproof

SOURCE = Path(scaleproof.__file__).parent
BESIDE = [Path(__file__).parents[1] / name for name in ("tests", "benchmarks", "tools", "examples")]
HEAVY = {"matplotlib", "jinja2", "typer", "rich", "PIL", "timm", "scipy", "torchvision", "safetensors"}
HEAVY |= {"transformers", "torchattacks", "foolbox"}

# Data flows from left to right; a module imports from its own group or from those to the left.
LAYERS = [
    {"callables", "collapse", "differences", "files", "locks", "rng", "parallel", "schemas", "statistics"},
    {"planning"},
    {"data"},
    {"threat", "models"},
    {"losses", "speed"},
    {"oracle", "contract", "diagnosis"},
    {"attacks", "defenses"},
    {"training"},
    {"evaluation", "examples", "images", "store"},
    {"units", "look", "progress"},
    {"audit", "verdicts", "checks"},
    {"evaluator"},
    {"analysis", "claims", "gallery", "museum", "provenance"},
    {"baseline", "verify"},
    {"gate"},
    {"train", "export"},
    {"report"},
    {"paper"},
    {"cli"},
]
ALONE = {"report": {"collapse", "files", "statistics"}}  # renders run folders without the rest of the package


def rank(module: str) -> int:
    return next(number for number, names in enumerate(LAYERS) if module in names)


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("scaleproof."):
            found.add(node.module.split(".")[1])
        if isinstance(node, ast.ImportFrom) and node.module == "scaleproof":
            found |= {alias.name for alias in node.names} - {"__version__"}
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("scaleproof.")}
    return found


def modules() -> list[tuple[str, Path]]:
    paths = [path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or not path.name.startswith("__")]
    return [(path.relative_to(SOURCE).parts[0].removesuffix(".py"), path) for path in paths]


@pytest.mark.parametrize(("module", "path"), modules(), ids=lambda value: str(value)[-30:])
def test_imports_point_left(module: str, path: Path) -> None:
    seen = imports_of(path) - {module}
    assert module not in ALONE or seen <= ALONE[module]
    wrong = {other for other in seen if rank(other) > rank(module)}
    assert not wrong, f"{module} imports {wrong}, which stand to its right"


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_is_light() -> None:
    assert not loaded_by("import scaleproof") & HEAVY
    used = "import scaleproof; scaleproof.Threat, scaleproof.PGD, scaleproof.evaluate"
    assert not loaded_by(used) & (HEAVY - {"safetensors"})


def test_the_report_needs_no_torch() -> None:
    assert "torch" not in loaded_by("import scaleproof.report")
    assert "torch" not in loaded_by("import scaleproof.cli")
    assert "torch" not in loaded_by("import scaleproof.planning, scaleproof.statistics")
    assert "torch" not in loaded_by("from scaleproof.paper import prose, experiments; prose(), experiments()")


def test_every_public_name_is_there() -> None:
    for name in scaleproof.__all__:
        assert getattr(scaleproof, name) is not None
    assert set(scaleproof.HOMES) == set(scaleproof.__all__) - {"__version__"}
    assert dir(scaleproof) == sorted(scaleproof.__all__)
    with pytest.raises(AttributeError, match="scaleproof has no 'evalute'"):
        scaleproof.evalute  # noqa: B018


@pytest.mark.parametrize("folder", [SOURCE, *BESIDE], ids=lambda folder: folder.name)
def test_nothing_grows_out_of_hand(folder: Path) -> None:
    paths = sorted(folder.rglob("*.py"))
    assert paths
    for path in paths:
        text = path.read_text()
        assert text.count("\n") <= 300, f"{path.name} has over 300 lines"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
                body = node.end_lineno - node.body[0].lineno
                assert body <= 50, f"{path.name}: {node.name} has {body} lines"


def test_only_the_command_line_prints() -> None:
    for module, path in modules():
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        prints = [call for call in calls if isinstance(call, ast.Name) and call.id == "print"]
        assert module == "cli" or not prints, path
