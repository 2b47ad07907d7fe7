// The engine core with its processing units and the memory of its blocks.
//
// Ports are those of `engine`, but that the operations that remain are DoRead, DoWrite and DoFlush:
// their owner moves bytes from and to block memory, at the row and the place that they name, by the
// ports of block memory (see block_memory), and answers by `outcome`. A command whose operators
// can't be made of their parameter blocks is not shown to the owner: it fails with BAD_PARAMETER.

module engine_units
  import core_pkg::*;
  import dcs_pkg::*;
#(
  // Of the owner, on block memory.
  parameter int unsigned Readers = 1,
  parameter int unsigned Writers = 1
) (
  input  logic          clk_i,
  input  logic          rst_ni,
  input  logic [63:0]   now_i,
  input  logic [39:0]   millis_i,
  input  logic [31:0]   grace_i,

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
  input  queue_t        doorbell_queue_i,
  input  logic [31:0]   doorbell_value_i,
  output logic          doorbell_bad_o,

  output logic          read_valid_o,
  output logic          read_entry_o,
  output queue_t        read_queue_o,
  input  logic          read_ready_i,
  output address_t      read_address_o,
  output logic [12:0]   read_bytes_o,
  input  logic          data_valid_i,
  output logic          data_ready_o,
  input  logic [63:0]   data_i,
  input  logic          data_error_i,
  output logic          write_valid_o,
  output logic          write_entry_o,
  output command_t      write_command_o,
  output queue_t        write_queue_o,
  input  logic          write_ready_i,
  output address_t      write_address_o,
  output logic [63:0]   write_data_o,
  output logic          interrupt_valid_o,
  input  logic          interrupt_ready_i,
  output logic [10:0]   interrupt_vector_o,
  output queue_t        interrupt_queue_o,
  output logic          posted_o,
  output command_t      posted_command_o,

  output command_t      checked_o,
  output logic          transfer_valid_o,
  output transfer_t     transfer_o,
  output logic          extent_valid_o,
  output extent_index_t extent_index_o,
  output extent_t       extent_o,
  input  command_t      look_command_i,
  output transfer_t     look_transfer_o,

  output logic          bind_valid_o,
  input  logic          bind_ready_i,
  output command_t      bind_command_o,
  input  logic          bound_valid_i,
  output logic          bound_ready_o,
  input  command_t      bound_command_i,
  input  logic          bound_ok_i,
  input  logic          bound_flush_i,
  input  failure_t      bound_failure_i,
  output logic          unbind_valid_o,
  input  logic          unbind_ready_i,
  output command_t      unbind_command_o,

  output logic          operation_valid_o,
  input  logic          operation_ready_i,
  output operation_t    operation_o,
  output command_t      operation_command_o,
  input  logic          outcome_valid_i,
  output logic          outcome_ready_o,
  input  outcome_t      outcome_i,
  input  logic [Blocks-1:0] held_i,
  input  logic          released_valid_i,
  output logic          released_ready_o,
  input  row_t          released_row_i,
  input  logic          stop_valid_i,
  output logic          stop_ready_o,
  input  queue_t        stop_queue_i,
  input  logic [15:0]   stop_cid_i,
  output logic          abort_valid_o,
  input  logic          abort_ready_i,
  output operation_id_t abort_id_o,
  output logic          stale_o,

  input  logic [Readers-1:0]        block_read_valid_i,
  output logic [Readers-1:0]        block_read_ready_o,
  input  word_at_t [Readers-1:0]    block_read_at_i,
  output logic [Readers-1:0]        block_read_done_o,
  output block_word_t               block_read_data_o,
  input  logic [Writers-1:0]        block_write_valid_i,
  output logic [Writers-1:0]        block_write_ready_o,
  input  word_at_t [Writers-1:0]    block_write_at_i,
  input  block_word_t [Writers-1:0] block_write_data_i,
  input  keep_t [Writers-1:0]       block_write_keep_i,

  output logic          idle_o,
  output logic          quiet_o,
  output logic          timed_o,
  output logic          short_o,
  output logic [Blocks-1:0] free_o
);

  // ---- Operations and their outcomes, by whose they are ----

  logic       operation_valid, operation_ready, outcome_valid, outcome_ready;
  operation_t operation;
  outcome_t   outcome;
  logic       for_units, units_ready, units_tell, units_heard;
  outcome_t   units_outcome;

  assign for_units         = operation.kind inside {DoProcess, DoSnapshot};
  assign operation_valid_o = operation_valid && !for_units;
  assign operation_o       = operation;
  assign operation_ready   = for_units ? units_ready : operation_ready_i;

  logic chosen;

  arbiter #(.Count (2)) u_outcome_turn (
    .clk_i, .rst_ni, .ask_i ({outcome_valid_i, units_tell}), .valid_o (outcome_valid),
    .chosen_o (chosen), .take_i (outcome_valid && outcome_ready)
  );

  assign outcome         = chosen ? outcome_i : units_outcome;
  assign outcome_ready_o = chosen && outcome_valid && outcome_ready;
  assign units_heard     = !chosen && outcome_valid && outcome_ready;

  // ---- Binding: parameter blocks are looked at before the owner is asked ----

  logic     bind_valid, sound, unsound_q, bound_ready, bound_valid;
  command_t bind_command, unsound_command_q;
  failure_t unsound, unsound_failure_q;

  assign bind_valid_o   = bind_valid && sound;
  assign bind_command_o = bind_command;
  assign bound_valid    = unsound_q || bound_valid_i;
  assign bound_ready_o  = bound_ready && !unsound_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) unsound_q <= 1'b0;
    else unsound_q <= unsound_q ? !bound_ready : bind_valid && !sound;
  end

  always_ff @(posedge clk_i) begin
    if (!unsound_q) begin
      unsound_command_q <= bind_command;
      unsound_failure_q <= unsound;
    end
  end

  // ---- The modules ----

  logic        parameter_valid, quiet, units_quiet, unused;
  logic [7:0]  parameter_bytes;
  logic        load_valid;
  unit_t       load_unit;
  pool_t       load_pool;
  place_t      parameter_at;
  logic [4:0]  parameter_index;
  logic [63:0] parameter_word;
  logic        digest_valid, digest_ready;
  command_t    digest_command;
  place_t      digest_at;
  logic [3:0]  digest_index;
  logic [63:0] digest;

  assign quiet_o = quiet && units_quiet;
  assign unused  = ^{parameter_bytes, load_valid, load_unit, load_pool};

  engine u_engine (
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
    .deleted_valid_o,
    .deleted_ready_i,
    .deleted_queue_o,
    .doorbell_valid_i,
    .doorbell_completion_i,
    .doorbell_queue_i,
    .doorbell_value_i,
    .doorbell_bad_o,
    .read_valid_o,
    .read_entry_o,
    .read_queue_o,
    .read_ready_i,
    .read_address_o,
    .read_bytes_o,
    .data_valid_i,
    .data_ready_o,
    .data_i,
    .data_error_i,
    .write_valid_o,
    .write_entry_o,
    .write_command_o,
    .write_queue_o,
    .write_ready_i,
    .write_address_o,
    .write_data_o,
    .interrupt_valid_o,
    .interrupt_ready_i,
    .interrupt_vector_o,
    .interrupt_queue_o,
    .posted_o,
    .posted_command_o,
    .checked_o,
    .transfer_valid_o,
    .transfer_o,
    .extent_valid_o,
    .extent_index_o,
    .extent_o,
    .parameter_valid_o (parameter_valid),
    .parameter_bytes_o (parameter_bytes),
    .parameter_at_o    (parameter_at),
    .parameter_index_o (parameter_index),
    .parameter_o       (parameter_word),
    .look_command_i,
    .look_transfer_o,
    .bind_valid_o      (bind_valid),
    .bind_ready_i      (sound ? bind_ready_i : !unsound_q),
    .bind_command_o    (bind_command),
    .bound_valid_i     (bound_valid),
    .bound_ready_o     (bound_ready),
    .bound_command_i   (unsound_q ? unsound_command_q : bound_command_i),
    .bound_ok_i        (bound_ok_i && !unsound_q),
    .bound_flush_i,
    .bound_failure_i   (unsound_q ? unsound_failure_q : bound_failure_i),
    .unbind_valid_o,
    .unbind_ready_i,
    .unbind_command_o,
    .operation_valid_o (operation_valid),
    .operation_ready_i (operation_ready),
    .operation_o       (operation),
    .operation_command_o,
    .outcome_valid_i   (outcome_valid),
    .outcome_ready_o   (outcome_ready),
    .outcome_i         (outcome),
    .held_i,
    .released_valid_i,
    .released_ready_o,
    .released_row_i,
    .stop_valid_i,
    .stop_ready_o,
    .stop_queue_i,
    .stop_cid_i,
    .abort_valid_o,
    .abort_ready_i,
    .abort_id_o,
    .stale_o,
    // Its units are fixed.
    .load_valid_o       (load_valid),
    .load_ready_i       (1'b0),
    .load_unit_o        (load_unit),
    .load_pool_o        (load_pool),
    .digest_valid_o    (digest_valid),
    .digest_ready_i    (digest_ready),
    .digest_command_o  (digest_command),
    .digest_at_o       (digest_at),
    .digest_index_o    (digest_index),
    .digest_i          (digest),
    .idle_o,
    .quiet_o           (quiet),
    .timed_o,
    .short_o,
    .free_o
  );

  logic        units_read, units_read_ready, units_read_done, units_write, units_write_ready;
  word_at_t    units_read_at, units_write_at;
  block_word_t units_write_data;

  processing u_processing (
    .clk_i,
    .rst_ni,
    .checked_i         (checked_o),
    .transfer_valid_i  (transfer_valid_o),
    .transfer_i        (transfer_o),
    .parameter_valid_i (parameter_valid),
    .parameter_at_i    (parameter_at),
    .parameter_index_i (parameter_index),
    .parameter_i       (parameter_word),
    .bind_command_i    (bind_command),
    .sound_o           (sound),
    .failure_o         (unsound),
    .operation_valid_i (operation_valid && for_units),
    .operation_ready_o (units_ready),
    .operation_i       (operation),
    .outcome_valid_o   (units_tell),
    .outcome_ready_i   (units_heard),
    .outcome_o         (units_outcome),
    .read_valid_o      (units_read),
    .read_ready_i      (units_read_ready),
    .read_at_o         (units_read_at),
    .read_done_i       (units_read_done),
    .read_data_i       (block_read_data_o),
    .write_valid_o     (units_write),
    .write_ready_i     (units_write_ready),
    .write_at_o        (units_write_at),
    .write_data_o      (units_write_data),
    .digest_valid_i    (digest_valid),
    .digest_ready_o    (digest_ready),
    .digest_command_i  (digest_command),
    .digest_at_i       (digest_at),
    .digest_index_i    (digest_index),
    .digest_o          (digest),
    .quiet_o           (units_quiet)
  );

  block_memory #(
    .Readers (Readers + 1),
    .Writers (Writers + 1)
  ) u_block_memory (
    .clk_i,
    .rst_ni,
    .read_valid_i  ({block_read_valid_i, units_read}),
    .read_ready_o  ({block_read_ready_o, units_read_ready}),
    .read_at_i     ({block_read_at_i, units_read_at}),
    .read_done_o   ({block_read_done_o, units_read_done}),
    .read_data_o   (block_read_data_o),
    .write_valid_i ({block_write_valid_i, units_write}),
    .write_ready_o ({block_write_ready_o, units_write_ready}),
    .write_at_i    ({block_write_at_i, units_write_at}),
    .write_data_i  ({block_write_data_i, units_write_data}),
    .write_keep_i  ({block_write_keep_i, keep_t'('1)})
  );

endmodule
