"""Block diagrams of modules, made of the sources: boxes are the modules within, arrows the channels between them. docs/rtl.md has them as
text for Mermaid; what stands there must be what is made here.

An arrow goes from who says `valid` to who hears it, and from who makes requests on a bus to who takes them, through whatever logic lies
between. What answers (`ready`, responses) and plain values are left out. Arbiters are logic.
"""

import re
from collections import defaultdict

import pyslang
from modules import RTL, UNITS, sources

DOCUMENT = RTL.parent / "docs" / "rtl.md"
# The modules that are drawn: in each, those that belong to it and to no other.
DRAWN = ["card", "engine_units", "engine"]
LOGIC = {"arbiter"}
OUTSIDE = "outside"


def top_of(args, name):
    unit = UNITS[name]
    driver = pyslang.driver.Driver()
    driver.addStandardArgs()
    driver.parseCommandLine(" ".join(["slang", f"--top {unit.top}", *map(str, sources(args, unit))]))
    driver.processOptions()
    driver.parseAllSources()
    return driver.createCompilation().getRoot().topInstances[0]


def members(scope):
    """All members of a module, also those in its generate blocks."""
    for member in scope:
        kind = str(member.kind).rpartition(".")[2]
        if kind == "GenerateBlockArray":
            for block in member.entries:
                yield from members(block)
        elif kind == "GenerateBlock":
            if not member.isUninstantiated:
                yield from members(member)
        else:
            yield kind, member


def named(node):
    """The signals of an expression, each with the element that is meant, or none for all of it."""
    found, within = set(), set()

    def look(inner):
        if isinstance(inner, pyslang.ast.ElementSelectExpression) and inner.selector.constant is not None:
            if isinstance(inner.value, pyslang.ast.NamedValueExpression):
                found.add((inner.value.symbol.name, str(inner.selector.constant)))
                within.add(id(inner.value.syntax))
        elif isinstance(inner, pyslang.ast.NamedValueExpression) and id(inner.syntax) not in within:
            if not str(inner.symbol.kind).endswith("Parameter"):
                found.add((inner.symbol.name, None))
        return True

    node.visit(look)
    elements = {name for name, at in found if at is not None}
    return {(name, at) for name, at in found if at is not None or name not in elements}


def assignments(node):
    found = []

    def look(inner):
        if isinstance(inner, pyslang.ast.AssignmentExpression):
            found.append((named(inner.left), named(inner.right)))
        return True

    node.visit(look)
    return found


def speakers(ports):
    """Of ports, those that say that something is there: `valid`, requests on a bus, or the bit whose name begins the names of what comes
    with it."""

    def leads(port):
        base = port.name[:-1]
        others = (other for other in ports if other is not port and other.direction == port.direction)
        return port.type.bitWidth == 1 and any(other.name.startswith(base) for other in others)

    return {port.name for port in ports if "valid" in port.name or "request_t" in str(port.type) or leads(port)}


class Wires:
    """What leads from what is driven to what is read."""

    def __init__(self):
        self.drives = defaultdict(set)  # by who reads
        self.assigned = []

    def reached(self, driven):
        reached, todo = set(driven), list(driven)
        while todo:
            net = todo.pop()
            for left, right in self.assigned:
                if any(same(net, one) for one in right):
                    more = left - reached
                    reached |= more
                    todo += more
        return reached


def same(one, other):
    return one[0] == other[0] and (one[1] is None or other[1] is None or one[1] == other[1])


def channels(top):
    """The modules within, by name with their number, and the pairs with a channel between them."""
    says, hears, boxes, wires = defaultdict(set), defaultdict(set), defaultdict(int), Wires()
    for kind, member in members(top.body):
        if kind == "Instance":
            module = member.definition.name
            ports = [(link.port, named(link.expression)) for link in member.portConnections if link.expression]
            speaks = speakers([port for port, _ in ports])
            into = [(port, nets) for port, nets in ports if str(port.direction).endswith("In")]
            out = [(port, nets) for port, nets in ports if not str(port.direction).endswith("In")]
            if module in LOGIC:
                wires.assigned += [(nets, names) for _, names in into for _, nets in out]
                continue
            boxes[module] += 1
            for port, nets in into:
                if port.name in speaks:
                    hears[module] |= nets
            for port, nets in out:
                if port.name in speaks:
                    says[module] |= nets
        elif kind == "ContinuousAssign":
            wires.assigned += assignments(member.assignment)
        elif kind == "ProceduralBlock" and "AlwaysComb" in str(member.procedureKind):
            wires.assigned += assignments(member.body)
    speaks = speakers(top.body.portList)
    ports = [port for port in top.body.portList if port.name in speaks]
    says[OUTSIDE] = {(port.name, None) for port in ports if str(port.direction).endswith("In")}
    hears[OUTSIDE] = {(port.name, None) for port in ports if not str(port.direction).endswith("In")}
    arrows = set()
    for module, nets in says.items():
        reached = wires.reached(nets)
        for other, heard in hears.items():
            if other != module and any(same(one, two) for one in reached for two in heard):
                arrows.add((module, other))
    return dict(boxes), arrows


def drawn(args, name):
    """The diagram as Mermaid has it. What comes from outside is on the left, what goes there on the right."""
    boxes, arrows = channels(top_of(args, name))
    lines = ["flowchart LR", '  from(["outside"])', f"  subgraph {name}"]
    lines += [f'    {module}["{module}{f" x {count}" if count > 1 else ""}"]' for module, count in boxes.items()]
    lines += ["  end", '  to(["outside"])']
    ends = sorted(("from" if one == OUTSIDE else one, "to" if other == OUTSIDE else other) for one, other in arrows)
    return "".join(f"{line}\n" for line in [*lines, *(f"  {one} --> {other}" for one, other in ends)])


def written(args):
    """The document with the diagrams as the sources have them."""
    text = DOCUMENT.read_text()
    for name in DRAWN:
        block = rf"(<!-- the modules within {name}: made by tools/rtl diagram -->\n```mermaid\n).*?(```\n)"
        made = drawn(args, name)
        text, count = re.subn(block, lambda found: found[1] + made + found[2], text, flags=re.S)
        if count != 1:
            raise SystemExit(f"docs/rtl.md has {count} places for the diagram of {name}")
    return text


def run(args):
    DOCUMENT.write_text(written(args))
    print("docs/rtl.md: diagrams as in the sources")
    return True


def stale(args):
    """A line that says so where the document has other diagrams."""
    good = written(args) == DOCUMENT.read_text()
    return "" if good else "docs/rtl.md: its diagrams are not those of the sources: tools/rtl diagram\n"
