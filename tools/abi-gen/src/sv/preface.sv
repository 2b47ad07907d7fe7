// The command set as the engine in SystemVerilog has it.
// Made from crates/abi by tools/abi-gen: `make generate`. Not to be edited.
// Byte 0 of a structure is in bits 7:0.

package dcs_pkg;

  // Whoever uses the package does not use all of it; fields have the names that they have in C.
  // verilator lint_off UNUSEDPARAM
  // verilator lint_off SYMRSVDWORD
