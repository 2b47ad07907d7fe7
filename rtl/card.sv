// A card without software in its data path: the engine with its units, and memory, SSDs and a NIC
// as its devices.
//
// The card has functions, each with a host of its own, by number: a queue belongs to a function
// (`func` of its configuration). A host has a bus (`host_*`), by which the card reaches its memory:
// rings, descriptors, results, and what the function's handles name there. Nothing that is done for
// another function goes that way, and nothing for this one behind the last `deleted_*` of its
// queues. A host's bus has to answer: one that doesn't keeps the others waiting.
//
// The devices' bus has two ends here: what the card reads and writes (`bus_*`: memory, doorbells,
// the NIC's rings, headers and buffers), and what devices reach of it (`window_*`: blocks, and the
// SSDs' rings; see block_port). Blocks are at `BlockBase`; what the card itself writes there comes
// back by its window.
//
// Software makes queues, starts SSDs and the NIC, says what handles name, opens connections, and
// does what of TCP and of failures is left to it: see docs/rtl.md. Which command uses a connection
// is told by `endpoints`.

module card
  import card_pkg::*;
  import core_pkg::*;
  import nic_pkg::*;
#(
  parameter int unsigned Ssds     = 2,
  // Functions, each with a host: as many as the core knows at most.
  parameter int unsigned Hosts    = 2,
  // See nic_controller and nic_receive.
  parameter bit          Advanced     = 1'b0,
  parameter logic [63:0] BlockBase    = 64'h0000_0001_0000_0000,
  parameter logic [63:0] HeaderBase   = 64'h0000_0000_1000_0000,
  parameter logic [63:0] TransmitRing = 64'h0000_0000_2000_0000,
  parameter logic [63:0] TransmitTail = 64'h0000_0000_3000_3818,
  parameter logic [63:0] BufferBase   = 64'h0000_0000_4000_0000,
  parameter logic [63:0] ReceiveRing  = 64'h0000_0000_5000_0000,
  parameter logic [63:0] ReceiveTail  = 64'h0000_0000_3000_2818
) (
  input  logic          clk_i,
  input  logic          rst_ni,
  input  logic [63:0]   now_i,
  input  logic [39:0]   millis_i,
  input  logic [31:0]   grace_i,

  // Queues of hosts; see engine. A doorbell comes from a host, which has to have the queue.
  input  logic          create_i,
  input  queue_t        create_queue_i,
  input  queue_config_t create_config_i,
  input  logic          delete_i,
  input  queue_t        delete_queue_i,
  output logic          deleted_valid_o,
  input  logic          deleted_ready_i,
  output queue_t        deleted_queue_o,
  input  logic          doorbell_valid_i,
  input  logic          doorbell_completion_i,
  input  function_t     doorbell_func_i,
  input  queue_t        doorbell_queue_i,
  input  logic [31:0]   doorbell_value_i,
  output logic          doorbell_bad_o,
  input  logic          stop_valid_i,
  output logic          stop_ready_o,
  input  queue_t        stop_queue_i,
  input  logic [15:0]   stop_cid_i,
  output logic          interrupt_valid_o,
  input  logic          interrupt_ready_i,
  output function_t     interrupt_func_o,
  output logic [10:0]   interrupt_vector_o,

  // Handles; see endpoints.
  input  logic          set_valid_i,
  input  function_t     set_func_i,
  input  handle_t       set_handle_i,
  input  target_t       set_target_i,

  // SSDs; see nvme_controller.
  input  logic [Ssds-1:0]              ssd_enable_i,
  input  nvme_pkg::config_t [Ssds-1:0] ssd_config_i,
  output logic [Ssds-1:0]              ssd_ready_o,
  output logic [Ssds-1:0]              ssd_broken_o,
  output logic [Ssds-1:0]              cancel_valid_o,
  input  logic [Ssds-1:0]              cancel_ready_i,
  output logic [Ssds-1:0][15:0]        cancel_identifier_o,

  // The NIC; see nic_controller and nic_receive.
  input  logic             send_valid_i,
  output logic             send_ready_o,
  input  request_t         send_i,
  input  logic             receive_valid_i,
  output logic             receive_ready_o,
  input  receive_request_t receive_i,
  output logic             event_valid_o,
  input  logic             event_ready_i,
  output received_t        event_o,
  input  logic             return_valid_i,
  output logic             return_ready_o,
  input  buffer_t          return_i,

  output bus_pkg::request_t [Hosts-1:0]  host_o,
  input  bus_pkg::response_t [Hosts-1:0] host_i,
  output bus_pkg::request_t  bus_o,
  input  bus_pkg::response_t bus_i,
  input  bus_pkg::request_t  window_i,
  output bus_pkg::response_t window_o,

  output logic          idle_o
);

  // Devices, in the order of `endpoints`. SSDs come behind memory.
  localparam int unsigned Devices     = Ssds + 3;
  localparam int unsigned MemoryAt    = 0;
  localparam int unsigned SendAt      = Ssds + 1;
  localparam int unsigned ReceiveAt   = Ssds + 2;
  // Those that have a way to block memory; the last one is the window.
  localparam int unsigned Ports       = Ssds + 2;
  localparam int unsigned WindowAt    = Ssds + 1;
  localparam int unsigned Outcomes    = Devices + 1;
  localparam int unsigned ChosenWidth = $clog2(Outcomes);
  localparam int unsigned HostWidth   = Hosts > 1 ? $clog2(Hosts) : 1;

  // ---- Buses: memory has a way to the devices' one and to each host, the core to the hosts ----

  bus_pkg::request_t [Devices-1:0]  masters;
  bus_pkg::response_t [Devices-1:0] answers;
  bus_pkg::request_t                memory_bus, core_bus;
  bus_pkg::response_t               memory_answer, core_answer;
  bus_pkg::way_t                    memory_read_way, memory_write_way;
  bus_pkg::way_t                    core_read_way, core_write_way;
  bus_pkg::request_t [Hosts-1:0]    memory_ways, core_ways;
  bus_pkg::response_t [Hosts-1:0]   memory_answers, core_answers;

  bus_split #(.Ways (Hosts + 1)) u_memory_split (
    .read_way_i  (memory_read_way),
    .write_way_i (memory_write_way),
    .master_i    (memory_bus),
    .master_o    (memory_answer),
    .ways_o      ({memory_ways, masters[MemoryAt]}),
    .ways_i      ({memory_answers, answers[MemoryAt]})
  );

  bus_split #(.Ways (Hosts)) u_core_split (
    .read_way_i  (core_read_way),
    .write_way_i (core_write_way),
    .master_i    (core_bus),
    .master_o    (core_answer),
    .ways_o      (core_ways),
    .ways_i      (core_answers)
  );

  for (genvar i = 0; i < Hosts; i++) begin : gen_hosts
    bus_join #(.Masters (2)) u_host_join (
      .clk_i, .rst_ni, .masters_i ({core_ways[i], memory_ways[i]}),
      .masters_o ({core_answers[i], memory_answers[i]}), .bus_o (host_o[i]), .bus_i (host_i[i])
    );
  end

  bus_join #(.Masters (Devices)) u_bus_join (
    .clk_i, .rst_ni, .masters_i (masters), .masters_o (answers), .bus_o, .bus_i
  );

  // ---- Functions: the one of each queue ----

  function_t [Queues-1:0] funcs_q;
  logic                   doorbell_mine, core_bad;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) funcs_q <= '0;
    else if (create_i) funcs_q[create_queue_i] <= create_config_i.func;
  end

  assign doorbell_mine  = funcs_q[doorbell_queue_i] == doorbell_func_i;
  assign doorbell_bad_o = core_bad || (doorbell_valid_i && !doorbell_mine);

  // ---- Blocks ----

  logic [Ports-1:0]        read_valid, read_ready, read_done, write_valid, write_ready;
  word_at_t [Ports-1:0]    read_at, write_at;
  block_word_t             read_data;
  block_word_t [Ports-1:0] write_data;
  keep_t [Ports-1:0]       write_keep;

  // Block memory, then the memories of the SSDs' rings.
  logic [Ssds:0]        window_read, window_read_ready, window_read_done;
  logic [Ssds:0]        window_write, window_write_ready;
  block_word_t [Ssds:0] window_read_data;
  word_at_t             window_read_at, window_write_at;
  block_word_t          window_write_data;
  keep_t                window_write_keep;

  block_port #(.Memories (Ssds + 1)) u_block_port (
    .clk_i,
    .rst_ni,
    .bus_i         (window_i),
    .bus_o         (window_o),
    .read_valid_o  (window_read),
    .read_ready_i  (window_read_ready),
    .read_at_o     (window_read_at),
    .read_done_i   (window_read_done),
    .read_data_i   (window_read_data),
    .write_valid_o (window_write),
    .write_ready_i (window_write_ready),
    .write_at_o    (window_write_at),
    .write_data_o  (window_write_data),
    .write_keep_o  (window_write_keep)
  );

  assign read_valid[WindowAt]  = window_read[0];
  assign read_at[WindowAt]     = window_read_at;
  assign window_read_ready[0]  = read_ready[WindowAt];
  assign window_read_done[0]   = read_done[WindowAt];
  assign window_read_data[0]   = read_data;
  assign write_valid[WindowAt] = window_write[0];
  assign write_at[WindowAt]    = window_write_at;
  assign write_data[WindowAt]  = window_write_data;
  assign write_keep[WindowAt]  = window_write_keep;
  assign window_write_ready[0] = write_ready[WindowAt];

  // ---- The engine, and its way to its hosts ----

  logic          core_read, core_read_ready, core_data, core_data_ready, core_data_error;
  logic          core_write, core_write_ready, core_write_entry, core_interrupt;
  logic          core_interrupt_ready;
  logic [10:0]   core_vector;
  address_t      core_read_address, core_write_address;
  queue_t        core_read_queue, core_write_queue, core_interrupt_queue;
  logic [12:0]   core_read_bytes;
  logic [63:0]   core_data_word, core_write_word;
  logic          bind_valid, bind_ready, bound_valid, bound_ready, bound_ok;
  command_t      bind_command, bound_command, look_command, operation_command;
  failure_t      bound_failure;
  transfer_t     look_transfer;
  address_t      place;
  bus_pkg::way_t way;
  logic          operation_valid, operation_ready, outcome_valid, outcome_ready;
  operation_t    operation;
  outcome_t      outcome;
  logic          abort_valid, abort_ready;
  operation_id_t abort_id, device_abort_id;

  // What the core tells others than these: nobody needs it here.
  logic            unused_read_entry, unused_posted, unused_transfer_valid, unused_extent_valid;
  logic            unused_unbind, unused_released, unused_stale, unused_quiet, unused_timed;
  logic            unused_short;
  command_t        unused_write_command, unused_posted_command, unused_checked;
  command_t        unused_unbind_command;
  transfer_t       unused_transfer;
  extent_index_t   unused_extent_index;
  dcs_pkg::extent_t unused_extent;
  logic [Blocks-1:0] unused_free;

  // A queue is gone when all that was written for it is in its host's memory.
  logic             core_deleted;
  logic [Hosts-1:0] host_quiet;

  assign deleted_valid_o = core_deleted && host_quiet[HostWidth'(funcs_q[deleted_queue_o])];

  engine_units #(
    .Readers (Ports),
    .Writers (Ports)
  ) u_engine (
    .clk_i,
    .rst_ni,
    .now_i,
    .millis_i,
    .grace_i,
    .create_i,
    .create_queue_i,
    .create_config_i,
    .delete_i,
    .delete_queue_i,
    .deleted_valid_o       (core_deleted),
    .deleted_ready_i       (deleted_ready_i && deleted_valid_o),
    .deleted_queue_o,
    .doorbell_valid_i      (doorbell_valid_i && doorbell_mine),
    .doorbell_completion_i,
    .doorbell_queue_i,
    .doorbell_value_i,
    .doorbell_bad_o        (core_bad),
    .read_valid_o          (core_read),
    .read_entry_o          (unused_read_entry),
    .read_queue_o          (core_read_queue),
    .read_ready_i          (core_read_ready),
    .read_address_o        (core_read_address),
    .read_bytes_o          (core_read_bytes),
    .data_valid_i          (core_data),
    .data_ready_o          (core_data_ready),
    .data_i                (core_data_word),
    .data_error_i          (core_data_error),
    .write_valid_o         (core_write),
    .write_entry_o         (core_write_entry),
    .write_command_o       (unused_write_command),
    .write_queue_o         (core_write_queue),
    .write_ready_i         (core_write_ready),
    .write_address_o       (core_write_address),
    .write_data_o          (core_write_word),
    .interrupt_valid_o     (core_interrupt),
    .interrupt_ready_i     (core_interrupt_ready),
    .interrupt_vector_o    (core_vector),
    .interrupt_queue_o     (core_interrupt_queue),
    .posted_o              (unused_posted),
    .posted_command_o      (unused_posted_command),
    .checked_o             (unused_checked),
    .transfer_valid_o      (unused_transfer_valid),
    .transfer_o            (unused_transfer),
    .extent_valid_o        (unused_extent_valid),
    .extent_index_o        (unused_extent_index),
    .extent_o              (unused_extent),
    .look_command_i        (look_command),
    .look_transfer_o       (look_transfer),
    .bind_valid_o          (bind_valid),
    .bind_ready_i          (bind_ready),
    .bind_command_o        (bind_command),
    .bound_valid_i         (bound_valid),
    .bound_ready_o         (bound_ready),
    .bound_command_i       (bound_command),
    .bound_ok_i            (bound_ok),
    .bound_flush_i         (1'b0),
    .bound_failure_i       (bound_failure),
    .unbind_valid_o        (unused_unbind),
    .unbind_ready_i        (1'b1),
    .unbind_command_o      (unused_unbind_command),
    .operation_valid_o     (operation_valid),
    .operation_ready_i     (operation_ready),
    .operation_o           (operation),
    .operation_command_o   (operation_command),
    .outcome_valid_i       (outcome_valid),
    .outcome_ready_o       (outcome_ready),
    .outcome_i             (outcome),
    .held_i                ('0),
    .released_valid_i      (1'b0),
    .released_ready_o      (unused_released),
    .released_row_i        ('0),
    .stop_valid_i,
    .stop_ready_o,
    .stop_queue_i,
    .stop_cid_i,
    .abort_valid_o         (abort_valid),
    .abort_ready_i         (abort_ready),
    .abort_id_o            (abort_id),
    .stale_o               (unused_stale),
    .block_read_valid_i    (read_valid),
    .block_read_ready_o    (read_ready),
    .block_read_at_i       (read_at),
    .block_read_done_o     (read_done),
    .block_read_data_o     (read_data),
    .block_write_valid_i   (write_valid),
    .block_write_ready_o   (write_ready),
    .block_write_at_i      (write_at),
    .block_write_data_i    (write_data),
    .block_write_keep_i    (write_keep),
    .idle_o,
    .quiet_o               (unused_quiet),
    .timed_o               (unused_timed),
    .short_o               (unused_short),
    .free_o                (unused_free)
  );

  host_port #(.Hosts (Hosts)) u_host_port (
    .clk_i,
    .rst_ni,
    .read_valid_i       (core_read),
    .read_ready_o       (core_read_ready),
    .read_func_i        (funcs_q[core_read_queue]),
    .read_address_i     (core_read_address),
    .read_bytes_i       (core_read_bytes),
    .data_valid_o       (core_data),
    .data_ready_i       (core_data_ready),
    .data_o             (core_data_word),
    .data_error_o       (core_data_error),
    .write_valid_i      (core_write),
    .write_ready_o      (core_write_ready),
    .write_func_i       (funcs_q[core_write_queue]),
    .write_entry_i      (core_write_entry),
    .write_address_i    (core_write_address),
    .write_data_i       (core_write_word),
    .interrupt_valid_i  (core_interrupt),
    .interrupt_ready_o  (core_interrupt_ready),
    .interrupt_func_i   (funcs_q[core_interrupt_queue]),
    .interrupt_vector_i (core_vector),
    .interrupt_valid_o,
    .interrupt_ready_i,
    .interrupt_func_o,
    .interrupt_vector_o,
    .quiet_o            (host_quiet),
    .read_way_o         (core_read_way),
    .write_way_o        (core_write_way),
    .bus_o              (core_bus),
    .bus_i              (core_answer)
  );

  // ---- Operations to devices, outcomes back: the last one is of those that go to none ----

  logic [Devices-1:0]     device_valid, device_ready, abort_device, abort_device_ready;
  logic [Outcomes-1:0]    tells, heard;
  outcome_t [Outcomes-1:0] outcomes;
  logic [ChosenWidth-1:0] chosen;
  logic                   assign_valid, assign_ready, assign_to_send, assign_to_receive;
  assignment_t            assignment;

  endpoints #(
    .Ssds  (Ssds),
    .Hosts (Hosts)
  ) u_endpoints (
    .clk_i,
    .rst_ni,
    .set_valid_i,
    .set_func_i,
    .set_handle_i,
    .set_target_i,
    .bind_valid_i         (bind_valid),
    .bind_ready_o         (bind_ready),
    .bind_command_i       (bind_command),
    .bound_valid_o        (bound_valid),
    .bound_ready_i        (bound_ready),
    .bound_command_o      (bound_command),
    .bound_ok_o           (bound_ok),
    .bound_failure_o      (bound_failure),
    .look_command_o       (look_command),
    .look_transfer_i      (look_transfer),
    .look_func_i          (funcs_q[look_transfer.owner]),
    .assign_valid_o       (assign_valid),
    .assign_ready_i       (assign_ready),
    .assign_o             (assignment),
    .operation_valid_i    (operation_valid),
    .operation_ready_o    (operation_ready),
    .operation_i          (operation),
    .operation_command_i  (operation_command),
    .device_valid_o       (device_valid),
    .device_ready_i       (device_ready),
    .address_o            (place),
    .way_o                (way),
    .outcome_valid_o      (tells[Devices]),
    .outcome_ready_i      (heard[Devices]),
    .outcome_o            (outcomes[Devices]),
    .abort_valid_i        (abort_valid),
    .abort_ready_o        (abort_ready),
    .abort_id_i           (abort_id),
    .abort_device_valid_o (abort_device),
    .abort_id_o           (device_abort_id),
    .abort_device_ready_i (abort_device_ready)
  );

  arbiter #(.Count (Outcomes)) u_outcome_turn (
    .clk_i, .rst_ni, .ask_i (tells), .valid_o (outcome_valid), .chosen_o (chosen),
    .take_i (outcome_valid && outcome_ready)
  );

  assign outcome = outcomes[chosen];

  for (genvar i = 0; i < Outcomes; i++) begin : gen_heard
    assign heard[i] = outcome_valid && outcome_ready && chosen == ChosenWidth'(i);
  end

  // ---- Memory ----

  assign abort_device_ready[MemoryAt] = 1'b1;

  memory_endpoint u_memory (
    .clk_i,
    .rst_ni,
    .operation_valid_i (device_valid[MemoryAt]),
    .operation_ready_o (device_ready[MemoryAt]),
    .operation_i       (operation),
    .address_i         (place),
    .way_i             (way),
    .outcome_valid_o   (tells[MemoryAt]),
    .outcome_ready_i   (heard[MemoryAt]),
    .outcome_o         (outcomes[MemoryAt]),
    .read_way_o        (memory_read_way),
    .write_way_o       (memory_write_way),
    .bus_o             (memory_bus),
    .bus_i             (memory_answer),
    .read_valid_o      (read_valid[MemoryAt]),
    .read_ready_i      (read_ready[MemoryAt]),
    .read_at_o         (read_at[MemoryAt]),
    .read_done_i       (read_done[MemoryAt]),
    .read_data_i       (read_data),
    .write_valid_o     (write_valid[MemoryAt]),
    .write_ready_i     (write_ready[MemoryAt]),
    .write_at_o        (write_at[MemoryAt]),
    .write_data_o      (write_data[MemoryAt]),
    .write_keep_o      (write_keep[MemoryAt])
  );

  // ---- SSDs ----

  operation_t ssd_operation;

  always_comb begin
    ssd_operation        = operation;
    ssd_operation.offset = place;
  end

  for (genvar i = 0; i < Ssds; i++) begin : gen_ssds
    nvme_controller u_ssd (
      .clk_i,
      .rst_ni,
      .millis_i,
      .enable_i            (ssd_enable_i[i]),
      .config_i            (ssd_config_i[i]),
      .ready_o             (ssd_ready_o[i]),
      .broken_o            (ssd_broken_o[i]),
      .cancel_valid_o      (cancel_valid_o[i]),
      .cancel_ready_i      (cancel_ready_i[i]),
      .cancel_identifier_o (cancel_identifier_o[i]),
      .operation_valid_i   (device_valid[i+1]),
      .operation_ready_o   (device_ready[i+1]),
      .operation_i         (ssd_operation),
      .outcome_valid_o     (tells[i+1]),
      .outcome_ready_i     (heard[i+1]),
      .outcome_o           (outcomes[i+1]),
      .abort_valid_i       (abort_device[i+1]),
      .abort_ready_o       (abort_device_ready[i+1]),
      .abort_id_i          (device_abort_id),
      .bus_o               (masters[i+1]),
      .bus_i               (answers[i+1]),
      .own_read_valid_i    (window_read[i+1]),
      .own_read_ready_o    (window_read_ready[i+1]),
      .own_read_at_i       (window_read_at),
      .own_read_done_o     (window_read_done[i+1]),
      .own_read_data_o     (window_read_data[i+1]),
      .own_write_valid_i   (window_write[i+1]),
      .own_write_ready_o   (window_write_ready[i+1]),
      .own_write_at_i      (window_write_at),
      .own_write_data_i    (window_write_data),
      .own_write_keep_i    (window_write_keep),
      .read_valid_o        (read_valid[i+1]),
      .read_ready_i        (read_ready[i+1]),
      .read_at_o           (read_at[i+1]),
      .read_done_i         (read_done[i+1]),
      .read_data_i         (read_data),
      .write_valid_o       (write_valid[i+1]),
      .write_ready_i       (write_ready[i+1]),
      .write_at_o          (write_at[i+1]),
      .write_data_o        (write_data[i+1]),
      .write_keep_o        (write_keep[i+1])
    );
  end

  // ---- The NIC: what software asks for and what endpoints tell go in turns ----

  logic             send_turn_q, receive_turn_q, send_asks, receive_asks, send_done, receive_done;
  request_t         bind_request;
  receive_request_t assign_request;
  logic             unused_send_idle, unused;

  assign assign_to_send    = assign_valid && assignment.writes;
  assign assign_to_receive = assign_valid && !assignment.writes;
  assign send_asks         = send_turn_q ? assign_to_send : send_valid_i;
  assign receive_asks      = receive_turn_q ? assign_to_receive : receive_valid_i;
  assign send_ready_o      = send_done && !send_turn_q;
  assign receive_ready_o   = receive_done && !receive_turn_q;
  assign assign_ready      = assignment.writes ? send_done && send_turn_q
                             : receive_done && receive_turn_q;

  always_comb begin
    bind_request            = '0;
    bind_request.kind       = Bind;
    bind_request.connection = connection_t'(assignment.connection);
    bind_request.command    = assignment.command;
    assign_request            = '0;
    assign_request.kind       = nic_pkg::Assign;
    assign_request.connection = connection_t'(assignment.connection);
    assign_request.command    = assignment.command;
  end

  // Whoever asks keeps its turn until it is heard.
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      send_turn_q    <= 1'b0;
      receive_turn_q <= 1'b0;
    end else begin
      if (!send_asks || send_done) send_turn_q <= !send_turn_q;
      if (!receive_asks || receive_done) receive_turn_q <= !receive_turn_q;
    end
  end

  // It aborts nothing: software ends a connection, and with that its operations.
  assign abort_device_ready[SendAt] = 1'b1;

  layout_t send_place;
  assign send_place = '{
    blocks:  BlockBase,
    headers: HeaderBase,
    ring:    TransmitRing,
    tail:    TransmitTail
  };

  nic_controller #(
    .Advanced (Advanced)
  ) u_send (
    .clk_i,
    .rst_ni,
    .place_i           (send_place),
    .request_valid_i   (send_asks),
    .request_ready_o   (send_done),
    .request_i         (send_turn_q ? bind_request : send_i),
    .operation_valid_i (device_valid[SendAt]),
    .operation_ready_o (device_ready[SendAt]),
    .operation_i       (operation),
    .outcome_valid_o   (tells[SendAt]),
    .outcome_ready_i   (heard[SendAt]),
    .outcome_o         (outcomes[SendAt]),
    .idle_o            (unused_send_idle),
    .bus_o             (masters[SendAt]),
    .bus_i             (answers[SendAt])
  );

  receive_layout_t receive_place;
  assign receive_place = '{
    blocks:  BlockBase,
    buffers: BufferBase,
    ring:    ReceiveRing,
    tail:    ReceiveTail
  };

  nic_receive u_receive (
    .clk_i,
    .rst_ni,
    .place_i           (receive_place),
    .request_valid_i   (receive_asks),
    .request_ready_o   (receive_done),
    .request_i         (receive_turn_q ? assign_request : receive_i),
    .operation_valid_i (device_valid[ReceiveAt]),
    .operation_ready_o (device_ready[ReceiveAt]),
    .operation_i       (operation),
    .abort_valid_i     (abort_device[ReceiveAt]),
    .abort_ready_o     (abort_device_ready[ReceiveAt]),
    .abort_i           (device_abort_id),
    .outcome_valid_o   (tells[ReceiveAt]),
    .outcome_ready_i   (heard[ReceiveAt]),
    .outcome_o         (outcomes[ReceiveAt]),
    .event_valid_o,
    .event_ready_i,
    .event_o,
    .return_valid_i,
    .return_ready_o,
    .return_i,
    .bus_o             (masters[ReceiveAt]),
    .bus_i             (answers[ReceiveAt])
  );

  assign unused = ^{unused_read_entry, unused_posted, unused_transfer_valid,
                    unused_extent_valid, unused_unbind, unused_released, unused_stale,
                    unused_quiet, unused_timed, unused_short,
                    unused_write_command, unused_posted_command, unused_checked,
                    unused_unbind_command, unused_transfer, unused_extent_index, unused_extent,
                    unused_free, unused_send_idle, abort_device[MemoryAt], abort_device[SendAt]};

  // A command has one write to a stream under way, so that none keeps the others waiting.
`ifndef SYNTHESIS
  initial begin
    assert (Pending >= Commands) else $error("fewer places than commands that may write");
    assert (Hosts <= Functions) else $error("more functions than the core knows");
  end
`endif

endmodule
