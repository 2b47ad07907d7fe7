// Endpoints of commands: what their handles name, and to which device an operation goes.
//
// Each function has handles of its own. Software says what they name (`set_*`); commands that were
// bound before keep what they had. A command is bound when each of its ends has a handle of its
// function, of the right kind. Of an end at the NIC its path is told (`assign_*`), which takes what
// it is told before the first operation comes.
//
// An operation on memory or an SSD is checked against the handle's window, and fails if it is not
// inside; `address_o` is its place on the bus or the SSD, and `way_o` the bus: the card's own, then
// those of the functions' hosts. A flush of memory has nothing to do. The others go to their
// devices, by number: memory, the SSDs, the NIC's send path, its receive path.

module endpoints
  import card_pkg::*;
  import core_pkg::*;
  import dcs_pkg::*;
#(
  parameter int unsigned Ssds  = 2,
  parameter int unsigned Hosts = 2,

  localparam int unsigned Devices = Ssds + 3
) (
  input  logic               clk_i,
  input  logic               rst_ni,

  input  logic               set_valid_i,
  input  function_t          set_func_i,
  input  handle_t            set_handle_i,
  input  target_t            set_target_i,

  // See engine.
  input  logic               bind_valid_i,
  output logic               bind_ready_o,
  input  command_t           bind_command_i,
  output logic               bound_valid_o,
  input  logic               bound_ready_i,
  output command_t           bound_command_o,
  output logic               bound_ok_o,
  output failure_t           bound_failure_o,
  output command_t           look_command_o,
  input  transfer_t          look_transfer_i,
  // Its function.
  input  function_t          look_func_i,

  output logic               assign_valid_o,
  input  logic               assign_ready_i,
  output assignment_t        assign_o,

  input  logic               operation_valid_i,
  output logic               operation_ready_o,
  input  operation_t         operation_i,
  input  command_t           operation_command_i,
  output logic [Devices-1:0] device_valid_o,
  input  logic [Devices-1:0] device_ready_i,
  output address_t           address_o,
  output bus_pkg::way_t      way_o,
  // Of those that go to no device.
  output logic               outcome_valid_o,
  input  logic               outcome_ready_i,
  output outcome_t           outcome_o,

  input  logic               abort_valid_i,
  output logic               abort_ready_o,
  input  operation_id_t      abort_id_i,
  output logic [Devices-1:0] abort_device_valid_o,
  // With the operation's command.
  output operation_id_t      abort_id_o,
  input  logic [Devices-1:0] abort_device_ready_i
);

  localparam int unsigned DeviceWidth = $clog2(Devices);
  typedef logic [DeviceWidth-1:0] device_t;
  localparam device_t MemoryDevice = '0;
  localparam device_t SendDevice   = device_t'(Ssds + 1);
  localparam device_t ReceiveDevice = device_t'(Ssds + 2);

  // ---- What handles name ----

  typedef logic [$clog2(Hosts*Handles)-1:0] name_t;

  (* ram_style = "distributed" *)
  target_t                  table_q [Hosts*Handles];
  logic [Hosts*Handles-1:0] known_q;
  name_t                    set_name;

  assign set_name = name_t'({set_func_i, set_handle_i});

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) known_q <= '0;
    else if (set_valid_i) known_q[set_name] <= set_target_i.kind != NoTarget;
  end

  always_ff @(posedge clk_i) begin
    if (set_valid_i) table_q[set_name] <= set_target_i;
  end

  // ---- A command is bound, end by end ----

  typedef enum logic [2:0] {
    Idle,
    Look,
    Judge,
    Assign,
    Tell
  } state_e;

  state_e      state_q;
  role_e       role_q;
  command_t    command_q;
  transfer_t   transfer;
  target_t     target_q;
  end_t        target, flushed;
  name_t       name;
  logic        there_q, skip, fits, allowed, unused;
  logic [7:0]  kind;
  logic [31:0] handle;
  status_t     status;
  failure_t    failure_q;

  assign transfer       = look_transfer_i;
  assign look_command_o = command_q;
  assign name           = name_t'({look_func_i, handle_t'(handle)});
  assign skip           = role_q == Prefix && transfer.prefix == '0;
  assign unused         = ^{transfer, operation_i, abort_id_i, target, flushed};

  always_comb begin
    unique case (role_q)
      Source:      {kind, handle} = {transfer.source_kind, transfer.source_handle};
      Destination: {kind, handle} = {transfer.destination_kind, transfer.destination_handle};
      default:     {kind, handle} = {EndpointMemory, transfer.prefix_handle};
    endcase
    unique case (target_q.kind)
      MemoryTarget: fits = kind inside {EndpointMemory, EndpointDeviceMemory};
      SsdTarget:    fits = kind == EndpointBlock && 32'(target_q.number) < Ssds;
      default:      fits = kind == EndpointFlow && 32'(target_q.number) < nic_pkg::Connections;
    endcase
    allowed = role_q == Destination ? target_q.writable : target_q.readable;
    status  = '0;
    if (!there_q) status = StatusBadHandle;
    else if (!fits) status = StatusUnsupportedEndpoint;
    else if (!allowed) begin
      status = target_q.kind == MemoryTarget ? StatusDataTransferError : StatusUnsupportedEndpoint;
    end else if (role_q == Destination && transfer.acknowledged && target_q.kind != NicTarget) begin
      status = StatusPathUnavailable;
    end
  end

  // What the ends of each command name.
  (* ram_style = "distributed" *)
  end_t ends_q [4*Commands];

  always_ff @(posedge clk_i) begin
    if (state_q == Judge) begin
      ends_q[{role_q, command_q}] <= '{
        kind:   target_q.kind,
        number: target_q.number,
        way:    target_q.own ? '0 : bus_pkg::way_t'(look_func_i) + 1'b1,
        first:  target_q.first,
        most:   target_q.last - target_q.first
      };
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= Idle;
    end else begin
      unique case (state_q)
        Idle: if (bind_valid_i) state_q <= Look;
        Look: state_q <= skip ? Tell : Judge;
        Judge: begin
          if (status != '0) state_q <= Tell;
          else if (target_q.kind == NicTarget) state_q <= Assign;
          else state_q <= role_q == Prefix ? Tell : Look;
        end
        Assign:  if (assign_ready_i) state_q <= Look;
        default: if (bound_ready_i) state_q <= Idle;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    unique case (state_q)
      Idle: begin
        command_q <= bind_command_i;
        role_q    <= Source;
        failure_q <= '0;
      end
      Look: begin
        target_q <= table_q[name];
        there_q  <= handle < Handles && known_q[name];
      end
      Judge: begin
        if (status == '0 && target_q.kind != NicTarget) role_q <= role_e'(role_q + 1'b1);
        failure_q.status <= status;
        failure_q.stage  <= role_q == Destination ? StageDestination : StageSource;
      end
      Assign: if (assign_ready_i) role_q <= role_e'(role_q + 1'b1);
      default: ;
    endcase
  end

  assign bind_ready_o    = state_q == Idle;
  assign bound_valid_o   = state_q == Tell;
  assign bound_command_o = command_q;
  assign bound_ok_o      = failure_q.status == '0;
  assign bound_failure_o = failure_q;
  assign assign_valid_o  = state_q == Assign;
  assign assign_o        = '{
    writes: role_q == Destination, connection: target_q.number, command: command_q
  };

  // ---- An operation's device ----

  role_e    role;
  device_t  device, aborted;
  address_t place;
  logic     below, outside, refused, to_device, free, abort_waits;
  logic    refused_q;
  outcome_t refused_outcome_q;

  function automatic device_t device_of(target_e what, device_t number, logic reads);
    unique case (what)
      SsdTarget: return number + 1'b1;
      NicTarget: return reads ? ReceiveDevice : SendDevice;
      default:   return MemoryDevice;
    endcase
  endfunction

  assign role    = operation_i.kind != DoRead ? Destination : operation_i.prefix ? Prefix : Source;
  assign target  = ends_q[{role, operation_command_i}];
  assign device  = device_of(target.kind, device_t'(target.number), operation_i.kind == DoRead);
  // The place in what may be accessed; bytes behind the first one, without an overflow.
  assign {below, place} = target.kind == SsdTarget ? {1'b0, operation_i.offset}
                          : {1'b0, operation_i.offset} - {1'b0, target.first};
  assign outside   = below || place > target.most
                     || address_t'(operation_i.length) - 1'b1 > target.most - place;
  assign address_o = target.first + place;
  assign way_o     = target.way;
  assign refused = target.kind != NicTarget
                   && (operation_i.kind == DoFlush ? target.kind == MemoryTarget : outside);

  assign free              = !refused_q;
  assign to_device         = operation_valid_i && !refused;
  assign operation_ready_o = refused ? free : device_ready_i[device];

  for (genvar i = 0; i < Devices; i++) begin : gen_devices
    assign device_valid_o[i]       = to_device && device == device_t'(i);
    assign abort_device_valid_o[i] = abort_valid_i && !abort_waits && aborted == device_t'(i);
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) refused_q <= 1'b0;
    else refused_q <= refused_q ? !outcome_ready_i : operation_valid_i && refused;
  end

  always_ff @(posedge clk_i) begin
    if (!refused_q) begin
      refused_outcome_q      <= '0;
      refused_outcome_q.id   <= operation_i.id;
      refused_outcome_q.kind <= operation_i.kind == DoFlush ? Flushed : Failed;
      if (operation_i.kind != DoFlush) begin
        refused_outcome_q.status <= target.kind == SsdTarget ? StatusOutOfRange
                                    : StatusDataTransferError;
      end
    end
  end

  assign outcome_valid_o = refused_q;
  assign outcome_o       = refused_outcome_q;

  // ---- Aborts go where the operation went, and behind it; who doesn't have it ignores it ----

  typedef struct packed {
    device_t  device;
    command_t command;
  } went_t;

  went_t rows_q [Blocks];

  assign flushed = ends_q[{Destination, abort_id_i.command}];

  always_ff @(posedge clk_i) begin
    if (operation_valid_i && operation_ready_o && operation_i.kind != DoFlush) begin
      rows_q[operation_i.id.row] <= '{device: device, command: operation_command_i};
    end
  end

  // The operation has not been taken yet.
  assign abort_waits   = operation_valid_i && operation_i.id.blockless == abort_id_i.blockless
                         && (abort_id_i.blockless ? operation_command_i == abort_id_i.command
                             : operation_i.id.row == abort_id_i.row);
  assign aborted       = abort_id_i.blockless ? device_of(flushed.kind, device_t'(flushed.number),
                                                      1'b0)
                         : rows_q[abort_id_i.row].device;
  assign abort_ready_o = abort_device_ready_i[aborted] && !abort_waits;

  always_comb begin
    abort_id_o = abort_id_i;
    if (!abort_id_i.blockless) abort_id_o.command = rows_q[abort_id_i.row].command;
  end

endmodule
