// Moves bytes to another alignment: words in which the first byte is at one place go in, words in
// which it is at another one come out.
//
// A word that goes in is turned by the difference of both places. A word that comes out has its
// upper bytes from that one, and its lower ones from the one before.

module realign
  import core_pkg::*;
#(
  localparam int unsigned PlaceWidth = $clog2(WordBytes),
  localparam int unsigned CountWidth = BlockShift - PlaceWidth + 2
) (
  input  logic        clk_i,
  input  logic        rst_ni,

  // A run of bytes, at least one, when the one before has come out.
  input  logic                  start_i,
  input  logic [PlaceWidth-1:0] from_i,
  input  logic [PlaceWidth-1:0] to_i,
  input  bytes_t                length_i,
  // The words that go in, and those that come out, follow from these.
  output logic [CountWidth-1:0] words_in_o,
  output logic [CountWidth-1:0] words_out_o,

  input  logic        valid_i,
  output logic        ready_o,
  input  block_word_t word_i,
  output logic        valid_o,
  input  logic        ready_i,
  output block_word_t word_o,
  // Bytes of it that belong to the run.
  output keep_t       keep_o,
  output logic        last_o
);

  logic [PlaceWidth-1:0] by_q, to_q, end_q;
  // The first word that goes in gives none that comes out.
  logic                  prime_q, first_q;
  logic [CountWidth-1:0] in_q, out_q;
  block_word_t           turned, before_q;
  logic                  take, give;

  function automatic logic [CountWidth-1:0] words(logic [PlaceWidth-1:0] place, bytes_t length);
    return CountWidth'((32'(place) + 32'(length) + WordBytes - 1) / WordBytes);
  endfunction

  assign words_in_o  = words(from_i, length_i);
  assign words_out_o = words(to_i, length_i);

  // Where nothing more goes in, the rest of the last word comes out.
  assign valid_o = out_q != '0 && !prime_q && (valid_i || in_q == '0);
  assign ready_o = in_q != '0 && (prime_q || ready_i);
  assign take    = valid_i && ready_o;
  assign give    = valid_o && ready_i;
  assign last_o  = out_q == CountWidth'(1);
  assign turned  = block_word_t'({word_i, word_i} >> (8 * (WordBytes - 32'(by_q))));

  always_comb begin
    for (int unsigned i = 0; i < WordBytes; i++) begin
      word_o[8*i +: 8] = i < 32'(by_q) ? before_q[8*i +: 8] : turned[8*i +: 8];
      keep_o[i]        = !(first_q && i < 32'(to_q)) && !(last_o && end_q != '0 && i >= 32'(end_q));
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      in_q    <= '0;
      out_q   <= '0;
      prime_q <= 1'b0;
    end else if (start_i) begin
      in_q    <= words_in_o;
      out_q   <= words_out_o;
      prime_q <= to_i < from_i;
    end else begin
      in_q    <= in_q - CountWidth'(take);
      out_q   <= out_q - CountWidth'(give);
      prime_q <= prime_q && !take;
    end
  end

  always_ff @(posedge clk_i) begin
    if (start_i) begin
      by_q    <= to_i - from_i;
      to_q    <= to_i;
      end_q   <= to_i + PlaceWidth'(length_i);
      first_q <= 1'b1;
    end else begin
      first_q <= first_q && !give;
    end
    if (take) before_q <= turned;
  end

endmodule
