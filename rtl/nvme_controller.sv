// An SSD as a source and a destination: reads, writes and flushes of the core become commands of
// one NVMe queue pair. The SSD itself moves the bytes from and to block memory.
//
// Software starts the SSD, makes the queue pair and says where it is (`config_i`, while
// `enable_i`); everything that belongs to a command is done here. The controller's own memory is
// three pages for the SSD, which reaches them by `own_*`: submission entries, a page for what is
// not whole logical blocks, completion entries. (In the memory itself both kinds of entries lie in
// one, completion entries from byte 1024 on.) It tells by `ready_o` that its rings are empty: then
// the SSD may be started. Completions are found by polling for the phase bit.
//
// A block of the engine is a page, so one PRP entry names the bytes of a command: there are no
// lists. As in crates/drivers/src/ssd.rs: a read that doesn't begin with a logical block goes
// through the page of its own, as does a write that ends inside one, which is read first; a write
// that doesn't begin with one is UNSUPPORTED_ENDPOINT. Less may be moved than was asked for.
// Statuses become those that `failure` there has. Nothing is sent again: that is the host's to
// decide.
//
// Aborts: what waits is CANCELLED; of a command that the SSD has, software is told by `cancel_*`,
// for an Abort on its admin queue. The SSD is `broken_o`, until `enable_i` falls, when a command
// takes too long (a completion that was lost, too), the bus has refused a doorbell, or the SSD
// says it has fetched entries that nobody wrote. Software then resets it and lets `enable_i` fall;
// only then do its commands fail, with DEVICE_RESET, so that no block is given away that the SSD
// may write.

module nvme_controller
  import core_pkg::*;
  import dcs_pkg::*;
