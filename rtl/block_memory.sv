// The memory of the blocks, which all devices and units share: a word read and a word written a
// cycle, both in turns. A row of the scoreboard is a block of it.
//
// A reader asks for a word and has it two cycles after its turn (`read_done_o`, `read_data_o`),
// when it has to take it. What is written can be read two cycles later.

module block_memory
  import core_pkg::*;
#(
  // Two or more of each.
  parameter int unsigned Readers = 2,
  parameter int unsigned Writers = 2,
  // Of 4 KiB, or what a block has.
  parameter int unsigned Rows    = Blocks
) (
  input  logic                      clk_i,
  input  logic                      rst_ni,

  input  logic [Readers-1:0]        read_valid_i,
  output logic [Readers-1:0]        read_ready_o,
  input  word_at_t [Readers-1:0]    read_at_i,
  output logic [Readers-1:0]        read_done_o,
  output block_word_t               read_data_o,

  input  logic [Writers-1:0]        write_valid_i,
  output logic [Writers-1:0]        write_ready_o,
  input  word_at_t [Writers-1:0]    write_at_i,
  input  block_word_t [Writers-1:0] write_data_i,
  // Bytes that are written.
  input  keep_t [Writers-1:0]       write_keep_i
);

  localparam int unsigned Words       = Rows * (BlockSize / WordBytes);
  localparam int unsigned IndexWidth  = $clog2(Words);
  localparam int unsigned ReaderWidth = $clog2(Readers);
  localparam int unsigned WriterWidth = $clog2(Writers);

  (* ram_style = "block" *)
  block_word_t words_q [Words];

  // ---- Whose turn it is ----

  logic                   read, write, read_q;
  logic [ReaderWidth-1:0] reader;
  logic [WriterWidth-1:0] writer;
  logic [Readers-1:0]     asked_q;
  word_at_t               read_at_q, write_at_q;
  block_word_t            write_data_q;
  keep_t                  write_keep_q;
  logic                   unused;

  assign unused = ^{read_at_q, write_at_q};

  arbiter #(.Count (Readers)) u_read_turn (
    .clk_i, .rst_ni, .ask_i (read_valid_i), .valid_o (read), .chosen_o (reader), .take_i (read)
  );
  arbiter #(.Count (Writers)) u_write_turn (
    .clk_i, .rst_ni, .ask_i (write_valid_i), .valid_o (write), .chosen_o (writer), .take_i (write)
  );

  always_comb begin
    read_ready_o          = '0;
    write_ready_o         = '0;
    read_ready_o[reader]  = read;
    write_ready_o[writer] = write;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      asked_q      <= '0;
      read_q       <= 1'b0;
      read_done_o  <= '0;
      write_keep_q <= '0;
    end else begin
      asked_q      <= read_ready_o;
      read_q       <= read;
      read_done_o  <= asked_q;
      write_keep_q <= write ? write_keep_i[writer] : '0;
    end
  end

  always_ff @(posedge clk_i) begin
    read_at_q    <= read_at_i[reader];
    write_at_q   <= write_at_i[writer];
    write_data_q <= write_data_i[writer];
  end

  // ---- The memory ----

  always_ff @(posedge clk_i) begin
    if (read_q) read_data_o <= words_q[IndexWidth'(read_at_q)];
    for (int unsigned i = 0; i < WordBytes; i++) begin
      if (write_keep_q[i]) words_q[IndexWidth'(write_at_q)][8*i +: 8] <= write_data_q[8*i +: 8];
    end
  end

endmodule
