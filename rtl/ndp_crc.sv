// A cyclic redundancy code: a word of data a cycle, of any width.
//
// The state is the code of the stream up to here, as the last job's result has it: 0 at the start.
// Bytes of the last word that are not there are zeros: they are taken in with the others, and then
// taken back, one a cycle. A step back is a few LUTs, while a multiplexer for every length of the
// last word would be larger than the code itself. The data's part is a stage of its own, so that
// the loop is short for any width.

module ndp_crc
  import crc_pkg::*;
#(
  // See crc_pkg.
  parameter int unsigned Code      = 0,
  parameter int unsigned DataWidth = 64,

  localparam int unsigned CrcWidth     = width_of(Code),
  localparam int unsigned Bytes        = DataWidth / 8,
  localparam int unsigned Words        = CrcWidth / 32,
  localparam int unsigned MissingWidth = $clog2(Bytes)
) (
  input  logic                 clk_i,
  input  logic                 rst_ni,

  // A job, stable until it is ready, which is when its last word of state is out.
  input  logic                 job_valid_i,
  output logic                 job_ready_o,

  // The state's word at a place: in before the job's data, out after them.
  output logic                 index_o,
  input  logic                 state_valid_i,
  output logic                 state_ready_o,
  input  logic [31:0]          state_i,
  output logic                 state_valid_o,
  input  logic                 state_ready_i,
  output logic [31:0]          state_o,

  // Bytes in memory's order. All of a word are there, but not in the last one; the others are zero.
  input  logic                 data_valid_i,
  output logic                 data_ready_o,
  input  logic [DataWidth-1:0] data_i,
  input  logic [Bytes-1:0]     data_keep_i,
  input  logic                 data_last_i
);

  typedef enum logic [1:0] {
    Load,
    Data,
    Undo,
    Unload
  } state_e;

  typedef logic [CrcWidth-1:0] crc_t;
  // A row for every bit of the remainder: the bits that it sums.
  typedef logic [CrcWidth-1:0][DataWidth-1:0] data_matrix_t;
  typedef logic [CrcWidth-1:0][CrcWidth-1:0] crc_matrix_t;

  localparam logic [63:0] Polynomial = polynomial_of(Code);

  function automatic data_matrix_t make_data_matrix();
    data_matrix_t matrix;
    logic [63:0] column;
    for (int unsigned bit_in = 0; bit_in < DataWidth; bit_in++) begin
      // The bit enters at the remainder's bit 0, and goes on from there.
      column = forward(Polynomial, 64'd1, DataWidth - bit_in);
      for (int unsigned row = 0; row < CrcWidth; row++) matrix[row][bit_in] = column[row];
    end
    return matrix;
  endfunction

  function automatic crc_matrix_t make_crc_matrix();
    crc_matrix_t matrix;
    logic [63:0] column;
    for (int unsigned bit_in = 0; bit_in < CrcWidth; bit_in++) begin
      column = forward(Polynomial, 64'd1 << bit_in, DataWidth);
      for (int unsigned row = 0; row < CrcWidth; row++) matrix[row][bit_in] = column[row];
    end
    return matrix;
  endfunction

  localparam data_matrix_t DataMatrix = make_data_matrix();
  localparam crc_matrix_t  CrcMatrix  = make_crc_matrix();

  state_e state_d, state_q;
  // The word of Load and Unload.
  logic   turn_d, turn_q, last_turn, turned;
  // The bytes of the last word that are not there.
  logic [MissingWidth-1:0] missing_d, missing_q;

  // ---- The data's part ----

  crc_t part_d, part_q;
  logic taken, valid_q, last_q;

  assign taken = data_valid_i && data_ready_o;

  always_comb begin
    for (int unsigned row = 0; row < CrcWidth; row++) part_d[row] = ^(DataMatrix[row] & data_i);
  end

  // The last byte that is there has none behind it.
  always_comb begin
    missing_d = '0;
    for (int unsigned i = 0; i + 1 < Bytes; i++) begin
      if (data_keep_i[i] && !data_keep_i[i+1]) missing_d |= MissingWidth'(Bytes - 1 - i);
    end
  end

  always_ff @(posedge clk_i) begin
    if (taken) part_q <= part_d;
  end

  // ---- The remainder, inverted (zeros at a stream's start count) ----

  crc_t crc_q, stepped, undone;

  always_comb begin
    for (int unsigned row = 0; row < CrcWidth; row++) stepped[row] = ^(CrcMatrix[row] & crc_q);
    undone = crc_q;
    for (int unsigned i = 0; i < 8; i++) begin
      undone = undone[CrcWidth-1] ? {undone[CrcWidth-2:0] ^ Polynomial[CrcWidth-2:0], 1'b1}
                                  : {undone[CrcWidth-2:0], 1'b0};
    end
  end

  always_ff @(posedge clk_i) begin
    unique case (state_q)
      Data:    if (valid_q) crc_q <= stepped ^ part_q;
      Undo:    crc_q <= undone;
      default: if (turned) crc_q <= CrcWidth'({~state_i, crc_q} >> 32);
    endcase
  end

  // ---- Control ----

  assign last_turn    = 32'(turn_q) == Words - 1;
  assign data_ready_o = state_q == Data && !last_q;
  assign state_o      = ~crc_q[31:0];
  assign index_o      = turn_q;

  always_comb begin
    state_d       = state_q;
    turned        = 1'b0;
    state_ready_o = 1'b0;
    state_valid_o = 1'b0;
    job_ready_o   = 1'b0;
    unique case (state_q)
      Load: begin
        state_ready_o = job_valid_i;
        turned        = state_valid_i && state_ready_o;
        if (turned && last_turn) state_d = Data;
      end
      Data: if (last_q) state_d = missing_q == '0 ? Unload : Undo;
      Undo: if (missing_q == MissingWidth'(1)) state_d = Unload;
      default: begin
        state_valid_o = 1'b1;
        turned        = state_ready_i;
        if (turned && last_turn) begin
          state_d     = Load;
          job_ready_o = 1'b1;
        end
      end
    endcase
    turn_d = turned ? !last_turn : turn_q;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q   <= Load;
      turn_q    <= 1'b0;
      valid_q   <= 1'b0;
      last_q    <= 1'b0;
      missing_q <= '0;
    end else begin
      state_q   <= state_d;
      turn_q    <= turn_d;
      // A word without any byte ends a job that has no data.
      valid_q   <= taken && data_keep_i[0];
      last_q    <= taken && data_last_i;
      if (taken) missing_q <= missing_d;
      else if (state_q == Undo) missing_q <= missing_q - 1'b1;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk_i) begin
    if (taken) begin
      assert (data_last_i || &data_keep_i) else $error("a word before the last one is not full");
      assert ((data_keep_i & (data_keep_i + 1'b1)) == '0) else $error("a word has a hole");
      for (int unsigned i = 0; i < Bytes; i++) begin
        assert (data_keep_i[i] || data_i[8*i +: 8] == 8'h00) else $error("a byte is there and not");
      end
    end
  end
`endif

endmodule
