// The padding of MD5, SHA-1 and SHA-256 (RFC 1321 3.1 and 3.2, FIPS 180-4 5.1.1).
//
// Bytes of a job go in, words of whole 64-byte blocks come out, in the digest's byte order. A job
// that ends its stream is followed by the mark, zeros and the stream's length in bits; one that
// doesn't is a multiple of 64 bytes, at least one.

module ndp_pad #(
  parameter bit BigEndian = 1'b0
) (
  input  logic        clk_i,
  input  logic        rst_ni,

  // The job ends its stream, which has that many bytes. Stable while a job is under way.
  input  logic        final_i,
  input  logic [60:0] length_i,

  // Bytes in memory's order. All four of a word are there, but not in the last one.
  input  logic        data_valid_i,
  output logic        data_ready_o,
  input  logic [31:0] data_i,
  input  logic [3:0]  data_keep_i,
  input  logic        data_last_i,

  output logic        word_valid_o,
  input  logic        word_ready_i,
  output logic [31:0] word_o,
  // The job's last word.
  output logic        word_last_o
);

  typedef enum logic [1:0] {
    Data,
    Mark,
    Fill
  } state_e;

  state_e      state_d, state_q;
  // The word's place in its block.
  logic [3:0]  place_d, place_q;
  // The first half of the length is out: it fits into this block.
  logic        length_d, length_q;

  logic [63:0] bits;
  logic [31:0] kept, marked, swapped;
  logic        ends;

  assign bits = {length_i, 3'b000};
  assign ends = data_last_i && final_i;

  // The bytes that there are, and the mark behind them.
  always_comb begin
    for (int unsigned i = 0; i < 4; i++) begin
      kept[8*i +: 8] = data_keep_i[i] ? data_i[8*i +: 8] : 8'h00;
    end
    marked = kept;
    if (ends) begin
      unique case (data_keep_i)
        4'b0000: marked[7:0]   = 8'h80;
        4'b0001: marked[15:8]  = 8'h80;
        4'b0011: marked[23:16] = 8'h80;
        4'b0111: marked[31:24] = 8'h80;
        default: ;
      endcase
    end
  end

  if (BigEndian) begin : gen_big_endian
    assign swapped = {marked[7:0], marked[15:8], marked[23:16], marked[31:24]};
  end else begin : gen_little_endian
    assign swapped = marked;
  end

  always_comb begin
    unique case (state_q)
      Data:    word_o = swapped;
      Mark:    word_o = BigEndian ? 32'h8000_0000 : 32'h0000_0080;
      default: begin
        word_o = '0;
        if (place_q == 4'd14) word_o = BigEndian ? bits[63:32] : bits[31:0];
        if (place_q == 4'd15 && length_q) word_o = BigEndian ? bits[31:0] : bits[63:32];
      end
    endcase
  end

  assign word_valid_o = state_q == Data ? data_valid_i : 1'b1;
  assign data_ready_o = state_q == Data && word_ready_i;
  assign word_last_o  = state_q == Data ? data_last_i && !final_i : place_q == 4'd15 && length_q;

  always_comb begin
    state_d  = state_q;
    place_d  = place_q;
    length_d = length_q;
    if (word_valid_o && word_ready_i) begin
      place_d = place_q + 4'd1;
      unique case (state_q)
        Data: if (ends) state_d = data_keep_i == 4'b1111 ? Mark : Fill;
        Mark: state_d = Fill;
        default: begin
          length_d = place_q == 4'd14;
          if (word_last_o) state_d = Data;
        end
      endcase
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q  <= Data;
      place_q  <= '0;
      length_q <= 1'b0;
    end else begin
      state_q  <= state_d;
      place_q  <= place_d;
      length_q <= length_d;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk_i) begin
    if (data_valid_i && data_ready_o) begin
      if (!data_last_i) begin
        assert (data_keep_i == 4'b1111) else $error("a word that is not the last one is not full");
      end else if (!final_i) begin
        assert (data_keep_i == 4'b1111 && place_q == 4'd15)
        else $error("a job that does not end its stream is not a multiple of 64 bytes");
      end
      assert (data_keep_i inside {4'b0000, 4'b0001, 4'b0011, 4'b0111, 4'b1111})
      else $error("a word has a hole");
    end
  end
`endif

endmodule
