"""Hold every run that this repository keeps against the number the paper prints, from Python.

python examples/4_reproduce.py

`scaleproof reproduce table-multi-step --dry-run` says what it takes to measure more of them.
"""

from pathlib import Path

from scaleproof.paper import claims, experiments, tables
from scaleproof.paper.measured import measurements
from scaleproof.paper.reproduction import reproduction

KEPT = Path(__file__).parent.parent / "docs" / "results" / "paper"  # or runs/paper, with runs of your own


def main() -> None:
    found = reproduction(tables(), claims(), measurements(KEPT, experiments(), {}), scale="full")
    for table in found.tables:
        outcomes = found.of(table)
        measured = [outcome for outcome in outcomes if outcome.value is not None]
        print(f"\n{table.id}: {len(measured)} of {len(outcomes)} numbers measured")
        for outcome in measured:
            claim, digits = outcome.claim, outcome.claim.column.decimals
            print(
                f"  {claim.row.model:<56} {claim.column.id:<14} printed {claim.value:7}, "
                f"measured {outcome.value:6.{digits}f}, seeds {len(outcome.runs)}: {outcome.verdict}"
            )


if __name__ == "__main__":
    main()
