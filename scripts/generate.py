"""Write what is generated: the state diagram and the defaults in README.md, from the code that decides them.

    python scripts/generate.py [--check]

With --check nothing is written; the exit status is 1 when a file is not current.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from effectfence_pg.protocol.states import TRANSITIONS
from effectfence_pg.values import FenceConfig

README = Path(__file__).resolve().parent.parent / "README.md"


def diagram() -> str:
    """The transition table as a Mermaid state diagram."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> in_flight: prepare"]
    for state, following in TRANSITIONS.items():
        lines += [f"    {state} --> {target}" for target in TRANSITIONS if target in following]
    lines += [f"    {state} --> [*]" for state, following in TRANSITIONS.items() if not following]
    return "\n".join([*lines, "```"])


def defaults() -> str:
    """Every setting of FenceConfig with its default and its meaning, as it stands in the docstring."""
    meanings = dict(re.findall(r"^ {8}(\w+): (.+)$", FenceConfig.__doc__ or "", re.MULTILINE))
    rows = [
        f"| `{name}` | {field.default:g} | {meanings[name]} |"
        if isinstance(field.default, float)
        else f"| `{name}` | {field.default} | {meanings[name]} |"
        for name, field in FenceConfig.model_fields.items()
    ]
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows])


GENERATED = {"state diagram": diagram, "defaults": defaults}


def regenerate(text: str) -> str:
    """The text with every generated part made anew between its markers."""
    for name, make in GENERATED.items():
        pattern = rf"(<!-- generated: {name} -->\n)(?:(?!<!-- ).*\n)*(<!-- end -->)"
        text, found = re.subn(pattern, lambda at: at[1] + make() + "\n" + at[2], text)  # noqa: B023
        if found != 1:
            sys.exit(f"{README.name}: there must be one place for the {name}, not {found}")
    return text


def main() -> int:
    """Write README.md, or say whether it is current."""
    before = README.read_text()
    after = regenerate(before)
    if after == before:
        return 0
    if "--check" in sys.argv[1:]:
        print(f"{README.name} is not current: run scripts/generate.py")
        return 1
    README.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
