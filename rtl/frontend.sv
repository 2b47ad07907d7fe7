// Host queues, as the Rust core's `frontend.rs` has them: doorbells, which entry is fetched next,
// completions with their phase bits, interrupts.
//
// Queues take turns by their weights. An entry is fetched when its command has a slot, and not
// before. A completion is kept with its command's slot until its ring has room, so that a host that
// makes no room holds up nobody but itself; those of one queue are posted in the order in which
// they came.

module frontend
  import core_pkg::*;
(
  input  logic          clk_i,
  input  logic          rst_ni,

  // A queue pair is there from now on; nothing of an earlier one is left.
  input  logic          create_i,
  input  queue_t        create_queue_i,
  input  queue_config_t create_config_i,

  // A queue pair is to go: nothing more is fetched, and completions for which its ring has no room
  // are dropped. When its last command's completion is posted or dropped, it is gone.
  input  logic              delete_i,
  input  queue_t            delete_queue_i,
  output logic [Queues-1:0] deleting_o,
  output logic              deleted_valid_o,
  input  logic              deleted_ready_i,
  output queue_t            deleted_queue_o,
  // Queues that there are, the function of each, and the functions' weights.
  output logic [Queues-1:0]      there_o,
  output function_t [Queues-1:0] func_o,
  output logic [Functions-1:0][8:0] weight_o,

  // A doorbell was rung: a submission queue's tail, or a completion queue's head. One that makes no
  // sense is ignored, and told.
  input  logic          doorbell_valid_i,
  input  logic          doorbell_completion_i,
  input  queue_t        doorbell_queue_i,
  input  logic [31:0]   doorbell_value_i,
  output logic          doorbell_bad_o,

  // The next entry to fetch, and its command's slot.
  output logic          entry_valid_o,
  input  logic          entry_ready_i,
  output queue_t        entry_queue_o,
  output command_t      entry_command_o,
  output address_t      entry_address_o,
  output logic [15:0]   entry_tenant_o,
  output logic [15:0]   entry_number_o,
  // It was copied.
  input  logic          fetched_i,
  input  queue_t        fetched_queue_i,

  // A command is finished, and this is to be told; its slot is free once that is done and, where
  // it is among `forsaken`, once it is not any more.
  input  logic          post_i,
  input  command_t      post_command_i,
  input  posting_t      post_posting_i,
  input  logic [Commands-1:0] forsaken_i,

  // A completion entry, as two words: that with the phase bit comes last.
  output logic          write_valid_o,
  input  logic          write_ready_i,
  output address_t      write_address_o,
  output logic [63:0]   write_data_o,
  output command_t      write_command_o,
  // The queue of that, and of the interrupt.
  output queue_t        write_queue_o,
  // After it.
  output logic          interrupt_valid_o,
  input  logic          interrupt_ready_i,
  output logic [10:0]   interrupt_vector_o,
  // The completion of a command is posted, or dropped.
  output logic          posted_o,
  output command_t      posted_command_o,

  // No command has a slot, and no entry is left to fetch.
  output logic          idle_o,
  // Nothing will happen by itself.
  output logic          quiet_o
);

  queue_config_t [Queues-1:0]       config_q;
  logic          [Queues-1:0]       there_q, deleting_q, phase_q, entries, room;
  logic          [Queues-1:0][14:0] tail_q, fetch_q, head_q, post_q, taken_q;
  logic          [Queues-1:0][14:0] post_next;
  logic          [Queues-1:0]       open;

  function automatic logic [14:0] next(logic [14:0] place, logic [15:0] depth);
    return 16'(place) + 1'b1 == depth ? '0 : place + 1'b1;
  endfunction

  // How many steps it is from one slot to another.
  function automatic logic [15:0] distance(logic [14:0] from, logic [14:0] to, logic [15:0] depth);
    return to < from ? 16'(to) + depth - 16'(from) : 16'(to) - 16'(from);
  endfunction

  always_comb begin
    for (int unsigned i = 0; i < Queues; i++) begin
      func_o[i]    = config_q[i].func;
      entries[i]   = there_q[i] && !deleting_q[i] && tail_q[i] != fetch_q[i];
      post_next[i] = next(post_q[i], config_q[i].depth);
      room[i]      = post_next[i] != taken_q[i];
    end
  end

  // ---- Doorbells ----

  logic [15:0] rung_depth;
  logic        rung_sound;
  logic [14:0] rung_slot;

  assign rung_depth     = config_q[doorbell_queue_i].depth;
  assign rung_slot      = doorbell_value_i[14:0];
  assign rung_sound     = there_q[doorbell_queue_i] && doorbell_value_i < 32'(rung_depth)
      && (!doorbell_completion_i
          || distance(taken_q[doorbell_queue_i], rung_slot, rung_depth)
             <= distance(taken_q[doorbell_queue_i], post_q[doorbell_queue_i], rung_depth));
  assign doorbell_bad_o = doorbell_valid_i && !rung_sound;

  // ---- Which entry is next ----

  logic       slot_free, offer, pass, settled;
  logic [8:0] turn_q;
  queue_t     at_q;
  command_t   slot;
  logic [Commands-1:0] slots_q;
  logic [$clog2(Commands+1)-1:0] free_count;
  // Slots whose commands are told, but not free yet; and one of them that is free now.
  logic [Commands-1:0] told_q;
  logic       late, give;
  command_t   late_slot, give_slot;
  queue_t [Commands-1:0] owner_q;
  logic [Queues-1:0] gone, busy, unused_start;
  logic       posted;
  command_t   posting_q;
  queue_t     posting_queue;

  assign slot_free = open[at_q];
  assign offer     = entries[at_q] && slot_free && turn_q != config_q[at_q].weight;
  // The turn is over: nothing to fetch, its weight is spent, or there is no slot for it.
  assign pass      = !entry_valid_o && !offer;

  quota #(
    .Total  (Commands),
    .Queues (Queues)
  ) u_slots (
    .clk_i,
    .rst_ni,
    .there_i      (there_o),
    .func_i       (func_o),
    .weight_i     (weight_o),
    .settled_o    (settled),
    .open_o       (open),
    .pairs_i      ('0),
    .start_o      (unused_start),
    .take_i       (offer && !entry_valid_o),
    .take_queue_i (at_q),
    .take_two_i   (1'b0),
    .give_i       (give),
    .give_queue_i (owner_q[give_slot]),
    .give_two_i   (1'b0),
    .free_o       (free_count)
  );

  always_comb begin
    slot = '0;
    for (int unsigned i = Commands; i > 0; i--) begin
      if (!slots_q[i-1]) slot = command_t'(i - 1);
    end
  end

  always_comb begin
    late      = 1'b0;
    late_slot = '0;
    for (int unsigned i = Commands; i > 0; i--) begin
      if (told_q[i-1] && !forsaken_i[i-1]) begin
        late      = 1'b1;
        late_slot = command_t'(i - 1);
      end
    end
  end

  assign give      = posted ? !forsaken_i[posting_q] : late;
  assign give_slot = posted ? posting_q : late_slot;

  // ---- Queues that go ----

  always_comb begin
    busy = '0;
    for (int unsigned i = 0; i < Commands; i++) begin
      if (slots_q[i] && !told_q[i]) busy[owner_q[i]] = 1'b1;
    end
  end

  assign gone            = deleting_q & ~busy;
  assign deleting_o      = deleting_q;
  assign there_o         = there_q;
  assign deleted_valid_o = gone != '0;

  always_comb begin
    deleted_queue_o = '0;
    for (int unsigned i = Queues; i > 0; i--) begin
      if (gone[i-1]) deleted_queue_o = queue_t'(i - 1);
    end
  end

  assign entry_tenant_o = config_q[entry_queue_o].tenant;
  assign entry_number_o = config_q[entry_queue_o].number;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      entry_valid_o <= 1'b0;
      slots_q       <= '0;
      told_q        <= '0;
      turn_q        <= '0;
      at_q          <= '0;
    end else begin
      if (entry_ready_i) entry_valid_o <= 1'b0;
      if (posted) told_q[posting_q] <= 1'b1;
      if (give) begin
        slots_q[give_slot] <= 1'b0;
        told_q[give_slot]  <= 1'b0;
      end
      if (!entry_valid_o && offer) begin
        entry_valid_o <= 1'b1;
        slots_q[slot] <= 1'b1;
        turn_q        <= turn_q + 1'b1;
      end else if (pass) begin
        turn_q        <= '0;
        at_q          <= queue_t'(32'(at_q) + 1 == Queues ? 0 : 32'(at_q) + 1);
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (!entry_valid_o && offer) begin
      entry_queue_o   <= at_q;
      owner_q[slot]   <= at_q;
      entry_command_o <= slot;
      entry_address_o <= config_q[at_q].submission + address_t'({fetch_q[at_q], 6'b0});
    end
  end

  // ---- Completions ----

  typedef enum logic [2:0] {
    Choose,
    Low,
    High,
    Tell,
    Drop
  } state_e;

  state_e              state_q;
`ifdef FORMAL
  posting_t [Commands-1:0] postings;
`else
  posting_t            postings [Commands];
`endif
  queue_t [Commands-1:0] queue_q;
  logic   [Commands-1:0] there, first, may;
  logic                chosen_valid;
  command_t            chosen;
  posting_t            posting;
  dcs_pkg::cqe_t       entry;

  order #(
    .Commands (Commands),
    .KeyWidth (QueueWidth)
  ) u_line (
    .clk_i,
    .rst_ni,
    .join_i          (post_i),
    .join_command_i  (post_command_i),
    .join_key_i      (post_posting_i.owner),
    .leave_i         (posted),
    .leave_command_i (posting_q),
    .there_o         (there),
    .first_o         (first)
  );

  always_comb begin
    for (int unsigned i = 0; i < Commands; i++) begin
      may[i] = first[i] && (room[queue_q[i]] || deleting_q[queue_q[i]]);
    end
  end

  arbiter #(
    .Count (Commands)
  ) u_arbiter (
    .clk_i,
    .rst_ni,
    .ask_i    (may),
    .valid_o  (chosen_valid),
    .chosen_o (chosen),
    .take_i   (state_q == Choose && chosen_valid)
  );

  assign posting       = postings[posting_q];
  assign posting_queue = posting.owner;

  assign entry = '{
    delivered:   posting.delivered,
    stage:       posting.stage,
    stage_index: posting.stage_index,
    sq_head:     16'(head_q[posting_queue]),
    sq_id:       config_q[posting_queue].number,
    cid:         posting.cid,
    status:      {posting.status, phase_q[posting_queue]}
  };

  assign write_valid_o      = state_q inside {Low, High};
  assign write_address_o    = config_q[posting_queue].completion
                              + address_t'({post_q[posting_queue], state_q == High, 3'b0});
  assign write_data_o       = state_q == High ? entry[127:64] : entry[63:0];
  assign write_command_o    = posting_q;
  assign write_queue_o      = posting_queue;
  assign posted_o           = posted;
  assign posted_command_o   = posting_q;
  assign interrupt_valid_o  = state_q == Tell && config_q[posting_queue].interrupts;
  assign interrupt_vector_o = config_q[posting_queue].vector;
  assign posted             = state_q == Drop
                              || (state_q == Tell
                                  && (interrupt_ready_i || !config_q[posting_queue].interrupts));

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= Choose;
    end else begin
      unique case (state_q)
        Choose: if (chosen_valid) state_q <= room[queue_q[chosen]] ? Low : Drop;
        Low:    if (write_ready_i) state_q <= High;
        High:   if (write_ready_i) state_q <= Tell;
        Tell:   if (posted) state_q <= Choose;
        Drop:   state_q <= Choose;
        default: ;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    if (post_i) begin
      postings[post_command_i] <= post_posting_i;
      queue_q[post_command_i]  <= post_posting_i.owner;
    end
    if (state_q == Choose) posting_q <= chosen;
  end

  // ---- The rings ----

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      there_q    <= '0;
      deleting_q <= '0;
    end else begin
      if (create_i) there_q[create_queue_i] <= 1'b1;
      if (delete_i) deleting_q[delete_queue_i] <= there_q[delete_queue_i];
      if (deleted_valid_o && deleted_ready_i) begin
        there_q[deleted_queue_o]    <= 1'b0;
        deleting_q[deleted_queue_o] <= 1'b0;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (doorbell_valid_i && rung_sound) begin
      if (doorbell_completion_i) taken_q[doorbell_queue_i] <= rung_slot;
      else tail_q[doorbell_queue_i] <= rung_slot;
    end
    if (!entry_valid_o && offer) fetch_q[at_q] <= next(fetch_q[at_q], config_q[at_q].depth);
    if (fetched_i) begin
      head_q[fetched_queue_i] <= next(head_q[fetched_queue_i], config_q[fetched_queue_i].depth);
    end
    if (state_q == High && write_ready_i) begin
      post_q[posting_queue]  <= post_next[posting_queue];
      phase_q[posting_queue] <= phase_q[posting_queue] ^ (post_next[posting_queue] == '0);
    end
    if (create_i) begin
      weight_o[create_config_i.func] <= create_config_i.func_weight;
      config_q[create_queue_i] <= create_config_i;
      tail_q[create_queue_i]   <= '0;
      fetch_q[create_queue_i]  <= '0;
      head_q[create_queue_i]   <= '0;
      post_q[create_queue_i]   <= '0;
      taken_q[create_queue_i]  <= '0;
      phase_q[create_queue_i]  <= 1'b1;
    end
  end

  assign idle_o = entries == '0 && free_count == ($clog2(Commands+1))'(Commands) && slots_q == '0
                  && there == '0 && deleting_q == '0;
  assign quiet_o = (entry_valid_o || (entries & open) == '0) && state_q == Choose && !chosen_valid
                   && !deleted_valid_o && settled && !late;

endmodule
