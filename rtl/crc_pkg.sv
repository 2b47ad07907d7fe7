// Cyclic redundancy codes as matrices over GF(2), made by running the bitwise code on unit vectors.
//
// Codes are reflected: the first bit of the data, and the highest power of the remainder, is bit 0.

package crc_pkg;

  // The codes: 0 is the CRC-32 of IEEE 802.3, 1 the CRC-32C of RFC 3720, 2 the CRC-64 of the NVM
  // Command Set Specification 1.1, 5.2.1.3.4.
  function automatic logic [63:0] polynomial_of(int unsigned code);
    unique case (code)
      0:       return 64'h0000_0000_edb8_8320;
      1:       return 64'h0000_0000_82f6_3b78;
      default: return 64'h9a6c_9329_ac4b_c9b5;
    endcase
  endfunction

  function automatic int unsigned width_of(int unsigned code);
    return code < 2 ? 32 : 64;
  endfunction

  // The remainder after this many zero bits more.
  function automatic logic [63:0] forward(logic [63:0] polynomial, logic [63:0] crc,
                                          int unsigned bits);
    logic [63:0] now;
    now = crc;
    for (int unsigned i = 0; i < bits; i++) begin
      now = (now >> 1) ^ (now[0] ? polynomial : 64'd0);
    end
    return now;
  endfunction

endpackage
