// A cyclic redundancy code: a word of data a cycle, of any width.
//
// The state is the code of the stream up to here, as the last job's result has it: 0 at the start.
// Bytes of the last word that are not there are zeros: they are taken in with the others, and then
// taken back, one a cycle. A step back is a few LUTs, while a multiplexer for every length of the
// last word would be larger than the code itself. The data's part is two stages of its own, so that
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
  localparam int unsigned MissingWidth = $clog2(Bytes),
  localparam int unsigned PlaceWidth   = $clog2(DataWidth)
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
  typedef logic [CrcWidth-1:0][CrcWidth-1:0] crc_matrix_t;
  // Rows are taken in groups. In one, every bit of the data has a pattern: the rows that it is in.
  // Bits of one pattern are summed once. These sizes of groups took the fewest LUTs.
  localparam int unsigned GroupRows = DataWidth < 256 ? 3 : 5;
  localparam int unsigned Groups   = (CrcWidth + GroupRows - 1) / GroupRows;
  localparam int unsigned Patterns = 2 ** GroupRows;
  typedef logic [Groups-1:0][Patterns-1:0] sums_t;
  // The data's bits in the order of their patterns; where a pattern begins.
  typedef logic [Groups-1:0][DataWidth-1:0][15:0] order_t;
  typedef logic [Groups-1:0][Patterns:0][15:0] starts_t;
  typedef struct packed {
    order_t  order;
    starts_t starts;
  } sorted_t;

  localparam logic [63:0] Polynomial = polynomial_of(Code);

  function automatic sorted_t make_sorted();
    sorted_t sorted;
    logic [DataWidth-1:0][63:0] columns;
    int unsigned place;
    // A bit enters at the remainder's bit 0, and goes on from there.
    columns[DataWidth-1] = forward(Polynomial, 64'd1, 1);
    for (int unsigned i = DataWidth - 1; i > 0; i--) begin
      columns[i-1] = forward(Polynomial, columns[i], 1);
    end
    for (int unsigned group = 0; group < Groups; group++) begin
      place = 0;
      for (int unsigned pattern = 0; pattern < Patterns; pattern++) begin
        sorted.starts[group][pattern] = 16'(place);
        for (int unsigned i = 0; i < DataWidth; i++) begin
          if (GroupRows'(columns[i] >> (GroupRows * group)) == GroupRows'(pattern)) begin
            sorted.order[group][place] = 16'(i);
            place = place + 1;
          end
        end
      end
      sorted.starts[group][Patterns] = 16'(place);
    end
    return sorted;
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

  localparam sorted_t     Sorted    = make_sorted();
  localparam crc_matrix_t CrcMatrix = make_crc_matrix();

  state_e state_d, state_q;
  // The word of Load and Unload.
  logic   turn_d, turn_q, last_turn, turned;
  // The bytes of the last word that are not there.
  logic [MissingWidth-1:0] missing_d, missing_q;

  // ---- The data's part: sums of the bits of a pattern, and a row's sum of those ----

  sums_t sums_d, sums_q;
  crc_t  part_d, part_q;
  logic  taken, valid_q, valid2_q, last_q, last2_q;

  assign taken = data_valid_i && data_ready_o;

  for (genvar group = 0; group < Groups; group++) begin : gen_group
    assign sums_d[group][0] = 1'b0;
    for (genvar pattern = 1; pattern < Patterns; pattern++) begin : gen_pattern
      localparam int unsigned Start = 32'(Sorted.starts[group][pattern]);
      localparam int unsigned Count = 32'(Sorted.starts[group][pattern+1]) - Start;
      if (Count == 0) begin : gen_none
        assign sums_d[group][pattern] = 1'b0;
      end else begin : gen_some
        logic [Count-1:0] picked;
        for (genvar i = 0; i < Count; i++) begin : gen_bit
          assign picked[i] = data_i[Sorted.order[group][Start+i][PlaceWidth-1:0]];
        end
        parity #(
          .Width(Count)
        ) u_parity (
          .bits_i  (picked),
          .parity_o(sums_d[group][pattern])
        );
      end
    end
  end

  for (genvar row = 0; row < CrcWidth; row++) begin : gen_row
    logic [Patterns/2-1:0] picked;
    for (genvar i = 0; i < Patterns / 2; i++) begin : gen_sum
      // The patterns that have this row: a one goes between the bits of a number.
      localparam int unsigned Place = row % GroupRows;
      localparam int unsigned High  = i >> Place;
      assign picked[i] = sums_q[row/GroupRows][(2*High + 1) * 2**Place + i % 2**Place];
    end
    parity #(
      .Width(Patterns / 2)
    ) u_parity (
      .bits_i  (picked),
      .parity_o(part_d[row])
    );
  end

  always_ff @(posedge clk_i) begin
    sums_q <= sums_d;
    part_q <= part_d;
  end

  // The bytes behind the last one that is there, which a search by halves finds.
  always_comb begin
    missing_d = '0;
    for (int unsigned i = MissingWidth; i > 0; i--) begin
      missing_d[i-1] = data_keep_i[missing_d | (MissingWidth'(1) << (i - 1))];
    end
    missing_d = ~missing_d;
  end

  // ---- The code, which is the inverted remainder (zeros at a stream's start count) ----

  crc_t crc_q, stepped, undone;

  always_comb begin
    for (int unsigned row = 0; row < CrcWidth; row++) stepped[row] = ^(CrcMatrix[row] & ~crc_q);
    undone = ~crc_q;
    for (int unsigned i = 0; i < 8; i++) begin
      undone = undone[CrcWidth-1] ? {undone[CrcWidth-2:0] ^ Polynomial[CrcWidth-2:0], 1'b1}
                                  : {undone[CrcWidth-2:0], 1'b0};
    end
  end

  always_ff @(posedge clk_i) begin
    unique case (state_q)
      Data:    if (valid2_q) crc_q <= ~(stepped ^ part_q);
      Undo:    crc_q <= ~undone;
      default: if (turned) crc_q <= CrcWidth'({state_i, crc_q} >> 32);
    endcase
  end

  // ---- Control ----

  assign last_turn    = 32'(turn_q) == Words - 1;
  assign data_ready_o = state_q == Data && !last_q && !last2_q;
  assign state_o      = crc_q[31:0];
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
      Data: if (last2_q) state_d = missing_q == '0 ? Unload : Undo;
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
      valid2_q  <= 1'b0;
      last_q    <= 1'b0;
      last2_q   <= 1'b0;
      missing_q <= '0;
    end else begin
      state_q   <= state_d;
      turn_q    <= turn_d;
      // A word without any byte ends a job that has no data.
      valid_q   <= taken && data_keep_i[0];
      last_q    <= taken && data_last_i;
      valid2_q  <= valid_q;
      last2_q   <= last_q;
      if (taken) missing_q <= data_keep_i[0] ? missing_d : '0;
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
