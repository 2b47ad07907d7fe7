"""Structures of the packages, by name: dictionaries to bits and back, as SystemVerilog packs them."""

import json
import os
import re
from functools import cache

from modules import RTL, resized


def clog2(number):
    return max(int(number) - 1, 0).bit_length()


# Of the core that is simulated, where they are not its package's.
SIZES = tuple(json.loads(os.environ.get("DCS_SIZES", "{}")).items())


@cache
def package(name, sizes=SIZES):
    """The constants, the widths of types and the fields of structures of a package, which may have other sizes."""
    text = re.sub(r"//[^\n]*", "", resized((RTL / f"{name}.sv").read_text(), dict(sizes)))
    known, widths, structs = {}, {"logic": 1}, {}
    for other in sorted(set(re.findall(r"\b(\w+_pkg)::", text)) - {name}):
        for part in package(other, sizes):
            {"known": known, "widths": widths, "structs": structs}[part[0]].update(part[1])

    def value(expression):
        expression = re.sub(r"\d*'[sS]?([hdb])([0-9a-fA-F]+)", lambda m: str(int(m[2], {"h": 16, "d": 10, "b": 2}[m[1]])), expression)
        expression = re.sub(r"\w+_pkg::", "", expression).replace("$clog2", "clog2").replace("/", "//")
        return eval(expression, {"clog2": clog2}, known)

    def width(kind):
        kind = re.sub(r"\w+_pkg::", "", kind.strip())
        dimensions = re.findall(r"\[([^\]]+):0\]", kind)
        bits = widths[re.match(r"\w+", kind)[0]]
        for high in dimensions:
            bits *= value(high) + 1
        return bits

    pattern = r"localparam (?:int unsigned|logic \[[^\]]+\]|\w+) (\w+) *= ([^;{]+);|typedef (struct packed|enum [^{]*|[^;{]+?)(?:\s*\{([^}]*)\})?\s*(\w+);"
    for found in re.finditer(pattern, text):
        constant, expression, kind, body, defined = found.groups()
        if constant:
            known[constant] = value(expression)
        elif kind == "struct packed":
            fields = [(m[2], width(m[1])) for m in re.finditer(r"([\w:]+(?:\s*\[[^\]]+\])*)\s+(\w+);", body)]
            structs[defined] = fields
            widths[defined] = sum(bits for _, bits in fields)
        elif kind.startswith("enum"):
            widths[defined] = width(kind[4:])
            for number, label in enumerate(re.findall(r"\w+", body)):
                known[label] = number
        else:
            widths[defined] = width(kind)
    return (("known", known), ("widths", widths), ("structs", structs))


def constants(name):
    return package(name)[0][1]


def pack(structure, of="core_pkg", /, **values):
    """The bits of a structure of a package; fields that are not given are zero."""
    bits = 0
    structs = package(of)[2][1]
    for field, width in structs[structure]:
        bits = bits << width | values.pop(field, 0) & (1 << width) - 1
    assert not values, f"{structure} has no {values}"
    return bits


def unpack(structure, bits, of="core_pkg"):
    fields = {}
    for field, width in reversed(package(of)[2][1][structure]):
        fields[field] = bits & (1 << width) - 1
        bits >>= width
    return fields
