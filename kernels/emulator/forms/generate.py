"""Turn the form table (`*.forms`, described in README.md) into C++ tables; `read_forms` serves the tests as well.

python generate.py OUTPUT_DIRECTORY     writes mods.inc (names of modifiers), table.inc (rows), selectors.inc
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KEYWORDS = {"and", "or", "xor", "not", "volatile", "const", "none"}
TYPES = (
    *("pred", "b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "b64", "u64", "s64", "b128"),
    *("f16", "bf16", "f32", "f64", "f16x2", "bf16x2", "u16x2", "s16x2", "tf32", "e4m3x2", "e5m2x2"),
    *("u4", "s4", "u2", "s2"),
)
OPERAND = re.compile(
    r"(?P<role>[=+]?)(?:(?P<count>V|D|S|\d+)\*)?(?P<type>[A-Za-z]\w*|\[,?\])(?P<wide>\+?)(?:\|(?P<second>\w+))?(?P<optional>\??)"
)


@dataclass(frozen=True)
class Slot:
    """One position among the modifiers: exactly one of `options`, or none of them where `optional`."""

    options: tuple[str, ...]
    optional: bool


@dataclass(frozen=True)
class Operand:
    """One operand: `type` is a type's name, T, U, W, `[]`, `[,]`, `imm`, or a word that the loader reads itself."""

    type: str
    dest: bool = False
    both: bool = False
    count: str = ""
    wide: bool = False
    second: bool = False
    optional: bool = False


@dataclass(frozen=True)
class Form:
    """One row of the table and where it stands."""

    opcode: str
    slots: tuple[Slot, ...]
    operands: tuple[Operand, ...]
    handler: str
    flags: tuple[str, ...]
    where: str

    def spellings(self) -> Iterator[tuple[str, ...]]:
        """Every legal choice of modifiers, in the row's order ('' where an optional one is absent)."""
        return itertools.product(*[(("",) if slot.optional else ()) + slot.options for slot in self.slots])


def expand(word: str) -> Iterator[str]:
    """`n[8:24:8]k16` is n8k16, n16k16, n24k16."""
    if found := re.fullmatch(r"(\w*)\[(\d+):(\d+):(\d+)\](\w*)", word):
        first, last, step = (int(found[i]) for i in (2, 3, 4))
        yield from (f"{found[1]}{number}{found[5]}" for number in range(first, last + 1, step))
    else:
        yield word


def read_template(text: str, where: str) -> tuple[str, tuple[Slot, ...]]:
    opcode, rest = re.fullmatch(r"([a-z]\w*)(.*)", text, re.DOTALL).groups()
    slots = []
    while rest:
        for pattern, optional in ((r"\.\{([^}]*)\}", False), (r"\{([^}]*)\}", True), (r"(\.[\w:]+)", False)):
            if match := re.match(pattern, rest):
                options = tuple(name for word in match[1].split() for name in expand(word.removeprefix(".")))
                if any("." in word for word in options):
                    raise ValueError(f"{where}: an alternative is one modifier, got {options}")
                slots.append(Slot(options, optional))
                rest = rest[match.end() :]
                break
        else:
            raise ValueError(f"{where}: cannot read {rest!r}")
    return opcode, tuple(slots)


def read_operand(text: str, where: str) -> Operand:
    match = OPERAND.fullmatch(text)
    if match is None:
        raise ValueError(f"{where}: cannot read operand {text!r}")
    return Operand(
        match["type"], match["role"] != "", match["role"] == "+", match["count"] or "", bool(match["wide"]),
        bool(match["second"]), bool(match["optional"]),
    )  # fmt: skip


def read_forms(folder: Path) -> list[Form]:
    """All rows of all tables in `folder`, in file order."""
    forms = []
    for path in sorted(folder.glob("*.forms")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            where = f"{path.name}:{number}"
            template, operands, handler, *flags = (field.strip() for field in re.split(r"(?<=\s)\|(?=\s)", line))
            opcode, slots = read_template(template, where)
            specs = tuple(read_operand(word, where) for word in operands.split())
            forms.append(Form(opcode, slots, specs, handler, tuple(" ".join(flags).split()), where))
    return forms


def mod_name(word: str) -> str:
    name = word.replace("::", "_")
    return f"n{name}" if name[0].isdigit() else f"{name}_" if name in KEYWORDS else name


def write_table(forms: list[Form]) -> str:
    lines: list[str] = []
    rows = []
    for index, form in enumerate(forms):
        slots = []
        for number, slot in enumerate(form.slots):
            options = ", ".join(f"Mod::{mod_name(word)}" for word in slot.options)
            lines.append(f"constexpr Mod options_{index}_{number}[] = {{{options}}};")
            slots.append(f"{{options_{index}_{number}, {str(slot.optional).lower()}}}")
        specs = []
        for operand in form.operands:
            fixed = operand.type if operand.type in TYPES else "none"
            kind = {"T": "first", "U": "second", "W": "wide", "[]": "address", "[,]": "tensor", "imm": "immediate"}.get(
                operand.type, "fixed" if operand.type in TYPES else "special"
            )
            count = {"": 1, "V": "kByModifier", "D": "kByShape", "S": "kBySpace"}.get(operand.count, operand.count)
            bits = (operand.dest, operand.both, operand.wide, operand.second, operand.optional)
            flags = ", ".join(str(bit).lower() for bit in bits)
            specs.append(f"{{TypeRef::{kind}, Type::{fixed}, {count}, {flags}}}")
        if slots:
            lines.append(f"constexpr Slot slots_{index}[] = {{{', '.join(slots)}}};")
        if specs:
            lines.append(f"constexpr OperandSpec operands_{index}[] = {{{', '.join(specs)}}};")
        select = "nullptr" if form.handler == "-" else f"select_{form.handler}"
        since = next((flag.removeprefix("since=") for flag in form.flags if flag.startswith("since=")), "90")
        flag = ", ".join(str(name in form.flags).lower() for name in ("anyorder", "pack", "custom"))
        rows.append(
            f'    {{"{form.opcode}", {f"slots_{index}" if slots else "{}"}, '
            f'{f"operands_{index}" if specs else "{}"}, {select}, {flag}, {since}, "{form.where}"}},'
        )
    return "\n".join([*lines, "constexpr Form kForms[] = {", *rows, "};", ""])


def write_selectors(forms: list[Form]) -> str:
    return "".join(
        f"void select_{handler}(const Choice&, Instruction&);\n"
        for handler in sorted({f.handler for f in forms} - {"-"})
    )


def write_mods(forms: list[Form]) -> str:
    words = {word for form in forms for slot in form.slots for word in slot.options} | set(TYPES)
    return "".join(f'X({mod_name(word)}, "{word}")\n' for word in sorted(words))


def main(target: Path) -> None:
    forms = read_forms(Path(__file__).parent)
    target.mkdir(parents=True, exist_ok=True)
    (target / "table.inc").write_text(write_table(forms))
    (target / "mods.inc").write_text(write_mods(forms))
    (target / "selectors.inc").write_text(write_selectors(forms))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