#(
  // Of its bursts.
  parameter bus_pkg::id_t Id   = '0,
  // PATH bits that it tells of the bytes.
  parameter logic [15:0]  Path = '0
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic [39:0]        millis_i,

  input  logic               enable_i,
  input  nvme_pkg::config_t  config_i,
  output logic               ready_o,
  output logic               broken_o,
  output logic               cancel_valid_o,
  input  logic               cancel_ready_i,
  output logic [15:0]        cancel_identifier_o,

  input  logic               operation_valid_i,
  output logic               operation_ready_o,
  input  operation_t         operation_i,
  output logic               outcome_valid_o,
  input  logic               outcome_ready_i,
  output outcome_t           outcome_o,
  input  logic               abort_valid_i,
  output logic               abort_ready_o,
  input  operation_id_t      abort_id_i,

  // Doorbells: channels AW, W and B.
  output bus_pkg::request_t  bus_o,
  input  bus_pkg::response_t bus_i,

  // Its own memory, for the SSD; see block_memory. Three rows.
  input  logic               own_read_valid_i,
  output logic               own_read_ready_o,
  input  word_at_t           own_read_at_i,
  output logic               own_read_done_o,
  output block_word_t        own_read_data_o,
  input  logic               own_write_valid_i,
  output logic               own_write_ready_o,
  input  word_at_t           own_write_at_i,
  input  block_word_t        own_write_data_i,
  input  keep_t              own_write_keep_i,

  // Block memory.
  output logic               read_valid_o,
  input  logic               read_ready_i,
  output word_at_t           read_at_o,
  input  logic               read_done_i,
  input  block_word_t        read_data_i,
  output logic               write_valid_o,
  input  logic               write_ready_i,
  output word_at_t           write_at_o,
  output block_word_t        write_data_o,
  output keep_t              write_keep_o
);

  localparam int unsigned Entries = nvme_pkg::Entries;
  localparam int unsigned EntryWidth = nvme_pkg::EntryWidth;
  localparam word_index_t CompletionsAt = word_index_t'(1024 / WordBytes);
  // Cycles between two looks at the ring.
  localparam int unsigned Pause = 16;
  typedef logic [EntryWidth-1:0] entry_t;
  typedef logic [BlockShift-1:0] place_in_t;

  // ---- Operations that wait, in their order; what is known of each that is here ----

  // By row, or behind them by command.
  localparam int unsigned Keys     = Blocks + Commands;
  localparam int unsigned KeyWidth = $clog2(Keys + 1);
  typedef logic [KeyWidth-1:0] key_t;

  (* ram_style = "distributed" *)
  operation_t         line_q [2**KeyWidth];
  (* ram_style = "distributed" *)
  serial_t            serial_q [Keys];
  (* ram_style = "distributed" *)
  logic [15:0]        sent_as_q [Keys];
  logic [Keys-1:0]    live_q, sent_q, aborted_q;
  key_t               put_q, get_q, key_in, key_abort, key_waiting;
  operation_t         waiting;
  logic               there, take, aborting, cancel_q;

  function automatic key_t key(logic blockless, row_t row, command_t command);
    return blockless ? key_t'(Blocks + 32'(command)) : key_t'(row);
  endfunction

  // ---- Commands that the SSD has ----

  typedef struct packed {
    operation_id_t id;
    operation_e    kind;
    // Bytes that it moves for the core, the first one in the block, and in the page, if they go
    // through that.
    bytes_t        bytes;
    place_in_t     start;
    place_in_t     ahead;
    logic          bounced;
    // The logical block of a write is read first.
    logic          filling;
    logic [63:0]   block;
  } flight_t;

  typedef logic [15-EntryWidth:0] generation_t;

  (* ram_style = "distributed" *)
  flight_t            flights_q [Entries];
  (* ram_style = "distributed" *)
  generation_t        generations_q [Entries];
  (* ram_style = "distributed" *)
  logic [39:0]        deadlines_q [Entries];
  logic [Entries-1:0] used_q;
  entry_t             free_slot;
  logic               slot_there;

  typedef enum logic [3:0] {
    Clear,
    Look,
    Plan,
    Enter,
    Poll,
    PollAgain,
    Accept,
    Finish,
    Copy,
    Filled,
    Answer,
    Down
  } state_e;

  state_e       state_q;
  // Of the command that is made or has ended.
  entry_t       slot_q;
  flight_t      flight_q, planned;
  logic [1:0]   word_q;
  status_t      status_q;
  logic         failed_q, bounce_q, whole_down;
  // It was enabled since its rings were emptied, which has been done once.
  logic         started_q, emptied_q, ringing_q;
  logic [$clog2(Pause)-1:0] pause_q;

  // ---- The rings ----

  entry_t       tail_q, rung_tail_q, head_q, next_q, rung_next_q;
  entry_t       clear_q;
  logic         phase_q, room;

  assign room = tail_q + 1'b1 != head_q;

  always_comb begin
    slot_there = 1'b0;
    free_slot  = '0;
    // One entry of the ring is always empty.
    for (int unsigned i = Entries - 1; i > 0; i--) begin
      if (!used_q[i-1]) begin
        slot_there = 1'b1;
        free_slot  = entry_t'(i - 1);
      end
    end
  end

  assign waiting           = line_q[get_q];
  assign there             = put_q != get_q;
  assign operation_ready_o = 1'b1;
  assign key_waiting       = key(waiting.id.blockless, waiting.id.row, waiting.id.command);
  assign key_in            = key(operation_i.id.blockless, operation_i.id.row,
                                 operation_i.id.command);
  assign key_abort         = key(abort_id_i.blockless, abort_id_i.row, abort_id_i.command);

  // ---- A command is planned ----

  bytes_t      size, whole, head_bytes;
  logic [11:0] off;
  logic        aligned, begins, fits, refused;

  assign size       = bytes_t'(1) << config_i.shift;
  assign off        = waiting.offset[11:0] & 12'(size - 1'b1);
  assign begins     = off == '0;
  assign aligned    = waiting.start[1:0] == 2'b00;
  assign whole      = waiting.length & ~(size - 1'b1);
  assign head_bytes = size - bytes_t'(off);
  // Behind the bytes there is room for the rest of the logical block.
  assign fits       = waiting.start + size <= bytes_t'(BlockSize);
  assign refused    = waiting.kind == DoWrite && !(begins && aligned);

  always_comb begin
    planned = '{
      id:      waiting.id,
      kind:    waiting.kind,
      bytes:   waiting.length,
      start:   place_in_t'(waiting.start),
      ahead:   '0,
      bounced: 1'b0,
      filling: 1'b0,
      block:   waiting.offset >> config_i.shift
    };
    if (begins && aligned && whole != '0) begin
      planned.bytes = whole;
    end else if (waiting.kind == DoWrite) begin
      planned.bounced = 1'b1;
      planned.filling = 1'b1;
    end else if (waiting.kind == DoRead && !(begins && aligned && fits)) begin
      planned.bounced = 1'b1;
      planned.ahead   = place_in_t'(off);
      if (waiting.length > head_bytes) planned.bytes = head_bytes;
    end
  end

  // ---- Its entry ----

  logic [15:0]       identifier;
  nvme_pkg::head_t   entry_head;
  logic              reads;
  logic [63:0]       prp;
  bytes_t            blocks_less_one;
  block_word_t       entry_word;

  assign identifier      = {generations_q[slot_q], slot_q};
  assign reads           = flight_q.kind == DoRead || flight_q.filling;
  assign prp             = flight_q.bounced ? config_i.own + 64'd4096
                           : config_i.blocks + 64'({flight_q.id.row, flight_q.start});
  assign blocks_less_one = flight_q.bounced || flight_q.bytes < size
                           ? '0 : (flight_q.bytes >> config_i.shift) - 1'b1;
  assign entry_head      = '{
    identifier: identifier,
    flags:      '0,
    opcode:     flight_q.kind == DoFlush ? nvme_pkg::OpcodeFlush
                : reads ? nvme_pkg::OpcodeRead : nvme_pkg::OpcodeWrite
  };

  always_comb begin
    entry_word = '0;
    unique case (word_q)
      2'd0: entry_word[63:0] = {config_i.name_space, entry_head};
      2'd1: if (flight_q.kind != DoFlush) entry_word[127:64] = prp;
      2'd2: if (flight_q.kind != DoFlush) entry_word[127:64] = flight_q.block;
      default: if (flight_q.kind != DoFlush) entry_word[15:0] = 16'(blocks_less_one);
    endcase
  end

  // ---- Its own memory ----

  // NVMe has queues begin at pages: the SSD sees completion entries in one of their own.
  function automatic word_at_t placed(word_at_t at);
    if (at.row != row_t'(2)) return at;
    return '{row: '0, word: CompletionsAt | word_index_t'(entry_t'(at.word))};
  endfunction

  logic        ring_read, ring_read_ready, ring_done, ring_write, ring_write_ready;
  logic        copy_read, copy_read_ready, copy_done, copy_write, copy_write_ready;
  word_at_t    ring_read_at, ring_write_at, copy_read_at, copy_write_at;
  block_word_t ring_data, own_data;

  block_memory #(
    .Readers (3),
    .Writers (3),
    .Rows    (2)
  ) u_own (
    .clk_i,
    .rst_ni,
    .read_valid_i  ({copy_read, ring_read, own_read_valid_i}),
    .read_ready_o  ({copy_read_ready, ring_read_ready, own_read_ready_o}),
    .read_at_i     ({copy_read_at, ring_read_at, placed(own_read_at_i)}),
    .read_done_o   ({copy_done, ring_done, own_read_done_o}),
    .read_data_o   (own_data),
    .write_valid_i ({copy_write, ring_write, own_write_valid_i}),
    .write_ready_o ({copy_write_ready, ring_write_ready, own_write_ready_o}),
    .write_at_i    ({copy_write_at, ring_write_at, placed(own_write_at_i)}),
    .write_data_i  ({write_data_o, ring_data, own_write_data_i}),
    .write_keep_i  ({write_keep_o, keep_t'('1), own_write_keep_i})
  );

  assign own_read_data_o = own_data;

  logic asked_q, ring_asked;

  assign ring_read     = state_q inside {Poll, PollAgain} && !asked_q;
  assign ring_asked    = ring_read && ring_read_ready;
  assign ring_read_at  = '{row: '0, word: CompletionsAt | word_index_t'(next_q)};
  assign ring_write    = (state_q == Clear && !ringing_q) || state_q == Enter;
  assign ring_write_at = '{row: '0, word: state_q == Clear
                           ? CompletionsAt | word_index_t'(clear_q)
                           : word_index_t'({tail_q, word_q})};
  assign ring_data     = state_q == Clear ? '0 : entry_word;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) asked_q <= 1'b0;
    else asked_q <= (asked_q || ring_asked) && !ring_done;
  end

  // ---- A completion ----

  nvme_pkg::completion_t found_q;
  logic                  known, impossible;
  entry_t                moved, unfetched;
  status_t               bad_status;
  key_t                  key_now;

  // Entries that it says it has fetched, of those that it was told of.
  assign moved      = entry_t'(found_q.head) - head_q;
  assign unfetched  = rung_tail_q - head_q;
  assign known      = found_q.number == config_i.number && used_q[entry_t'(found_q.identifier)]
      && generations_q[entry_t'(found_q.identifier)] == found_q.identifier[15:EntryWidth];
  // Nor is a ring full of what is under way, where one of its commands has ended.
  assign impossible = found_q.head >= 16'(Entries) || moved > unfetched
                      || entry_t'(found_q.head) == tail_q + 1'b1;
  assign key_now    = key(flight_q.id.blockless, flight_q.id.row, flight_q.id.command);

  always_comb begin
    unique case (found_q.status)
      nvme_pkg::AbortRequested:   bad_status = aborted_q[key_now] ? StatusCancelled
                                  : flight_q.kind == DoRead ? StatusReadError : StatusWriteError;
      nvme_pkg::LbaOutOfRange:    bad_status = StatusOutOfRange;
      nvme_pkg::CapacityExceeded: bad_status = StatusCapacityExceeded;
      nvme_pkg::AccessDenied:     bad_status = StatusAccessDenied;
      default: bad_status = flight_q.kind == DoRead ? StatusReadError : StatusWriteError;
    endcase
  end

  // ---- Bytes between its page and the block ----

  logic        copy_start, into_page, fetch_read, fetch_ready, fetch_done, fetched, fetched_take;
  logic        copied, copied_ready, copied_last;
  word_at_t    fetch_at, page_at, block_at, put_at_q;
  block_word_t fetched_word;
  logic [BlockShift-WordShift+1:0] words_in, unused_out;

  assign into_page  = flight_q.filling;
  assign copy_start = state_q == Finish && !failed_q && flight_q.bounced
                      && (flight_q.kind == DoRead || flight_q.filling);
  assign page_at    = '{row: row_t'(1), word: word_index_t'(flight_q.ahead >> WordShift)};
  assign block_at   = '{row: flight_q.id.row, word: word_index_t'(flight_q.start >> WordShift)};

  block_fetch u_fetch (
    .clk_i,
    .rst_ni,
    .start_i      (copy_start),
    .at_i         (into_page ? block_at : page_at),
    .words_i      (words_in[BlockShift-WordShift:0]),
    .read_valid_o (fetch_read),
    .read_ready_i (fetch_ready),
    .read_at_o    (fetch_at),
    .read_done_i  (fetch_done),
    .read_data_i  (into_page ? read_data_i : own_data),
    .valid_o      (fetched),
    .ready_i      (fetched_take),
    .word_o       (fetched_word)
  );

  realign u_realign (
    .clk_i,
    .rst_ni,
    .start_i     (copy_start),
    .from_i      (WordShift'(into_page ? flight_q.start : flight_q.ahead)),
    .to_i        (WordShift'(into_page ? flight_q.ahead : flight_q.start)),
    .length_i    (flight_q.bytes),
    .words_in_o  (words_in),
    .words_out_o (unused_out),
    .valid_i     (fetched),
    .ready_o     (fetched_take),
    .word_i      (fetched_word),
    .valid_o     (copied),
    .ready_i     (copied_ready),
    .word_o      (write_data_o),
    .keep_o      (write_keep_o),
    .last_o      (copied_last)
  );

  assign read_valid_o  = fetch_read && into_page;
  assign read_at_o     = fetch_at;
  assign copy_read     = fetch_read && !into_page;
  assign copy_read_at  = fetch_at;
  assign fetch_ready   = into_page ? read_ready_i : copy_read_ready;
  assign fetch_done    = into_page ? read_done_i : copy_done;
  assign write_valid_o = copied && !into_page;
  assign write_at_o    = put_at_q;
  assign copy_write    = copied && into_page;
  assign copy_write_at = put_at_q;
  assign copied_ready  = into_page ? copy_write_ready : write_ready_i;

  always_ff @(posedge clk_i) begin
    if (copy_start) put_at_q <= into_page ? page_at : block_at;
    else if (copied && copied_ready) put_at_q.word <= put_at_q.word + 1'b1;
  end

  // ---- Step by step ----

  logic   entered, due, down_slot;
  entry_t scan_q, down;

  assign entered = state_q == Enter && ring_write_ready && word_q == 2'd3;
  // A look at one command's time each cycle.
  assign due     = used_q[scan_q] && deadlines_q[scan_q] <= millis_i;

  always_comb begin
    down      = '0;
    down_slot = used_q != '0;
    for (int unsigned i = Entries; i > 0; i--) if (used_q[i-1]) down = entry_t'(i - 1);
  end

  assign whole_down = !down_slot && !there;
  assign take       = (state_q == Plan && (refused || aborted_q[key_waiting]
                                           || !(planned.bounced && bounce_q)))
                      || (state_q == Down && !down_slot && there);
  assign ready_o    = state_q != Clear && !started_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q  <= Clear;
      clear_q  <= '0;
      pause_q  <= '0;
      word_q   <= '0;
      emptied_q <= 1'b0;
      started_q <= 1'b0;
      used_q   <= '0;
      bounce_q <= 1'b0;
      tail_q   <= '0;
      head_q   <= '0;
      next_q   <= '0;
      phase_q  <= 1'b1;
      scan_q   <= '0;
      get_q    <= '0;
    end else begin
      scan_q <= scan_q + 1'b1;
      started_q <= started_q || enable_i;
      if (pause_q != '0) pause_q <= pause_q - 1'b1;
      if (take) get_q <= get_q + 1'b1;
      unique case (state_q)
        // Empty rings, for an SSD that is not started yet.
        Clear: begin
          tail_q  <= '0;
          head_q  <= '0;
          next_q  <= '0;
          phase_q <= 1'b1;
          started_q <= 1'b0;
          if (ring_write_ready) begin
            clear_q <= clear_q + 1'b1;
            if (clear_q == '1) begin
              emptied_q <= 1'b1;
              state_q   <= Look;
            end
          end
        end
        Look: begin
          if (!enable_i) begin
            if (used_q != '0 || there) state_q <= Down;
            else if (started_q) state_q <= Clear;
          end else if (used_q != '0 && pause_q == '0) begin
            state_q <= Poll;
          end else if (there && slot_there && room && !broken_o) begin
            state_q <= Plan;
          end
        end

        // ---- A command ----

        Plan: begin
          word_q <= '0;
          if (refused || aborted_q[key_waiting]) begin
            state_q <= Answer;
          end else if (planned.bounced && bounce_q) begin
            state_q <= Look;
          end else begin
            state_q  <= Enter;
            bounce_q <= bounce_q || planned.bounced;
          end
        end
        Enter: if (ring_write_ready) begin
          word_q <= word_q + 1'b1;
          if (word_q == 2'd3) begin
            used_q[slot_q] <= 1'b1;
            tail_q         <= tail_q + 1'b1;
            state_q        <= Look;
          end
        end

        // ---- A completion: bytes before the phase bit are sure to be there only after it ----

        Poll: begin
          if (ring_done) begin
            state_q <= own_data[112] == phase_q ? PollAgain : Look;
            pause_q <= '1;
          end
        end
        PollAgain: if (ring_done) state_q <= Accept;
        Accept: begin
          next_q  <= next_q + 1'b1;
          phase_q <= phase_q ^ (next_q == '1);
          pause_q <= '0;
          state_q <= Look;
          if (known && !impossible) begin
            head_q  <= entry_t'(found_q.head);
            used_q[entry_t'(found_q.identifier)] <= 1'b0;
            state_q <= Finish;
          end
        end
        Finish: begin
          state_q <= copy_start ? Copy : Answer;
          if (flight_q.bounced && !copy_start) bounce_q <= 1'b0;
        end
        Copy: if (copied && copied_ready && copied_last) begin
          state_q <= into_page ? Filled : Answer;
          if (!into_page) bounce_q <= 1'b0;
        end
        // The block that was read and changed is written back.
        Filled: begin
          word_q  <= '0;
          state_q <= !enable_i ? Answer : Enter;
          if (!enable_i) bounce_q <= 1'b0;
        end
        Answer: if (outcome_ready_i) state_q <= Look;

        // ---- The SSD is reset: what it had has failed ----

        Down: begin
          bounce_q <= 1'b0;
          if (down_slot) used_q[down] <= 1'b0;
          state_q <= whole_down ? Look : Answer;
        end
        default: state_q <= Look;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    if (state_q == Plan) begin
      flight_q <= planned;
      slot_q   <= free_slot;
      failed_q <= refused || aborted_q[key_waiting];
      status_q <= refused ? StatusUnsupportedEndpoint : StatusCancelled;
    end
    if (state_q == Accept) begin
      flight_q <= flights_q[entry_t'(found_q.identifier)];
      slot_q   <= entry_t'(found_q.identifier);
      failed_q <= found_q.status != nvme_pkg::Success;
    end
    if (state_q == Finish) status_q <= bad_status;
    if (state_q == Filled) begin
      flight_q.filling <= 1'b0;
      failed_q         <= !enable_i;
      status_q         <= StatusDeviceReset;
    end
    if (state_q == Down) begin
      flight_q    <= flights_q[down];
      if (!down_slot) flight_q.id <= waiting.id;
      failed_q    <= 1'b1;
      status_q    <= StatusDeviceReset;
    end
    if (ring_done) found_q <= own_data;
    if (entered) begin
      flights_q[slot_q]   <= flight_q;
      deadlines_q[slot_q] <= millis_i + 40'(config_i.patience) + 40'd1;
    end
  end

  // A slot has another number each time: a completion that is late, or comes twice, is nobody's.
  always_ff @(posedge clk_i) begin
    if (state_q == Clear) begin
      if (ring_write_ready) begin
        generations_q[clear_q] <= emptied_q ? generations_q[clear_q] + 1'b1 : '0;
      end
    end else if (state_q == Accept && known && !impossible) begin
      generations_q[entry_t'(found_q.identifier)] <= found_q.identifier[15:EntryWidth] + 1'b1;
    end
  end

  // ---- What it answers ----

  assign outcome_valid_o = state_q == Answer;
  assign outcome_o       = '{
    id:     flight_q.id,
    kind:   failed_q ? Failed : flight_q.kind == DoFlush ? Flushed : Moved,
    bytes:  failed_q || flight_q.kind == DoFlush ? '0 : flight_q.bytes,
    path:   failed_q || flight_q.kind == DoFlush ? '0 : Path,
    status: failed_q ? status_q : '0,
    errno:  '0
  };

  // ---- The line, and aborts ----

  assign abort_ready_o = !cancel_q;
  assign aborting      = abort_valid_i && abort_ready_o && live_q[key_abort]
                         && serial_q[key_abort] == abort_id_i.serial;
  assign cancel_valid_o = cancel_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      put_q     <= '0;
      live_q    <= '0;
      sent_q    <= '0;
      aborted_q <= '0;
      cancel_q  <= 1'b0;
    end else begin
      cancel_q <= cancel_q ? !cancel_ready_i : aborting && sent_q[key_abort];
      if (aborting) aborted_q[key_abort] <= 1'b1;
      if (entered) sent_q[key_now] <= 1'b1;
      if (state_q == Answer && outcome_ready_i) begin
        live_q[key_now]    <= 1'b0;
        sent_q[key_now]    <= 1'b0;
        aborted_q[key_now] <= 1'b0;
      end
      if (operation_valid_i) begin
        put_q             <= put_q + 1'b1;
        live_q[key_in]    <= 1'b1;
        aborted_q[key_in] <= 1'b0;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (operation_valid_i) begin
      line_q[put_q]    <= operation_i;
      serial_q[key_in] <= operation_i.id.serial;
    end
    if (entered) sent_as_q[key_now] <= identifier;
    if (!cancel_q) cancel_identifier_o <= sent_as_q[key_abort];
  end

  // ---- Doorbells, those whose values have changed ----

  logic        addressed_q, given_q, ring_head, refused_bell;
  logic        head_bell_q;
  entry_t      bell_q;
  logic [63:0] bell;

  assign ring_head = rung_next_q != next_q;
  assign bell      = head_bell_q ? config_i.head_doorbell : config_i.tail_doorbell;
  assign refused_bell = bus_i.b_valid && bus_o.b_ready && bus_i.b.resp != bus_pkg::ResponseOkay;

  always_comb begin
    bus_o          = '0;
    bus_o.aw.addr  = bell;
    bus_o.aw.id    = Id;
    bus_o.aw.size  = 3'd2;
    bus_o.aw.burst = bus_pkg::BurstIncrement;
    bus_o.aw_valid = ringing_q && !addressed_q;
    bus_o.w.data   = {4{32'(bell_q)}};
    bus_o.w.strb   = keep_t'(16'h000f) << {bell[3:2], 2'b00};
    bus_o.w.last   = 1'b1;
    bus_o.w_valid  = ringing_q && !given_q;
    bus_o.b_ready  = ringing_q;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      ringing_q   <= 1'b0;
      addressed_q <= 1'b0;
      given_q     <= 1'b0;
      head_bell_q <= 1'b0;
      bell_q      <= '0;
      rung_tail_q <= '0;
      rung_next_q <= '0;
    end else if (ringing_q) begin
      addressed_q <= addressed_q || bus_i.aw_ready;
      given_q     <= given_q || bus_i.w_ready;
      if (bus_i.b_valid) ringing_q <= 1'b0;
    end else if (state_q == Clear) begin
      rung_tail_q <= '0;
      rung_next_q <= '0;
    end else if (enable_i && !broken_o && (ring_head || rung_tail_q != tail_q)) begin
      ringing_q   <= 1'b1;
      addressed_q <= 1'b0;
      given_q     <= 1'b0;
      head_bell_q <= ring_head;
      bell_q      <= ring_head ? next_q : tail_q;
      if (ring_head) rung_next_q <= next_q;
      else rung_tail_q <= tail_q;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) broken_o <= 1'b0;
    else if (state_q == Clear || !enable_i) broken_o <= 1'b0;
    else if (due || refused_bell || (state_q == Accept && known && impossible)) broken_o <= 1'b1;
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk_i) begin
    if (entered) begin
      assert (room) else $error("the submission ring is full");
      assert (!used_q[slot_q]) else $error("a slot of two commands");
    end
  end
`endif

  logic unused;
  assign unused = ^{bus_i, waiting, operation_i, unused_out, found_q, words_in, abort_id_i};

endmodule
