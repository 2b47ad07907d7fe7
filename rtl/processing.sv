// The processing path: it does the core's DoProcess and DoSnapshot operations on the bytes of block
// memory, with all pools of units, and keeps the contexts of the operators of all commands.
//
// A DoProcess names the unit that renaming has granted, and the path starts the job there. The
// stream's state goes into that unit first, and out of it last. A context has 32 words of 32 bits:
// from word 0 on the operator's parameter block, which `validate` hands over word by word; a
// cipher's counter or number is moved on in place; a digest's value stands from word 8 on, behind
// the value that is expected. A digest's last job answers Digest, or Failed with DIGEST_MISMATCH;
// a job that leaves XTS 1 to 15 bytes answers Failed with TRUNCATED_DATA.
//
// A DoSnapshot is a job without bytes that ends its stream, on any free unit of the pool. It is
// always taken at once. A job waits (`operation_ready_o`) while a snapshot has its unit.
//
// Blocks are processed from their first byte on, and all but a stream's last one are whole.

module processing
  import core_pkg::*;
  import dcs_pkg::*;
#(
  // The units that are there: a model of one is quicker than one of all.
  parameter logic [Pools*Units-1:0] Has = '1
) (
  input  logic        clk_i,
  input  logic        rst_ni,

  // What is known of a command, as it is checked: see engine.
  input  command_t    checked_i,
  input  logic        transfer_valid_i,
  input  transfer_t   transfer_i,
  input  logic        parameter_valid_i,
  input  place_t      parameter_at_i,
  input  logic [4:0]  parameter_index_i,
  input  logic [63:0] parameter_i,
  // Its operators can be made of their parameter blocks, or it fails so.
  input  command_t    bind_command_i,
  output logic        sound_o,
  output failure_t    failure_o,

  // Operations of these two kinds alone.
  input  logic        operation_valid_i,
  output logic        operation_ready_o,
  input  operation_t  operation_i,
  output logic        outcome_valid_o,
  input  logic        outcome_ready_i,
  output outcome_t    outcome_o,

  // Block memory.
  output logic        read_valid_o,
  input  logic        read_ready_i,
  output word_at_t    read_at_o,
  input  logic        read_done_i,
  input  block_word_t read_data_i,
  output logic        write_valid_o,
  input  logic        write_ready_i,
  output word_at_t    write_at_o,
  output block_word_t write_data_o,

  // Digests of a command that is finished: see engine.
  input  logic        digest_valid_i,
  output logic        digest_ready_o,
  input  command_t    digest_command_i,
  input  place_t      digest_at_i,
  input  logic [3:0]  digest_index_i,
  output logic [63:0] digest_o,

  // No unit works.
  output logic        quiet_o
);

  localparam int unsigned Lanes     = Pools * Units;
  localparam int unsigned LaneWidth = $clog2(Lanes);
  localparam int unsigned Contexts  = Commands * ChainMax;
  typedef logic [LaneWidth-1:0] lane_t;

  // ---- What commands say of their operators ----

  typedef struct packed {
    logic [ChainMax-1:0] given;
    pool_t [ChainMax-1:0] chain;
    logic   sound;
    place_t at;
  } asked_t;

  (* ram_style = "distributed" *)
  asked_t              asked_q [Commands];
  logic [ChainMax-1:0] wrong_q, wrong;
  asked_t              bound, told;

  // XTS has two keys that are the same, or a data unit that isn't one.
  logic [3:0][63:0] words_q;
  logic             same_q;

  always_ff @(posedge clk_i) begin
    if (parameter_valid_i) begin
      words_q <= {words_q[2:0], parameter_i};
      same_q  <= parameter_index_i < 5'd4 || (same_q && words_q[3] == parameter_i);
      if (parameter_index_i == 5'd7) wrong_q[parameter_at_i] <= same_q && words_q[3] == parameter_i;
      if (parameter_index_i == 5'd8 && !is_data_unit(parameter_i)) wrong_q[parameter_at_i] <= 1'b1;
    end
  end

  function automatic logic is_data_unit(logic [63:0] word);
    return word[63:17] == '0 && word[16:4] != '0 && (word[16:0] & (word[16:0] - 1'b1)) == '0;
  endfunction

  always_comb begin
    for (int unsigned i = 0; i < ChainMax; i++) begin
      wrong[i] = transfer_i.misfit[i] || (places_t'(i) < transfer_i.operators && wrong_q[i]
                 && PoolOperator[transfer_i.chain[i]] == OpAes256Xts);
    end
  end

  asked_t asked;

  always_comb begin
    asked = '{given: transfer_i.given, chain: transfer_i.chain, sound: wrong == '0, at: '0};
    for (int unsigned i = ChainMax; i > 0; i--) if (wrong[i-1]) asked.at = place_t'(i - 1);
  end

  always_ff @(posedge clk_i) begin
    if (transfer_valid_i) asked_q[checked_i] <= asked;
  end

  assign bound     = asked_q[bind_command_i];
  assign told      = asked_q[digest_command_i];
  assign sound_o   = bound.sound;
  assign failure_o = failure_at(StageOperator, bound.at, StatusBadParameter);

  // ---- Snapshots that are asked for: each operator has one at most ----

  typedef struct packed {
    operation_id_t id;
    pool_t         pool;
  } snapshot_t;

  localparam int unsigned LineWidth = $clog2(Contexts);

  (* ram_style = "distributed" *)
  snapshot_t              line_q [Contexts];
  logic [LineWidth-1:0]   line_put_q, line_get_q;
  logic                   line_put, line_take, line_there;
  snapshot_t              snapshot;
  logic                   unused;

  assign unused = ^{transfer_i, operation_i, bound, told};

  assign line_put   = operation_valid_i && operation_i.kind == DoSnapshot;
  assign line_there = line_put_q != line_get_q;
  assign snapshot   = line_q[line_get_q];

  always_ff @(posedge clk_i) begin
    if (line_put) line_q[line_put_q] <= '{id: operation_i.id, pool: operation_i.pool};
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      line_put_q <= '0;
      line_get_q <= '0;
    end else begin
      line_put_q <= line_put_q + LineWidth'(line_put);
      line_get_q <= line_get_q + LineWidth'(line_take);
    end
  end

  // ---- A job is begun: how far its stream has come ----

  (* ram_style = "distributed" *)
  logic [60:0]         covered_q [Contexts];
  (* ram_style = "distributed" *)
  logic [2*ChainMax-1:0] marks_q [Commands];
  logic [Lanes-1:0]    lane_valid, lane_ready;
  lane_t               lane;
  logic                start, is_job, free_found;
  job_t                job;
  context_t            of;
  logic [60:0]         covered;
  // The operators of its command whose streams have begun, and those whose have ended.
  logic [ChainMax-1:0] begun, ended, given;
  pool_t               pool;
  lane_t               free_lane;

  assign is_job = operation_valid_i && operation_i.kind == DoProcess;
  assign pool   = snapshot.pool;

  always_comb begin
    free_found = 1'b0;
    free_lane  = '0;
    for (int unsigned i = 0; i < Units; i++) begin
      if (lane_ready[{pool, unit_t'(i)}]) begin
        free_found = 1'b1;
        free_lane  = {pool, unit_t'(i)};
      end
    end
  end

  assign lane      = is_job ? {operation_i.pool, operation_i.unit} : free_lane;
  assign start     = !transfer_valid_i && (is_job ? lane_ready[lane] : line_there && free_found);
  assign line_take = start && !is_job;
  assign operation_ready_o = !is_job || start;

  always_comb begin
    lane_valid       = '0;
    lane_valid[lane] = start;
  end

  assign of             = is_job ? '{command: operation_i.id.command, at: operation_i.id.at}
                                 : '{command: snapshot.id.command, at: snapshot.id.at};
  assign {ended, begun} = marks_q[of.command];
  assign covered        = covered_q[start ? of : {digest_command_i, digest_at_i}];

  assign job = '{
    id:      is_job ? operation_i.id : snapshot.id,
    length:  is_job ? operation_i.length : '0,
    covered: (begun[of.at] ? covered : '0) + (is_job ? 61'(operation_i.length) : '0),
    ends:    is_job ? operation_i.last : 1'b1,
    begun:   begun[of.at],
    expects: is_job && operation_i.last && is_digest(operation_i.pool) && given[of.at],
    told:    !is_job && ended[of.at]
  };

  assign given = asked_q[of.command].given;

  always_ff @(posedge clk_i) begin
    if (transfer_valid_i) begin
      marks_q[checked_i] <= '0;
    end else if (start) begin
      marks_q[of.command] <= {ended | ChainMax'(job.ends) << of.at, begun | ChainMax'(1) << of.at};
    end
    if (start) covered_q[of] <= job.covered;
  end

  // ---- The contexts ----

  localparam int unsigned Loaders     = Lanes + 1;
  localparam int unsigned LoaderWidth = $clog2(Loaders);

  (* ram_style = "block" *)
  logic [1:0][31:0]         words_of_q [16*Contexts];
  logic [Loaders-1:0]       load_valid, load_ready;
  logic [Lanes-1:0]         load_done_q;
  context_at_t [Loaders-1:0] load_at;
  logic [LoaderWidth-1:0]   loader;
  logic                     load;
  logic [1:0][31:0]         loaded_q;
  logic                     half_q;
  logic [Lanes-1:0]         store_valid, store_ready;
  context_at_t [Lanes-1:0]  store_at;
  logic [Lanes-1:0][31:0]   store_data;
  lane_t                    storer;
  logic                     store;

  arbiter #(.Count (Loaders)) u_load_turn (
    .clk_i, .rst_ni, .ask_i (load_valid), .valid_o (load), .chosen_o (loader), .take_i (load)
  );
  arbiter #(.Count (Lanes)) u_store_turn (
    .clk_i, .rst_ni, .ask_i (store_valid), .valid_o (store), .chosen_o (storer),
    .take_i (store && !parameter_valid_i)
  );

  always_comb begin
    load_ready          = '0;
    load_ready[loader]  = load;
    store_ready         = '0;
    store_ready[storer] = store && !parameter_valid_i;
  end

  context_at_t write_at;
  logic [1:0]  write_halves;

  // Parameter blocks come first, since they don't wait.
  assign write_at     = parameter_valid_i
      ? '{of: '{command: checked_i, at: parameter_at_i}, word: {parameter_index_i[3:0], 1'b0}}
      : store_at[storer];
  assign write_halves = parameter_valid_i ? {2{!parameter_index_i[4]}}
                        : {store && write_at.word[0], store && !write_at.word[0]};

  always_ff @(posedge clk_i) begin
    if (load) begin
      loaded_q <= words_of_q[{load_at[loader].of, load_at[loader].word[4:1]}];
      half_q   <= load_at[loader].word[0];
    end
    for (int unsigned i = 0; i < 2; i++) begin
      if (write_halves[i]) begin
        words_of_q[{write_at.of, write_at.word[4:1]}][i]
            <= parameter_valid_i ? parameter_i[32*i +: 32] : store_data[storer];
      end
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) load_done_q <= '0;
    else load_done_q <= load_ready[Lanes-1:0];
  end

  // ---- Block memory: words come in the order in which they were asked for ----

  logic [Lanes-1:0]        read_valid, read_ready, read_done;
  word_at_t [Lanes-1:0]    read_at;
  logic [Lanes-1:0]        write_valid, write_ready;
  word_at_t [Lanes-1:0]    write_at_of;
  block_word_t [Lanes-1:0] write_data;
  lane_t                   reader, writer;
  lane_t [1:0]             readers_q;

  arbiter #(.Count (Lanes)) u_read_turn (
    .clk_i, .rst_ni, .ask_i (read_valid), .valid_o (read_valid_o), .chosen_o (reader),
    .take_i (read_valid_o && read_ready_i)
  );
  arbiter #(.Count (Lanes)) u_write_turn (
    .clk_i, .rst_ni, .ask_i (write_valid), .valid_o (write_valid_o), .chosen_o (writer),
    .take_i (write_valid_o && write_ready_i)
  );

  always_comb begin
    read_ready              = '0;
    read_ready[reader]      = read_valid_o && read_ready_i;
    write_ready             = '0;
    write_ready[writer]     = write_valid_o && write_ready_i;
    read_done               = '0;
    read_done[readers_q[1]] = read_done_i;
  end

  assign read_at_o    = read_at[reader];
  assign write_at_o   = write_at_of[writer];
  assign write_data_o = write_data[writer];

  always_ff @(posedge clk_i) readers_q <= {readers_q[0], reader};

  // ---- The units ----

  logic [Lanes-1:0]     outcome_valid, outcome_ready;
  outcome_t [Lanes-1:0] outcomes;
  lane_t                teller;

  for (genvar i = 0; i < Lanes; i++) begin : gen_lane
    if (Has[i]) begin : gen_unit
      ndp_lane #(
        .Pool (pool_t'(i / Units))
      ) u_lane (
        .clk_i,
        .rst_ni,
        .job_valid_i     (lane_valid[i]),
        .job_ready_o     (lane_ready[i]),
        .job_i           (job),
        .read_valid_o    (read_valid[i]),
        .read_ready_i    (read_ready[i]),
        .read_at_o       (read_at[i]),
        .read_done_i     (read_done[i]),
        .read_data_i,
        .write_valid_o   (write_valid[i]),
        .write_ready_i   (write_ready[i]),
        .write_at_o      (write_at_of[i]),
        .write_data_o    (write_data[i]),
        .load_valid_o    (load_valid[i]),
        .load_ready_i    (load_ready[i]),
        .load_at_o       (load_at[i]),
        .load_done_i     (load_done_q[i]),
        .load_data_i     (loaded_q[half_q]),
        .store_valid_o   (store_valid[i]),
        .store_ready_i   (store_ready[i]),
        .store_at_o      (store_at[i]),
        .store_data_o    (store_data[i]),
        .outcome_valid_o (outcome_valid[i]),
        .outcome_ready_i (outcome_ready[i]),
        .outcome_o       (outcomes[i])
      );
    end else begin : gen_none
      assign lane_ready[i]    = 1'b0;
      assign read_valid[i]    = 1'b0;
      assign read_at[i]       = '0;
      assign write_valid[i]   = 1'b0;
      assign write_at_of[i]   = '0;
      assign write_data[i]    = '0;
      assign load_valid[i]    = 1'b0;
      assign load_at[i]       = '0;
      assign store_valid[i]   = 1'b0;
      assign store_at[i]      = '0;
      assign store_data[i]    = '0;
      assign outcome_valid[i] = 1'b0;
      assign outcomes[i]      = '0;
    end
  end

  arbiter #(.Count (Lanes)) u_outcome_turn (
    .clk_i, .rst_ni, .ask_i (outcome_valid), .valid_o (outcome_valid_o), .chosen_o (teller),
    .take_i (outcome_valid_o && outcome_ready_i)
  );

  assign outcome_o = outcomes[teller];
  assign quiet_o   = &(lane_ready | ~Has) && !line_there;

  always_comb begin
    outcome_ready         = '0;
    outcome_ready[teller] = outcome_valid_o && outcome_ready_i;
  end

  // ---- Digests: a word of struct dcs_digest ----

  typedef enum logic [1:0] {
    Ask,
    Await,
    There
  } digest_e;

  digest_e     digest_q;
  pool_t       digest_pool;
  logic [1:0]  digest_word;
  logic [CommandWidth+6:0] wanted, wanted_q;
  logic        of_value;
  logic [63:0] value_q;

  assign digest_pool      = told.chain[digest_at_i];
  assign digest_word      = 2'(digest_index_i - 4'd2);
  assign of_value         = digest_index_i inside {[4'd2:4'd5]};
  assign wanted           = {digest_command_i, digest_at_i, digest_index_i};
  assign load_valid[Lanes] = digest_valid_i && of_value && digest_q == Ask;
  assign load_at[Lanes]   = '{of: '{command: digest_command_i, at: digest_at_i},
                              word: {2'b01, digest_word, 1'b0}};
  assign digest_ready_o   = digest_q == There && wanted == wanted_q;
  assign digest_o         = value_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      digest_q <= Ask;
    end else begin
      unique case (digest_q)
        Ask: begin
          if (digest_valid_i && (of_value ? load_ready[Lanes] : !start)) begin
            digest_q <= of_value ? Await : There;
          end
        end
        Await:   digest_q <= There;
        default: if (!digest_valid_i || wanted != wanted_q) digest_q <= Ask;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    if (digest_q == Ask) begin
      wanted_q <= wanted;
      value_q  <= '0;
      if (digest_index_i == 4'd0) begin
        value_q[15:0] <= {PoolMost[digest_pool], PoolOperator[digest_pool]};
      end
      if (digest_index_i == 4'd1) value_q[60:0] <= covered;
    end else if (digest_q == Await) begin
      for (int unsigned i = 0; i < 2; i++) begin
        if (8'({digest_word, 1'(i), 2'b00}) < PoolMost[digest_pool]) begin
          value_q[32*i +: 32] <= loaded_q[i];
        end
      end
    end
  end

endmodule
