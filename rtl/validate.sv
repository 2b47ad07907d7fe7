// From an entry's address to a transfer that is checked as far as the core can, or to the reason
// why there is none, as the Rust core's `validate.rs`, `abi::descriptor` and `abi::inline` have it.
//
// Every byte is copied before it is checked, and read from the copy: the entry into registers, the
// descriptor into a memory of its own. One entry at a time. What has an order of errors in Rust has
// the same here: malformed entry, descriptor, flags, chain, length, data units.

module validate
  import core_pkg::*;
  import dcs_pkg::*;
(
  input  logic          clk_i,
  input  logic          rst_ni,

  input  logic          entry_valid_i,
  output logic          entry_ready_o,
  input  queue_t        entry_queue_i,
  input  command_t      entry_command_i,
  input  address_t      entry_address_i,
  input  logic [15:0]   entry_tenant_i,
  input  logic [15:0]   entry_number_i,
  // The entry was copied.
  output logic          fetched_o,

  // Host memory: so many bytes from any address; they come in words, all of them, the last one too.
  output logic          read_valid_o,
  // An entry of a queue, not a descriptor.
  output logic          read_entry_o,
  input  logic          read_ready_i,
  output address_t      read_address_o,
  output logic [12:0]   read_bytes_o,
  input  logic          data_valid_i,
  output logic          data_ready_o,
  input  logic [63:0]   data_i,
  // With any word: the bytes could not be read.
  input  logic          data_error_i,

  // The command gets in line behind those of its tenant with the same request id.
  output logic          join_o,
  output logic [47:0]   join_key_o,

  // The transfer; its extents; the words of its operators' parameter blocks.
  output command_t      command_o,
  output logic          transfer_valid_o,
  output transfer_t     transfer_o,
  output logic          extent_valid_o,
  output extent_index_t extent_index_o,
  output extent_t       extent_o,
  output logic          parameter_valid_o,
  output logic [7:0]    parameter_bytes_o,
  output place_t        parameter_at_o,
  output logic [4:0]    parameter_index_o,
  output logic [63:0]   parameter_o,

  output logic          verdict_valid_o,
  input  logic          verdict_ready_i,
  output verdict_t      verdict_o,

  // A command is finished: its identifier is free.
  input  logic          finish_i,
  input  command_t      finish_command_i,

  // Which command has this identifier. One that is being checked is not told of yet.
  input  queue_t        stop_queue_i,
  input  logic [15:0]   stop_cid_i,
  output logic          stop_found_o,
  output command_t      stop_command_o,

  // Nothing will happen by itself: no entry is being checked, or memory is waited for.
  output logic          quiet_o
);

  localparam int unsigned BufferWords = DescriptorBytes / 8;
  localparam int unsigned WordWidth   = $clog2(BufferWords);
  localparam logic [63:0] OpenEnd     = 64'h7fff_ffff_ffff_ffff;

  typedef enum logic [3:0] {
    Idle,
    Entry,
    Judge,
    Fetch,
    Inline,
    Ends,
    Extent,
    Parameters,
    Parameter,
    Chain,
    Length,
    DataUnits,
    Tell
  } state_e;

  // Prefix, source, destination.
  typedef logic [1:0] role_t;
  localparam role_t Prefix      = 2'd0;
  localparam role_t Source      = 2'd1;
  localparam role_t Destination = 2'd2;

  // A field of the header that names a place in the descriptor.
  typedef struct packed {
    logic [31:0] kind;
    logic [31:0] count;
    logic [63:0] offset;
  } place_field_t;

  state_e                state_q;
  // The word of the entry or of the descriptor that comes next, and the one that is looked at.
  logic [WordWidth:0]    word_q;
  logic [7:0][63:0]      raw_q;
  sqe_t                  entry;
  inline_sqe_t           line;
  // Something is wrong with the descriptor; it can't be read; it has more than there is room for.
  logic                  bad_q, unread_q, large_q;
  logic                  is_inline_q;

  endpoint_t    [2:0]    ends_q;
  place_field_t [7:0]    parameters_q;
  logic         [63:0]   buffer [BufferWords];
  logic         [63:0]   buffer_word_q;
  logic [WordWidth-1:0]  buffer_at;

  // The end or parameter block, and the extent or word of it, that is looked at.
  role_t                 role_q;
  logic [12:0]           index_q;
  logic [1:0]            step_q;
  place_t                at_q;
  extent_count_t         extents_q;
  extent_count_t [2:0]   counts_q;
  logic [2:0][63:0]      total_q;
  logic [63:0]           offset_q;
  logic                  open_end_q;
  // One past the last place with a parameter block.
  places_t               parameters_count_q, operators_q;
  pool_t [ChainMax-1:0]  chain_q;
  logic [ChainMax-1:0]   given_q, misfit_q;
  // A digest is expected.
  logic                  expects_q;
  logic [63:0]           length_q;
  failure_t              failure_q;
  verdict_e              kind_q;
  logic                  found_q;
  command_t              target_q;

  assign entry = sqe_t'(raw_q);
  assign line  = inline_sqe_t'(raw_q);

  // What an inline entry has in common with the other form is read there.
  logic unused_line;
  assign unused_line = ^line;

  // ---- Identifiers of commands in flight ----

  logic   [Commands-1:0]       known_q;
  queue_t [Commands-1:0]       known_queue_q;
  logic   [Commands-1:0][15:0] known_cid_q;
  logic   [Commands-1:0]       same, target, stop;
  logic   [15:0]               target_cid, target_number;
  command_t                    target_index;
  logic                        register;

  // A Cancel's target: CDW10.
  assign target_number = {entry.op_chain[1], entry.op_chain[0]};
  assign target_cid    = {entry.op_chain[3], entry.op_chain[2]};

  always_comb begin
    target_index = '0;
    for (int unsigned i = 0; i < Commands; i++) begin
      same[i]   = known_q[i] && known_queue_q[i] == entry_queue_i && known_cid_q[i] == entry.cid;
      target[i] = known_q[i] && known_queue_q[i] == entry_queue_i && known_cid_q[i] == target_cid;
      stop[i]   = known_q[i] && known_queue_q[i] == stop_queue_i && known_cid_q[i] == stop_cid_i;
    end
    stop_command_o = '0;
    for (int unsigned i = Commands; i > 0; i--) begin
      if (stop[i-1]) stop_command_o = command_t'(i - 1);
    end
    for (int unsigned i = Commands; i > 0; i--) begin
      if (target[i-1]) target_index = command_t'(i - 1);
    end
  end

  assign stop_found_o = stop != '0;
  assign quiet_o      = state_q == Idle ? !entry_valid_i : state_q inside {Entry, Fetch};

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      known_q <= '0;
    end else begin
      if (finish_i) known_q[finish_command_i] <= 1'b0;
      if (register) known_q[entry_command_i] <= 1'b1;
    end
  end

  always_ff @(posedge clk_i) begin
    if (register) begin
      known_queue_q[entry_command_i] <= entry_queue_i;
      known_cid_q[entry_command_i]   <= entry.cid;
    end
  end

  // ---- The entry ----

  logic malformed, conflict, surplus_flags, wide;

  assign malformed     = !is_inline_q && (entry.reserved_32 != '0 || entry.reserved_62 != '0);
  assign conflict      = same != '0;
  assign surplus_flags = (entry.flags & ~(FlagDurable | FlagMore | FlagAcknowledged
                                          | (is_inline_q ? FlagInline : 16'h0))) != '0
                         || entry.nsid != '0 || entry.nvme_flags != '0;
  assign wide          = entry.opcode == OpcodeTransfer && !is_inline_q
                         && entry.descriptor_length > DescriptorMax;

  // ---- An end: what its fields say by themselves ----

  endpoint_t end_now;
  logic      end_bad, positional, mode_bad, pace_bad, extents_bad, misplaced;
  logic [63:0] extents_end, described;

  assign end_now     = ends_q[role_q];
  assign positional  = is_positional(end_now.kind);
  assign described   = 64'(entry.descriptor_length);
  assign extents_end = 64'(end_now.extents_offset) + (64'(end_now.extents_count) << 4);
  assign mode_bad    = end_now.kind > EndpointPaced || end_now.cache > 8'd2
                       || end_now.zero_copy > 8'd2 || end_now.immutable > 8'd1
                       || end_now.pacing > 8'd2 || end_now.reserved_29 != '0;
  assign pace_bad    = end_now.kind == EndpointPaced
      ? (end_now.rate != '0) != (end_now.pacing == 8'd1) || end_now.window_us > WindowMax
      : end_now.rate != '0 || end_now.pacing != '0 || end_now.window_us != '0;
  assign misplaced   =
      (end_now.kind == EndpointNone && (end_now != '0 || role_q != Prefix))
      || (role_q == Prefix && !(end_now.kind inside {EndpointNone, EndpointMemory}))
      || (role_q != Source && end_now.immutable != '0)
      || (role_q == Source && end_now.pacing != '0);
  assign extents_bad = positional
      ? end_now.extents_count == '0 || end_now.extents_offset < DescriptorSize
        || end_now.extents_offset[2:0] != '0 || extents_end > described
      : end_now.extents_count != '0 || end_now.extents_offset != '0;
  assign end_bad     = mode_bad || pace_bad || misplaced || extents_bad;

  // ---- An extent ----

  logic [64:0] extent_end, extent_sum;
  logic        extent_bad, extent_last;
  logic [63:0] extent_length;

  assign extent_length = buffer_word_q;
  assign extent_end    = 65'(offset_q) + 65'(extent_length);
  assign extent_sum    = 65'(total_q[role_q]) + 65'(extent_length);
  assign extent_last   = 32'(index_q) + 1 == end_now.extents_count;
  assign extent_bad    = extent_end[64] || extent_sum[64] || extent_sum[63:0] == LengthToEnd
                         || (extent_length == '0 && end_now.extents_count != 32'd1);

  // ---- The ends of an inline entry ----

  logic        inline_bad;
  logic [1:0]  inline_positional;
  logic [64:0] inline_source_end;
  logic        inline_overflow;
  logic [63:0] inline_room;

  function automatic logic inline_kind_bad(logic [7:0] kind, logic [63:0] offset);
    return kind == EndpointNone || kind >= EndpointPaced || (!is_positional(kind) && offset != '0);
  endfunction

  assign inline_positional      = {is_positional(line.destination_kind),
                                   is_positional(line.source_kind)};
  assign inline_room            = line.destination_kind == EndpointFile
                                  ? OpenEnd - line.destination_offset : line.length;
  assign inline_source_end      = 65'(line.source_offset) + 65'(line.length);
  // The sum has a carry.
  assign inline_overflow        = line.destination_offset > ~inline_room;
  assign inline_bad =
      line.modes[15:9] != '0 || line.modes[1:0] == 2'd3 || line.modes[3:2] == 2'd3
      || line.modes[5:4] == 2'd3 || line.modes[7:6] == 2'd3
      || inline_kind_bad(line.source_kind, line.source_offset)
      || inline_kind_bad(line.destination_kind, line.destination_offset)
      || (inline_positional[0] && (line.length == LengthToEnd || inline_source_end[64]))
      || (inline_positional[1]
          && (line.destination_kind == EndpointFile ? line.destination_offset > OpenEnd
              : line.length == LengthToEnd || inline_overflow));

  // ---- A parameter block ----

  place_field_t named;
  logic         parameter_bad, parameter_none;
  logic [64:0]  parameter_end;

  assign named          = parameters_q[at_q];
  assign parameter_none = named.kind == ParameterNone;
  assign parameter_end  = 65'(named.offset) + 65'(named.count);
  assign parameter_bad  = parameter_none
      ? named.count != '0 || named.offset != '0
      : named.kind != ParameterDirect || named.count == '0 || parameter_end[64]
        || named.offset < 64'(DescriptorSize) || named.offset[2:0] != '0
        || parameter_end[63:0] > described;

  // ---- An operator ----

  logic [7:0] number;
  pool_t      pool;
  logic       pool_found, chain_end, chain_hole;
  places_t    chain_length;
  logic [31:0] given;

  // An inline entry has two operators; what stands behind them is something else.
  logic [7:0][7:0] numbers;
  assign numbers   = is_inline_q ? {48'h0, line.op_chain} : entry.op_chain;
  assign number    = numbers[at_q];
  assign given     = parameters_count_q > places_t'(at_q) ? parameters_q[at_q].count : '0;
  assign chain_end = places_t'(at_q) == chain_length;

  always_comb begin
    pool       = '0;
    pool_found = 1'b0;
    for (int unsigned i = 0; i < Pools; i++) begin
      if (PoolOperator[i] == number) begin
        pool       = pool_t'(i);
        pool_found = 1'b1;
      end
    end
    chain_length = '0;
    for (int unsigned i = 0; i < ChainMax; i++) begin
      if (numbers[i] != '0) chain_length = places_t'(i + 1);
    end
    chain_hole = 1'b0;
    for (int unsigned i = 0; i < ChainMax; i++) begin
      if (places_t'(i) < chain_length && numbers[i] == '0) chain_hole = 1'b1;
    end
  end

  // ---- The length ----

  logic        source_open, endless, sum_bad;
  logic [64:0] sum;
  logic [63:0] available, room, wanted;

  assign source_open = !is_positional(ends_q[Source].kind)
                       || (ends_q[Source].kind == EndpointFile && open_end_q);
  assign sum         = 65'(total_q[Prefix]) + 65'(total_q[Source]);
  assign sum_bad     = !source_open && (sum[64] || sum[63:0] == LengthToEnd);
  assign available   = source_open ? LengthToEnd : sum[63:0];
  assign room        = is_positional(ends_q[Destination].kind) ? total_q[Destination] : LengthToEnd;
  assign wanted      = entry.length == LengthToEnd ? available : entry.length;
  assign endless     = wanted == LengthToEnd;

  // A data unit of XTS: a power of two, 16 to 65536; blocks have to hold whole ones.
  logic [31:0] unit;
  logic        unit_bad;
  assign unit     = buffer_word_q[31:0];
  assign unit_bad = (unit & (unit - 1'b1)) == '0 && unit >= 32'd16 && unit <= 32'd65536
                    && unit > BlockSize;

  // ---- What comes out ----

  assign read_valid_o   = (state_q == Idle && entry_valid_i)
                          || (state_q == Judge && step_q == 2'd1);
  assign read_entry_o   = state_q == Idle;
  assign read_address_o = state_q == Idle ? entry_address_i : entry.descriptor_address;
  assign read_bytes_o   = state_q == Idle ? 13'(SqeSize) : entry.descriptor_length[12:0];
  assign data_ready_o   = state_q inside {Entry, Fetch};
  assign command_o      = entry_command_i;
  assign join_key_o     = {entry_tenant_i, entry.rid};
  assign register       = state_q == Judge && step_q == 2'd0 && !malformed && !conflict && !wide
                          && entry.opcode inside {OpcodeTransfer, OpcodeCancel};
  assign join_o         = register && entry.opcode == OpcodeTransfer && entry.rid != '0;
  assign entry_ready_o  = state_q == Tell && verdict_ready_i;

  assign extent_valid_o = (state_q == Extent && step_q == 2'd2 && !bad_q && !large_q)
                          || (state_q == Inline && !bad_q && is_positional(end_now.kind));
  assign extent_index_o = extents_q[ExtentWidth-1:0];
  assign extent_o       = state_q == Inline
      ? (role_q == Source ? '{offset: line.source_offset, length: line.length}
                          : '{offset: line.destination_offset, length: inline_room})
      : '{offset: offset_q, length: extent_length};

  assign parameter_valid_o = state_q == Parameter && step_q == 2'd1;
  assign parameter_bytes_o = named.count > 32'd255 ? '1 : named.count[7:0];
  assign parameter_at_o    = at_q;
  assign parameter_index_o = index_q[4:0];
  assign parameter_o       = buffer_word_q;

  assign transfer_valid_o = state_q == Tell;
  assign transfer_o = '{
    owner:              entry_queue_i,
    cid:                entry.cid,
    rid:                kind_q == Cancels || !known_q[entry_command_i] ? '0 : entry.rid,
    result:             malformed ? '0 : entry.result_address,
    timeout:            entry.timeout_ms,
    length:             length_q,
    durable:            (entry.flags & FlagDurable) != '0,
    acknowledged:       (entry.flags & FlagAcknowledged) != '0,
    more:               (entry.flags & FlagMore) != '0,
    source_kind:        ends_q[Source].kind,
    source_handle:      ends_q[Source].handle,
    destination_kind:   ends_q[Destination].kind,
    destination_handle: ends_q[Destination].handle,
    prefix_handle:      ends_q[Prefix].handle,
    pacing:             ends_q[Destination].pacing,
    rate:               ends_q[Destination].rate,
    window_us:          ends_q[Destination].window_us,
    parallel_reads:     !source_open,
    prefix:             counts_q[Prefix],
    source:             counts_q[Source],
    destination:        counts_q[Destination],
    operators:          operators_q,
    chain:              chain_q,
    withholds:          expects_q && length_q == LengthToEnd,
    given:              given_q,
    misfit:             misfit_q
  };

  assign verdict_valid_o = state_q == Tell;
  assign verdict_o = '{
    kind:    kind_q,
    command: entry_command_i,
    failure: failure_q,
    found:   found_q,
    target:  target_q
  };

  // ---- The copy of the descriptor ----

  always_comb begin
    unique case (state_q)
      Extent:    buffer_at = WordWidth'(end_now.extents_offset[12:3])
                             + WordWidth'({index_q, step_q == 2'd1});
      Parameter: buffer_at = WordWidth'(named.offset[12:3]) + WordWidth'(index_q);
      default:   buffer_at = WordWidth'(parameters_q[at_q].offset[12:3]) + WordWidth'(8);
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (state_q == Fetch && data_valid_i) buffer[word_q[WordWidth-1:0]] <= data_i;
    buffer_word_q <= buffer[buffer_at];
  end

  // ---- Step by step ----

  logic [WordWidth:0] words;
  logic               last_word;
  assign words     = (WordWidth+1)'((entry.descriptor_length[12:0] + 13'd7) >> 3);
  assign last_word = word_q + 1'b1 == words;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q   <= Idle;
      fetched_o <= 1'b0;
    end else begin
      fetched_o <= 1'b0;
      unique case (state_q)
        Idle: if (entry_valid_i && read_ready_i) state_q <= Entry;
        Entry: begin
          if (data_valid_i && word_q[2:0] == 3'd7) begin
            state_q   <= Judge;
            fetched_o <= 1'b1;
          end
        end
        Judge: begin
          if (step_q == 2'd1) begin
            if (read_ready_i) state_q <= Fetch;
          end else if (malformed || conflict || wide
                       || entry.opcode != OpcodeTransfer) begin
            state_q <= Tell;
          end else if (is_inline_q) begin
            state_q <= Inline;
          end else if (entry.descriptor_length < DescriptorSize
                       || entry.descriptor_length > DescriptorBytes) begin
            state_q <= Tell;
          end
        end
        Fetch: if (data_valid_i && last_word) state_q <= Ends;
        Inline: begin
          if (bad_q) state_q <= Tell;
          else if (role_q == Destination) state_q <= Chain;
        end
        Ends: begin
          if (bad_q || unread_q || large_q) state_q <= Tell;
          else if (!end_bad && positional) state_q <= Extent;
          else if (!end_bad && role_q == Destination) state_q <= Parameters;
        end
        Extent: begin
          if (bad_q || large_q) state_q <= Ends;
          else if (step_q == 2'd2 && extent_last) begin
            state_q <= role_q == Destination ? Parameters : Ends;
          end
        end
        Parameters: begin
          if (bad_q || large_q) state_q <= Tell;
          else if (!parameter_none && !parameter_bad) state_q <= Parameter;
          else if (!parameter_bad && at_q == '1) state_q <= Chain;
        end
        Parameter: begin
          if (step_q == 2'd1 && 32'(index_q) == (named.count - 1'b1) >> 3
              || step_q == 2'd1 && index_q == 13'd31) begin
            state_q <= at_q == '1 ? Chain : Parameters;
          end
        end
        Chain: begin
          if (surplus_flags || chain_hole) state_q <= Tell;
          else if (chain_end || at_q == '1) begin
            state_q <= Length;
          end
          if (!chain_hole && !surplus_flags && !chain_end
              && (!pool_found || given < 32'(PoolFewest[pool])
                  || given > 32'(PoolMost[pool]))) begin
            state_q <= Tell;
          end
        end
        Length: begin
          state_q <= parameters_count_q > operators_q || sum_bad || wanted < total_q[Prefix]
                     || wanted > available || (!endless && wanted > room) ? Tell : DataUnits;
        end
        DataUnits: begin
          if (places_t'(at_q) == operators_q || (step_q == 2'd1 && at_q == '1)) state_q <= Tell;
          else if (step_q == 2'd1 && PoolOperator[chain_q[at_q]] == OpAes256Xts && unit_bad) begin
            state_q <= Tell;
          end
        end
        Tell: if (verdict_ready_i) state_q <= Idle;
        default: ;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    unique case (state_q)
      Idle: begin
        word_q             <= '0;
        step_q             <= '0;
        bad_q              <= 1'b0;
        unread_q           <= 1'b0;
        large_q            <= 1'b0;
        extents_q          <= '0;
        counts_q           <= '0;
        total_q            <= '0;
        open_end_q         <= 1'b0;
        parameters_count_q <= '0;
        operators_q        <= '0;
        at_q               <= '0;
        role_q             <= Prefix;
        found_q            <= 1'b0;
        length_q           <= '0;
        ends_q             <= '0;
        parameters_q       <= '0;
        given_q            <= '0;
        misfit_q           <= '0;
        expects_q          <= 1'b0;
        kind_q             <= Refused;
        failure_q          <= failure_at(StageFrontend, '0, StatusInvalidField);
      end
      Entry: begin
        if (data_valid_i) begin
          // What can't be read is an entry of zeros.
          raw_q[word_q[2:0]] <= data_error_i ? '0 : data_i;
          word_q             <= word_q + 1'b1;
          is_inline_q        <= raw_q[0][7:0] == OpcodeTransfer && !data_error_i
                                && (data_i[47:32] & FlagInline) != '0;
        end
      end
      Judge: begin
        word_q   <= '0;
        step_q   <= 2'd1;
        target_q <= target_index;
        found_q  <= target != '0;
        bad_q    <= is_inline_q && inline_bad;
        if (is_inline_q) begin
          ends_q[Source].kind        <= line.source_kind;
          ends_q[Source].handle      <= line.source_handle;
          ends_q[Destination].kind   <= line.destination_kind;
          ends_q[Destination].handle <= line.destination_handle;
          role_q                     <= Source;
        end
        if (step_q == 2'd0) begin
          if (malformed) begin
            failure_q.status <= StatusInvalidField;
          end else if (conflict) begin
            failure_q.status <= StatusCommandIdConflict;
          end else if (entry.opcode == OpcodeCancel) begin
            kind_q <= target_number != entry_number_i || target_cid == entry.cid ? Refused
                                                                                 : Cancels;
          end else if (entry.opcode != OpcodeTransfer) begin
            failure_q.status <= StatusInvalidOpcode;
          end else if (!wide && entry.descriptor_length > DescriptorBytes) begin
            failure_q.status <= StatusOutOfResources;
          end
        end
      end
      Fetch: begin
        if (data_valid_i) begin
          word_q   <= word_q + 1'b1;
          unread_q <= unread_q || data_error_i;
          if (data_error_i) failure_q.status <= StatusDataTransferError;
          unique case (word_q) inside
            0: if (data_i != {entry.descriptor_length, 16'(DescriptorSize), 16'(AbiVersion)}) begin
              bad_q <= 1'b1;
            end
            1, 30, 31: if (data_i != '0) bad_q <= 1'b1;
            [2:13]: begin
              // Four words an end.
              for (int unsigned i = 0; i < 12; i++) begin
                if (word_q == (WordWidth+1)'(i + 2)) begin
                  ends_q[2'(i / 4)][64*(i%4)+:64] <= data_i;
                end
              end
            end
            [14:29]: begin
              for (int unsigned i = 0; i < 16; i++) begin
                if (word_q == (WordWidth+1)'(i + 14)) begin
                  if (i % 2 == 0) begin
                    parameters_q[3'(i / 2)].kind  <= data_i[31:0];
                    parameters_q[3'(i / 2)].count <= data_i[63:32];
                  end else begin
                    parameters_q[3'(i / 2)].offset <= data_i;
                  end
                end
              end
            end
            default: ;
          endcase
        end
      end
      Inline: begin
        if (surplus_flags) bad_q <= 1'b1;
        if (is_positional(end_now.kind)) begin
          extents_q        <= extents_q + 1'b1;
          counts_q[role_q] <= extent_count_t'(1);
          total_q[role_q]  <= extent_o.length;
          if (role_q == Source) open_end_q <= inline_source_end == 65'(OpenEnd);
        end
        role_q <= Destination;
      end
      Ends: begin
        index_q <= '0;
        step_q  <= '0;
        at_q    <= '0;
        if (!unread_q && !large_q && (end_bad || bad_q)) begin
          bad_q            <= 1'b1;
          failure_q.status <= StatusInvalidField;
        end else if (!positional) begin
          role_q <= role_q + 1'b1;
        end
      end
      Extent: begin
        step_q <= step_q == 2'd2 ? 2'd0 : step_q + 1'b1;
        if (step_q == 2'd1) offset_q <= buffer_word_q;
        if (step_q == 2'd2) begin
          total_q[role_q]  <= extent_sum[63:0];
          extents_q        <= extents_q + 1'b1;
          counts_q[role_q] <= counts_q[role_q] + 1'b1;
          index_q          <= index_q + 1'b1;
          if (role_q == Source) open_end_q <= extent_end == 65'(OpenEnd);
          if (extent_bad) begin
            bad_q <= 1'b1;
          end
          if (extents_q == extent_count_t'(Extents)) begin
            large_q          <= 1'b1;
            failure_q.status <= StatusOutOfResources;
          end
          if (extent_last) begin
            role_q  <= role_q + 1'b1;
            index_q <= '0;
          end
        end
      end
      Parameters: begin
        index_q <= '0;
        step_q  <= '0;
        if (parameter_bad) begin
          bad_q <= 1'b1;
        end else if (!parameter_none) begin
          parameters_count_q <= places_t'(at_q) + 1'b1;
        end else if (!bad_q) begin
          at_q <= at_q + 1'b1;
        end
      end
      Parameter: begin
        step_q <= 2'd1;
        if (step_q == 2'd1) begin
          step_q  <= 2'd0;
          index_q <= index_q + 1'b1;
          if (32'(index_q) == (named.count - 1'b1) >> 3 || index_q == 13'd31) begin
            at_q <= at_q + 1'b1;
          end
        end
      end
      Chain: begin
        step_q        <= '0;
        chain_q[at_q] <= pool;
        if (!chain_end) begin
          given_q[at_q]  <= given != '0;
          misfit_q[at_q] <= is_digest(pool) && given != '0 && given != 32'(PoolMost[pool]);
          if (is_digest(pool) && given != '0) expects_q <= 1'b1;
        end
        if (!chain_end && !chain_hole && !surplus_flags) begin
          operators_q <= places_t'(at_q) + 1'b1;
          at_q        <= at_q + 1'b1;
          if (!pool_found) begin
            failure_q <= failure_at(StageOperator, at_q, StatusUnknownOperator);
          end else if (given < 32'(PoolFewest[pool]) || given > 32'(PoolMost[pool])) begin
            failure_q <= failure_at(StageOperator, at_q, StatusBadParameter);
          end
        end
      end
      Length: begin
        length_q <= wanted;
        at_q     <= '0;
        if (parameters_count_q > operators_q || sum_bad || wanted < total_q[Prefix]) begin
          failure_q <= failure_at(StageFrontend, '0, StatusInvalidField);
        end else if (wanted > available) begin
          failure_q <= failure_at(StageSource, '0, StatusOutOfRange);
        end else if (!endless && wanted > room) begin
          failure_q <= failure_at(StageDestination, '0, StatusOutOfRange);
        end
      end
      DataUnits: begin
        if (places_t'(at_q) == operators_q || (step_q == 2'd1 && at_q == '1)) kind_q <= Accepted;
        step_q <= step_q == 2'd1 ? 2'd0 : 2'd1;
        if (step_q == 2'd1) begin
          at_q <= at_q + 1'b1;
          if (PoolOperator[chain_q[at_q]] == OpAes256Xts && unit_bad) begin
            kind_q    <= Refused;
            failure_q <= failure_at(StageOperator, at_q, StatusOutOfResources);
          end
        end
      end
      default: ;
    endcase
  end

endmodule
