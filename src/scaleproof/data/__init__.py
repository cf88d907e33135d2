"""Image sets: load them by name, fetch them, and keep them small."""

from scaleproof.data.catalog import get, load, names
from scaleproof.data.dataset import Dataset
from scaleproof.data.store import compact, import_folder

__all__ = ["Dataset", "compact", "get", "import_folder", "load", "names"]
