// Completions: the result area is written where one is wanted, then the completion entry is handed
// to the frontend, in the order in which commands finished.
//
// Of the result area the words are written that say anything of a command with so many operators
// (`ResultArea::used`).

module completion
  import core_pkg::*;
  import dcs_pkg::*;
(
  input  logic                clk_i,
  input  logic                rst_ni,

  // A command is finished. There is room for all of them.
  input  logic                finish_i,
  input  command_t            finish_command_i,
  input  posting_t            finish_posting_i,
  input  address_t            finish_result_i,
  // When its entry was checked, when it started, when it was finished.
  input  logic [2:0][63:0]    finish_times_i,
  input  logic [63:0]         finish_bytes_in_i,
  input  logic [63:0]         finish_bytes_out_i,
  input  logic [15:0]         finish_path_i,
  // Its operators, and those whose digests were told.
  input  places_t             finish_operators_i,
  input  logic [ChainMax-1:0] finish_told_i,
  // Its stages that had operations; and the errno of its failure.
  input  logic [TimedStages-1:0] finish_seen_i,
  input  errno_t              finish_errno_i,

  // The times of a stage, in the cycle after one with `ready`.
  input  logic                times_ready_i,
  output times_at_t           times_at_o,
  input  times_t              times_i,

  // A word of struct dcs_digest.
  output logic                digest_valid_o,
  input  logic                digest_ready_i,
  output command_t            digest_command_o,
  output place_t              digest_at_o,
  output logic [3:0]          digest_index_o,
  input  logic [63:0]         digest_i,

  output logic                write_valid_o,
  input  logic                write_ready_i,
  output address_t            write_address_o,
  output logic [63:0]         write_data_o,
  output command_t            write_command_o,
  output queue_t              write_queue_o,

  output logic                post_o,
  output command_t            post_command_o,
  output posting_t            post_posting_o,
  output logic                idle_o
);

  typedef struct packed {
    posting_t            posting;
    address_t            result;
    logic [2:0][63:0]    times;
    logic [63:0]         bytes_in;
    logic [63:0]         bytes_out;
    logic [15:0]         path;
    places_t             operators;
    logic [ChainMax-1:0] told;
    logic [TimedStages-1:0] seen;
    errno_t              errno;
  } record_t;

  typedef enum logic [2:0] {
    Choose,
    Head,
    // A stage's times: asked for, there, a word of them written.
    Ask,
    Catch,
    Stages,
    Digests,
    Post
  } state_e;

  localparam int unsigned CommandsWidth = $clog2(Commands + 1);
  localparam int unsigned StagesAt      = 8;
  localparam int unsigned DigestsAt     = 48;

  record_t                  records [Commands];
  command_t                 line    [Commands];
  command_t                 read_q, write_q, command_q;
  logic [CommandsWidth-1:0] count_q;
  state_e                   state_q;
  record_t                  record;
  // The word of the head, of a stage's times or of a digest; and which stage or digest.
  logic [3:0]               index_q, last_index;
  logic [3:0]               at_q, last_at;
  logic                     told, step, ends, pop;
  logic [3:0][63:0]         times;
  logic [63:0]              time_q;
  logic [7:0][63:0]         head;
  logic [7:0]               word;

  assign record     = records[command_q];
  assign told       = record.told[at_q[2:0]];
  assign pop        = state_q == Choose && count_q != '0;
  assign idle_o     = state_q == Choose && count_q == '0;

  always_comb begin
    head    = '0;
    head[0] = {32'(record.errno), record.posting.stage_index, record.posting.stage, 1'b0,
               record.posting.status};
    head[1] = 64'(record.path);
    head[2] = record.bytes_in;
    head[3] = record.bytes_out;
    {head[6], head[5], head[4]} = record.times;
  end

  // ---- A word ----

  assign digest_valid_o   = state_q == Digests && told;
  assign digest_command_o = command_q;
  assign digest_at_o      = at_q[2:0];
  assign digest_index_o   = index_q;
  assign times            = {64'(times_i.operations), times_i.busy, times_i.last, times_i.first};
  assign times_at_o       = '{command: command_q, stage: at_q};
  assign write_valid_o    = state_q inside {Head, Stages}
                            || (state_q == Digests && (!told || digest_ready_i));
  assign write_command_o  = command_q;
  assign write_queue_o    = record.posting.owner;
  assign write_address_o  = record.result + address_t'({word, 3'b0});
  assign step             = write_valid_o && write_ready_i;
  assign ends             = index_q == last_index && at_q == last_at;

  always_comb begin
    word         = 8'(index_q);
    last_index   = 4'd7;
    last_at      = '0;
    write_data_o = head[index_q[2:0]];
    unique case (state_q)
      Stages: begin
        word         = 8'(StagesAt) + {2'b0, at_q, index_q[1:0]};
        last_index   = 4'd3;
        last_at      = record.operators + 4'd1;
        write_data_o = time_q;
      end
      Digests: begin
        word         = 8'(DigestsAt) + 8'(at_q) * 8'd10 + 8'(index_q);
        last_index   = 4'd9;
        last_at      = record.operators - 4'd1;
        write_data_o = told ? digest_i : '0;
      end
      default: ;
    endcase
  end

  assign post_o         = state_q == Post;
  assign post_command_o = command_q;
  assign post_posting_o = record.posting;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= Choose;
      count_q <= '0;
      read_q  <= '0;
      write_q <= '0;
    end else begin
      count_q <= count_q + CommandsWidth'(finish_i) - CommandsWidth'(pop);
      if (finish_i) write_q <= command_t'(32'(write_q) + 1 == Commands ? 0 : 32'(write_q) + 1);
      if (pop) read_q <= command_t'(32'(read_q) + 1 == Commands ? 0 : 32'(read_q) + 1);
      unique case (state_q)
        Choose:  if (pop) state_q <= records[line[read_q]].result == '0 ? Post : Head;
        Head:   if (step && index_q == last_index) state_q <= Ask;
        Ask: begin
          if (!record.seen[at_q]) state_q <= Stages;
          else if (times_ready_i) state_q <= Catch;
        end
        Catch:  state_q <= Stages;
        Stages: begin
          if (step) state_q <= !ends ? Ask : record.operators == '0 ? Post : Digests;
        end
        Digests: if (step && ends) state_q <= Post;
        Post:    state_q <= Choose;
        default: ;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    if (finish_i) begin
      line[write_q]             <= finish_command_i;
      records[finish_command_i] <= '{
        posting:   finish_posting_i,
        result:    finish_result_i,
        times:     finish_times_i,
        bytes_in:  finish_bytes_in_i,
        bytes_out: finish_bytes_out_i,
        path:      finish_path_i,
        operators: finish_operators_i,
        told:      finish_told_i,
        seen:      finish_seen_i,
        errno:     finish_errno_i
      };
    end
    if (state_q == Choose) begin
      command_q <= line[read_q];
      index_q   <= '0;
      at_q      <= '0;
    end else if (step) begin
      index_q <= index_q == last_index ? '0 : index_q + 1'b1;
      if (index_q == last_index) at_q <= state_q == Head || ends ? '0 : at_q + 1'b1;
    end
    if (state_q == Ask) time_q <= '0;
    if (state_q == Catch) time_q <= times[index_q[1:0]];
  end

endmodule
