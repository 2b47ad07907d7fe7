// Constants and functions of MD5 (RFC 1321 section 3.4).

package md5_pkg;

  // A unit gets the initial value as its state.
  // verilator lint_off UNUSEDPARAM

  typedef logic [31:0] word_t;

  // The chaining value at a stream's start, the last word first.
  localparam logic [3:0][31:0] Initial = {
    32'h10325476, 32'h98badcfe, 32'hefcdab89, 32'h67452301
  };

  // floor(2^32 * abs(sin(i + 1))), the last one first.
  localparam logic [63:0][31:0] K = {
    32'heb86d391, 32'h2ad7d2bb, 32'hbd3af235, 32'hf7537e82, 32'h4e0811a1, 32'ha3014314,
    32'hfe2ce6e0, 32'h6fa87e4f, 32'h85845dd1, 32'hffeff47d, 32'h8f0ccc92, 32'h655b59c3,
    32'hfc93a039, 32'hab9423a7, 32'h432aff97, 32'hf4292244, 32'hc4ac5665, 32'h1fa27cf8,
    32'he6db99e5, 32'hd9d4d039, 32'h04881d05, 32'hd4ef3085, 32'heaa127fa, 32'h289b7ec6,
    32'hbebfbc70, 32'hf6bb4b60, 32'h4bdecfa9, 32'ha4beea44, 32'hfde5380c, 32'h6d9d6122,
    32'h8771f681, 32'hfffa3942, 32'h8d2a4c8a, 32'h676f02d9, 32'hfcefa3f8, 32'ha9e3e905,
    32'h455a14ed, 32'hf4d50d87, 32'hc33707d6, 32'h21e1cde6, 32'he7d3fbc8, 32'hd8a1e681,
    32'h02441453, 32'hd62f105d, 32'he9b6c7aa, 32'h265e5a51, 32'hc040b340, 32'hf61e2562,
    32'h49b40821, 32'ha679438e, 32'hfd987193, 32'h6b901122, 32'h895cd7be, 32'hffff5bb1,
    32'h8b44f7af, 32'h698098d8, 32'hfd469501, 32'ha8304613, 32'h4787c62a, 32'hf57c0faf,
    32'hc1bdceee, 32'h242070db, 32'he8c7b756, 32'hd76aa478
  };

  // The message's word of a step.
  function automatic logic [3:0] message_index(logic [5:0] step);
    unique case (step[5:4])
      2'd0:    return step[3:0];
      2'd1:    return 4'(5 * step[3:0] + 4'd1);
      2'd2:    return 4'(3 * step[3:0] + 4'd5);
      default: return 4'(7 * step[3:0]);
    endcase
  endfunction

  // How far a step rotates to the left; `place` is the step's place among four.
  function automatic logic [4:0] rotation(logic [1:0] round, logic [1:0] place);
    unique case ({round, place})
      4'h0:    return 5'd7;
      4'h1:    return 5'd12;
      4'h2:    return 5'd17;
      4'h3:    return 5'd22;
      4'h4:    return 5'd5;
      4'h5:    return 5'd9;
      4'h6:    return 5'd14;
      4'h7:    return 5'd20;
      4'h8:    return 5'd4;
      4'h9:    return 5'd11;
      4'ha:    return 5'd16;
      4'hb:    return 5'd23;
      4'hc:    return 5'd6;
      4'hd:    return 5'd10;
      4'he:    return 5'd15;
      default: return 5'd21;
    endcase
  endfunction

  // The function of a round, of three words.
  function automatic word_t mix(logic [1:0] round, word_t b, word_t c, word_t d);
    unique case (round)
      2'd0:    return (b & c) | (~b & d);
      2'd1:    return (b & d) | (c & ~d);
      2'd2:    return b ^ c ^ d;
      default: return c ^ (b | ~d);
    endcase
  endfunction

  // To the left, in three stages of multiplexers.
  function automatic word_t rotate(word_t word, logic [4:0] by);
    word_t now;
    unique case (by[1:0])
      2'd0:    now = word;
      2'd1:    now = {word[30:0], word[31]};
      2'd2:    now = {word[29:0], word[31:30]};
      default: now = {word[28:0], word[31:29]};
    endcase
    unique case (by[3:2])
      2'd0:    now = now;
      2'd1:    now = {now[27:0], now[31:28]};
      2'd2:    now = {now[23:0], now[31:24]};
      default: now = {now[19:0], now[31:20]};
    endcase
    return by[4] ? {now[15:0], now[31:16]} : now;
  endfunction

endpackage
