// Constants and functions of SHA-1 (FIPS 180-4 4.1.1 and 4.2.1).

package sha1_pkg;

  // A unit gets the initial value as its state.
  // verilator lint_off UNUSEDPARAM

  typedef logic [31:0] word_t;

  // The chaining value at a stream's start, the last word first.
  localparam logic [4:0][31:0] Initial = {
    32'hc3d2e1f0, 32'h10325476, 32'h98badcfe, 32'hefcdab89, 32'h67452301
  };

  // By the round, which is 20 steps; the last one first.
  localparam logic [3:0][31:0] K = {32'hca62c1d6, 32'h8f1bbcdc, 32'h6ed9eba1, 32'h5a827999};

  function automatic logic [1:0] round_of(logic [6:0] step);
    return step < 7'd40 ? {1'b0, step >= 7'd20} : {1'b1, step >= 7'd60};
  endfunction

  // The function of a round, of three words.
  function automatic word_t mix(logic [1:0] round, word_t b, word_t c, word_t d);
    unique case (round)
      2'd0:    return (b & c) ^ (~b & d);
      2'd2:    return (b & c) ^ (b & d) ^ (c & d);
      default: return b ^ c ^ d;
    endcase
  endfunction

endpackage
