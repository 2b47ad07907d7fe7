// The command set as the engine in SystemVerilog has it.
// Made from crates/abi by tools/abi-gen: `make generate`. Not to be edited.
// Byte 0 of a structure is in bits 7:0.

package dcs_pkg;

  // Whoever uses the package does not use all of it; fields have the names that they have in C.
  // verilator lint_off UNUSEDPARAM
  // verilator lint_off SYMRSVDWORD

  // ---- Version and limits ----

  // version of this command set, in every descriptor
  localparam int unsigned AbiVersion = 32'd2;
  // most operators in one chain [FlexCSV 4.3.1, op_chain]
  localparam int unsigned ChainMax = 32'd8;
  // most bytes of a descriptor, extents and parameters included
  localparam int unsigned DescriptorMax = 32'd65536;
  // bytes of the longest digest
  localparam int unsigned DigestMax = 32'd64;
  // longest window of a paced endpoint, microseconds
  localparam int unsigned WindowMax = 32'd10000000;

  // ---- Bytes of the structures ----

  // bytes of struct dcs_sqe
  localparam int unsigned SqeSize = 32'd64;
  // bytes of struct dcs_inline_sqe
  localparam int unsigned InlineSqeSize = 32'd64;
  // bytes of struct dcs_cqe
  localparam int unsigned CqeSize = 32'd16;
  // bytes of struct dcs_extent
  localparam int unsigned ExtentSize = 32'd16;
  // bytes of struct dcs_endpoint
  localparam int unsigned EndpointSize = 32'd32;
  // bytes of struct dcs_parameter
  localparam int unsigned ParameterSize = 32'd16;
  // bytes of struct dcs_descriptor
  localparam int unsigned DescriptorSize = 32'd256;
  // bytes of struct dcs_digest
  localparam int unsigned DigestSize = 32'd80;
  // bytes of struct dcs_stage_times
  localparam int unsigned StageTimesSize = 32'd32;
  // bytes of struct dcs_result
  localparam int unsigned ResultSize = 32'd1088;
  // bytes of struct dcs_admin_sqe
  localparam int unsigned AdminSqeSize = 32'd64;
  // bytes of struct dcs_admin_cqe
  localparam int unsigned AdminCqeSize = 32'd16;
  // bytes of struct dcs_ssd_identity
  localparam int unsigned SsdIdentitySize = 32'd64;
  // bytes of struct dcs_paced_sending
  localparam int unsigned PacedSendingSize = 32'd176;

  // ---- Opcodes ----

  // Transfer: source, operator chain, destination (struct dcs_sqe)
  localparam logic [7:0] OpcodeTransfer = 8'h81;
  // cancel a command of the same queue [NVMe I/O command 18h]: op_chain[0..2] = SQID,
  // op_chain[2..4] = CID (CDW10)
  localparam logic [7:0] OpcodeCancel = 8'h18;

  // ---- Opcodes of admin commands ----

  // delete a submission queue: CDW10 15:0 QID [NVMe 00h]
  localparam logic [7:0] AdminDeleteSq = 8'h00;
  // create a submission queue: CDW10 15:0 QID, 31:16 size (0's based); CDW11 bit 0 contiguous (must
  // be 1), 31:16 the CQ, which has the same number; CDW12 15:0 tenant, one of the function's own,
  // whose rids order commands; data_address: base [NVMe 01h; CDW12 is ours]
  localparam logic [7:0] AdminCreateSq = 8'h01;
  // delete a completion queue: CDW10 15:0 QID [NVMe 04h]
  localparam logic [7:0] AdminDeleteCq = 8'h04;
  // create a completion queue: CDW10 15:0 QID, 31:16 size (0's based); CDW11 bit 0 contiguous (must
  // be 1), bit 1 interrupts, 31:16 vector; data_address: base [NVMe 05h]
  localparam logic [7:0] AdminCreateCq = 8'h05;
  // abort a command: CDW10 15:0 SQID, 31:16 CID [NVMe 08h]
  localparam logic [7:0] AdminAbort = 8'h08;
  // memory that queues, descriptors, results and MEMORY endpoints may lie in: data_address,
  // CDW10-11 bytes, CDW12 DCS_GRANT_*; gives a handle
  localparam logic [7:0] AdminGrantMemory = 8'hc0;
  // let go of a handle: CDW10; a part that was lent is taken back; a connection that is open is
  // reset, datagrams that are not sent yet are not, but a media stream sends what it has taken, in
  // its time
  localparam logic [7:0] AdminRelease = 8'hc4;
  // drive an NVMe controller: data_address: its BAR0, CDW10 bytes of that, CDW11 namespace (0: the
  // first one); gives a handle, CDW1: bytes of a logical block
  localparam logic [7:0] AdminAttachSsd = 8'hc8;
  // drive a NIC: data_address: its BAR0, CDW10 bytes of that, CDW11 PCI device id, CDW12 IPv4
  // address, CDW13 7:0 prefix length, 31:16 MTU, CDW14 gateway (0: none); gives a handle
  localparam logic [7:0] AdminAttachNic = 8'hcc;
  // wait for TCP connections: CDW10 the NIC's handle, CDW11 port; gives a handle
  localparam logic [7:0] AdminListen = 8'hd0;
  // take a connection, when there is one: CDW10 the listener's handle; gives a handle, CDW1: the
  // peer's IPv4 address
  localparam logic [7:0] AdminAccept = 8'hd4;
  // make a TCP connection: CDW10 the NIC's handle, CDW11 IPv4 address, CDW12 port; gives a handle
  localparam logic [7:0] AdminConnect = 8'hd8;
  // end a connection's outgoing stream (FIN): CDW10 its handle
  localparam logic [7:0] AdminShutdown = 8'hdc;
  // open UDP datagrams between a port and a peer: CDW10 the NIC's handle, CDW11 the peer's IPv4
  // address, CDW12 15:0 its port, 31:16 the port here, CDW13 bytes of payload of each datagram that
  // is sent (0: as many as the MTU allows); gives a handle
  localparam logic [7:0] AdminDatagrams = 8'he0;
  // how many datagrams came when there was no room for them: CDW10 the datagrams' handle; gives
  // their number, modulo 2^32
  localparam logic [7:0] AdminDropped = 8'he4;
  // what an SSD says of itself: CDW10 its handle; data_address: where 64 bytes are written
  // (dcs_ssd_identity), in granted memory
  localparam logic [7:0] AdminIdentifySsd = 8'hea;
  // open a media stream to a host or a group, a PACED destination: CDW10 the NIC's handle, CDW11
  // the peer's IPv4 address, CDW12 15:0 its port, 31:16 bytes of payload of each datagram, CDW13
  // 7:0 hops of datagrams to a group, bit 8 RTP (a header before each payload, reports to the next
  // port), CDW14-15 where RTP's numbers begin; CDW6-7 nanoseconds since 1970; gives a handle
  localparam logic [7:0] AdminOpenPaced = 8'hec;
  // what a media stream has sent: CDW10 its handle; data_address: where 176 bytes are written
  // (dcs_paced_sending), in granted memory
  localparam logic [7:0] AdminPacedSending = 8'hf2;
  // let another function of the card use a part of an SSD: CDW10 the SSD's handle, CDW11 15:0 the
  // function, 31:16 DCS_GRANT_*, CDW12-13 first byte, CDW14-15 bytes (whole logical blocks);
  // function 0's alone; gives a handle, CDW1: the part's number there
  localparam logic [7:0] AdminLendSsd = 8'hf4;
  // open a part of an SSD that function 0 lends to this one: CDW10 its number, from 0; gives a
  // handle, which IDENTIFY_SSD takes too, CDW1: bytes of a logical block
  localparam logic [7:0] AdminOpenPart = 8'hf8;

  // ---- What memory is granted for ----

  // the engine may read it
  localparam int unsigned GrantRead = 32'd1;
  // the engine may write it
  localparam int unsigned GrantWrite = 32'd2;

  // ---- Flags of a submission entry ----

  // make the destination durable (fdatasync, NVMe Flush) before the completion
  localparam logic [15:0] FlagDurable = 16'h0001;
  // more data follow on the destination socket soon (MSG_MORE on the last block)
  localparam logic [15:0] FlagMore = 16'h0002;
  // complete when the TCP of the destination's peer has acknowledged every byte; without it, when
  // all are sent. Acknowledged is not read by the peer's application
  localparam logic [15:0] FlagAcknowledged = 16'h0004;
  // the entry has no descriptor: it is laid out as struct dcs_inline_sqe
  localparam logic [15:0] FlagInline = 16'h0008;

  // ---- Special lengths ----

  // until the source ends; for a source with extents, all of them
  localparam logic [63:0] LengthToEnd = 64'hffffffffffffffff;

  // ---- Operators ----

  // md5: MD5 (RFC 1321). Digest of 16 bytes. Parameter: none, or the value expected, as the digest
  // is told: the command fails with DIGEST_MISMATCH where it is another
  localparam logic [7:0] OpMd5 = 8'h01;
  // sha1: SHA-1 (FIPS 180-4). Digest of 20 bytes. Parameter: none, or the value expected, as the
  // digest is told: the command fails with DIGEST_MISMATCH where it is another
  localparam logic [7:0] OpSha1 = 8'h02;
  // sha256: SHA-256 (FIPS 180-4). Digest of 32 bytes. Parameter: none, or the value expected, as
  // the digest is told: the command fails with DIGEST_MISMATCH where it is another
  localparam logic [7:0] OpSha256 = 8'h03;
  // sha512: SHA-512 (FIPS 180-4). Digest of 64 bytes. Parameter: none, or the value expected, as
  // the digest is told: the command fails with DIGEST_MISMATCH where it is another
  localparam logic [7:0] OpSha512 = 8'h04;
  // crc32: CRC-32/ISO-HDLC, as in Ethernet and gzip (RFC 1952). Digest of 4 bytes. Parameter: none,
  // or the value expected, as the digest is told: the command fails with DIGEST_MISMATCH where it
  // is another
  localparam logic [7:0] OpCrc32 = 8'h08;
  // crc32c: CRC-32/ISCSI (RFC 3720 section 12.1). Digest of 4 bytes. Parameter: none, or the value
  // expected, as the digest is told: the command fails with DIGEST_MISMATCH where it is another
  localparam logic [7:0] OpCrc32c = 8'h09;
  // crc64-nvme: CRC-64/NVME (NVM Command Set Specification 1.1). Digest of 8 bytes. Parameter:
  // none, or the value expected, as the digest is told: the command fails with DIGEST_MISMATCH
  // where it is another
  localparam logic [7:0] OpCrc64Nvme = 8'h0a;
  // aes256-ctr: AES-256 in counter mode (SP 800-38A section 6.5); encryption and decryption are the
  // same. Same length. Parameter: key[32], counter[16] (the initial counter block, big-endian,
  // counted up over all 128 bits)
  localparam logic [7:0] OpAes256Ctr = 8'h10;
  // aes256-xts: AES-256 in XTS mode, encryption (IEEE 1619, SP 800-38E). Same length, whole units.
  // Parameter: key[64] (data key, then tweak key), unit_size u32 (bytes of a data unit: 16 to
  // 65536, a power of two), reserved u32, first_unit u64
  localparam logic [7:0] OpAes256Xts = 8'h12;
  // aes256-xts-decrypt: AES-256 in XTS mode, decryption (IEEE 1619, SP 800-38E). Same length, whole
  // units. Parameter: key[64] (data key, then tweak key), unit_size u32 (bytes of a data unit: 16
  // to 65536, a power of two), reserved u32, first_unit u64
  localparam logic [7:0] OpAes256XtsDecrypt = 8'h13;
  // blowfish-ctr: Blowfish (Schneier, 1993) in counter mode (SP 800-38A section 6.5); encryption
  // and decryption are the same. Same length. Parameter: counter[8] (the initial counter block,
  // big-endian, counted up over all 64 bits), key[4 to 56]
  localparam logic [7:0] OpBlowfishCtr = 8'h14;
  // gzip: gzip compression (RFC 1952), level 0 to 9, 1 where none is given. Other length.
  // Parameter: none, or level u8
  localparam logic [7:0] OpGzip = 8'h20;
  // gunzip: gzip decompression (RFC 1952), of one or more members. Other length. Parameter: none
  localparam logic [7:0] OpGunzip = 8'h21;
  // zstd: Zstandard compression (RFC 8878), level 1 to 19, 3 where none is given. Other length.
  // Parameter: none, or level u8
  localparam logic [7:0] OpZstd = 8'h22;
  // unzstd: Zstandard decompression (RFC 8878), of one or more frames. Other length. Parameter:
  // none
  localparam logic [7:0] OpUnzstd = 8'h23;
  // aws-chunked: takes off S3's aws-chunked framing and checks its signatures; its value is the
  // trailing checksum, decoded (Amazon S3 API Reference, SigV4 streaming). Other length. Parameter:
  // flags u8 (1: the chunks are signed; 2: trailers follow the last chunk), checksum u8 (the
  // operator whose checksum a trailer brings: CRC32, CRC32C, CRC64_NVME, SHA1 or SHA256; 0: none),
  // reserved[6], decoded_length u64; where signed also: signing_key[32], seed_signature[32],
  // timestamp[16] (YYYYMMDDTHHMMSSZ), scope[1 to 128] (YYYYMMDD/region/s3/aws4_request)
  localparam logic [7:0] OpAwsChunked = 8'h30;
  // slice: drops skip bytes, passes take bytes and drops what follows. Other length. Parameter:
  // skip u64, take u64
  localparam logic [7:0] OpSlice = 8'h31;
  // grep: lines that match a regular expression on bytes, or their number. Other length. Parameter:
  // flags u8 (1: letters match in either case; 2: lines that do not match; 4: the lines' number in
  // place of them), reserved[7], pattern[1 to 1016] (UTF-8; docs/operators.md says which
  // expressions)
  localparam logic [7:0] OpGrep = 8'h32;
  // filter: rows of comma-separated values (RFC 4180), or binary ones of a fixed width, whose field
  // compares so with a constant. Other length. Parameter: expression[1 to 1024] (UTF-8;
  // docs/operators.md has the syntax): price>100
  localparam logic [7:0] OpFilter = 8'h33;
  // aggregate: count, sum, least, most and mean of columns of comma-separated values (RFC 4180) or
  // of binary rows of a fixed width. Other length. Parameter: expression[1 to 1024] (UTF-8;
  // docs/operators.md has the syntax): sum(price)
  localparam logic [7:0] OpAggregate = 8'h34;
  // knn: the k rows nearest to a vector by squared Euclidean distance: index and distance of each.
  // Other length. Parameter: element u8 (0: u8; 1: f32, little-endian), reserved[3], k u32 (1 to
  // 65536), query[1 to 2048] (whole elements; a row of the data has as many)
  localparam logic [7:0] OpKnn = 8'h35;
  // bitmap: run-length compressed bitmaps (RoaringFormatSpec, 32 bits): decompresses one, or
  // combines several. Other length. Parameter: none, or operation u8 (0: decompress one bitmap; 1:
  // AND of all; 2: OR of all), result u8 (0: its bits; 1: their number)
  localparam logic [7:0] OpBitmap = 8'h36;
  // module: an operator of the user's own, in WebAssembly (docs/wasm.md); its value, if it tells
  // one, has up to 64 bytes. Other length. Parameter: module[32] (the SHA-256 of a module that was
  // loaded), parameter[0 to 1024] (what that module takes)
  localparam logic [7:0] OpModule = 8'h3f;
  // added to an operator's number: the engine's GPU does it (md5, sha256, crc32, crc32c,
  // aes256-ctr)
  localparam logic [7:0] OpOnGpu = 8'h80;

  // ---- Kinds of endpoint ----

  // no endpoint
  localparam logic [7:0] EndpointNone = 8'd0;
  // extents of a file, by file offset
  localparam logic [7:0] EndpointFile = 8'd1;
  // extents of a block device, by byte offset
  localparam logic [7:0] EndpointBlock = 8'd2;
  // a connected stream socket
  localparam logic [7:0] EndpointFlow = 8'd3;
  // host memory, by bus address
  localparam logic [7:0] EndpointMemory = 8'd4;
  // device memory [NVMe SLM memory range set]
  localparam logic [7:0] EndpointDeviceMemory = 8'd5;
  // an ordered stream without position: a pipe, a character device
  localparam logic [7:0] EndpointStream = 8'd6;
  // datagrams of a media stream: as a destination each is sent when it is due, as a source they are
  // put into their order
  localparam logic [7:0] EndpointPaced = 8'd7;

  // ---- What says when bytes are due ----

  // as fast as they can be sent; always so for a source
  localparam int unsigned PacingFree = 32'd0;
  // at a constant rate
  localparam int unsigned PacingConstant = 32'd1;
  // by the clock references of the MPEG transport stream that they are [ISO/IEC 13818-1, 2.4.3.5]
  localparam int unsigned PacingPcr = 32'd2;

  // ---- Whether a path is taken ----

  // the engine decides; the result says what it did
  localparam logic [7:0] ModeAuto = 8'd0;
  // must be taken
  localparam logic [7:0] ModeOn = 8'd1;
  // must not be taken
  localparam logic [7:0] ModeOff = 8'd2;

  // ---- Kinds of parameter ----

  // no parameters
  localparam int unsigned ParameterNone = 32'd0;
  // in the descriptor [FlexCSV direct_param]
  localparam int unsigned ParameterDirect = 32'd1;

  // ---- Statuses, 15 bits ----

  // all of it was done [NVMe generic 00h]
  localparam logic [14:0] StatusSuccess = 15'h0000;
  // the opcode is not one of this command set [NVMe generic 01h]
  localparam logic [14:0] StatusInvalidOpcode = 15'h4001;
  // a field of entry or descriptor has a value that is not allowed [NVMe generic 02h]
  localparam logic [14:0] StatusInvalidField = 15'h4002;
  // this command identifier is still in flight in this queue [NVMe generic 03h]
  localparam logic [14:0] StatusCommandIdConflict = 15'h4003;
  // the descriptor lies outside the registered memory or could not be fetched [NVMe generic 04h]
  localparam logic [14:0] StatusDataTransferError = 15'h4004;
  // the engine or a device broke a rule [NVMe generic 06h]
  localparam logic [14:0] StatusInternalError = 15'h0006;
  // the command was cancelled [NVMe generic 07h, Command Abort Requested]
  localparam logic [14:0] StatusCancelled = 15'h4007;
  // queue deleted or engine stopped first [NVMe generic 08h]
  localparam logic [14:0] StatusQueueDeleted = 15'h4008;
  // the range lies outside its file, device or memory [NVMe generic 80h, LBA Out of Range]
  localparam logic [14:0] StatusOutOfRange = 15'h4080;
  // the destination is full [NVMe generic 81h]
  localparam logic [14:0] StatusCapacityExceeded = 15'h4081;
  // the destination could not be written [NVMe media 80h, Write Fault]
  localparam logic [14:0] StatusWriteError = 15'h0280;
  // the source could not be read [NVMe media 81h, Unrecovered Read Error]
  localparam logic [14:0] StatusReadError = 15'h0281;
  // the descriptor is not open for this access [NVMe media 86h]
  localparam logic [14:0] StatusAccessDenied = 15'h4286;
  // a number in the chain is no operator of this engine
  localparam logic [14:0] StatusUnknownOperator = 15'h4701;
  // an operator's parameters have the wrong length or value
  localparam logic [14:0] StatusBadParameter = 15'h4702;
  // the handle or file descriptor is not open
  localparam logic [14:0] StatusBadHandle = 15'h4703;
  // this kind of endpoint cannot be driven, or not in this direction
  localparam logic [14:0] StatusUnsupportedEndpoint = 15'h4704;
  // the source ended before the length that was asked for
  localparam logic [14:0] StatusEndOfSource = 15'h0705;
  // the peer reset or closed the connection
  localparam logic [14:0] StatusPeerReset = 15'h0706;
  // the data are not what the operator takes
  localparam logic [14:0] StatusCorruptData = 15'h4707;
  // the data ended inside a unit that the operator needs whole
  localparam logic [14:0] StatusTruncatedData = 15'h4708;
  // the engine was made too small for this command
  localparam logic [14:0] StatusOutOfResources = 15'h4709;
  // the device was reset or removed meanwhile
  localparam logic [14:0] StatusDeviceReset = 15'h070a;
  // the time given ran out
  localparam logic [14:0] StatusTimeout = 15'h070b;
  // the requested path is not available here
  localparam logic [14:0] StatusPathUnavailable = 15'h470d;
  // the framing around the data breaks its rules, or its lengths do not add up
  localparam logic [14:0] StatusFramingError = 15'h470e;
  // a signature in the data is not the one that the data and the key give
  localparam logic [14:0] StatusSignatureMismatch = 15'h470f;
  // a digest of the data is not the expected one
  localparam logic [14:0] StatusDigestMismatch = 15'h4710;
  // the destination overlaps the source: bytes that are still to be read would be overwritten
  localparam logic [14:0] StatusOverlap = 15'h4711;
  // the module stopped by a trap: it reached what is unreachable, left its memory or divided by
  // zero
  localparam logic [14:0] StatusModuleTrap = 15'h4712;
  // the module ran for longer than it may for its data
  localparam logic [14:0] StatusModuleFuel = 15'h4713;
  // the module asked for more memory than it may have
  localparam logic [14:0] StatusModuleMemory = 15'h4714;
  // the module gave an answer that breaks the rules of modules
  localparam logic [14:0] StatusModuleAnswer = 15'h4715;

  // ---- Stages that can fail ----

  // no stage: the command did not fail
  localparam logic [7:0] StageNone = 8'd0;
  // fetching, checking, binding to devices
  localparam logic [7:0] StageFrontend = 8'd1;
  // waiting for its turn, for a slot, or for an earlier command of the same rid
  localparam logic [7:0] StageQueue = 8'd2;
  // the source device
  localparam logic [7:0] StageSource = 8'd3;
  // an operator of the chain; stage_index says which
  localparam logic [7:0] StageOperator = 8'd4;
  // the destination device
  localparam logic [7:0] StageDestination = 8'd5;

  // ---- Places in dcs_result.stages ----

  // the source's times
  localparam int unsigned SlotSource = 32'd0;
  // the destination's times
  localparam int unsigned SlotDestination = 32'd1;
  // the first operator's times; the others follow
  localparam int unsigned SlotOperators = 32'd2;

  // ---- Paths that bytes took ----

  // source bytes came through the page cache
  localparam logic [31:0] PathSourceCached = 32'h00000001;
  // source bytes were read with O_DIRECT
  localparam logic [31:0] PathSourceDirect = 32'h00000002;
  // bytes were written through the page cache
  localparam logic [31:0] PathDestinationCached = 32'h00000004;
  // bytes were written with O_DIRECT
  localparam logic [31:0] PathDestinationDirect = 32'h00000008;
  // the kernel moved the bytes itself (sendfile, splice, copy_file_range)
  localparam logic [31:0] PathKernelCopy = 32'h00000010;
  // bytes were sent without a copy into socket buffers
  localparam logic [31:0] PathZeroCopy = 32'h00000020;
  // io_uring carried at least one operation
  localparam logic [31:0] PathIoUring = 32'h00000040;
  // plain system calls carried at least one operation
  localparam logic [31:0] PathSyscall = 32'h00000080;
  // bytes went device to device over the bus
  localparam logic [31:0] PathPeerToPeer = 32'h00000100;
  // a controller was driven from user space, past the kernel's driver
  localparam logic [31:0] PathVfio = 32'h00000200;
  // a GPU did an operator of the chain
  localparam logic [31:0] PathGpu = 32'h00000400;
  // source bytes were read into a GPU's memory, by GPUDirect Storage
  localparam logic [31:0] PathGpuStorage = 32'h00000800;
  // a virtual drive ran the chain beside its disk
  localparam logic [31:0] PathNearStorage = 32'h00001000;

  // ---- Parts of BAR0 ----

  // where the engine's own registers start
  localparam logic [15:0] EngineBlock = 16'h0f00;
  // where doorbells start [NVMe over PCIe Transport 1.1 3.1.2]
  localparam logic [15:0] DoorbellBase = 16'h1000;

  // ---- Registers, by offset in BAR0 ----

  // controller capabilities: MQES 15:0, CQR 16, TO 31:24, DSTRD 35:32, CSS 44:37, MPSMIN 51:48,
  // MPSMAX 55:52 [NVMe CAP]
  localparam logic [15:0] RegCap = 16'h0000;
  // version, 0x00020100 [NVMe VS]
  localparam logic [15:0] RegVs = 16'h0008;
  // interrupt mask set [NVMe INTMS]
  localparam logic [15:0] RegIntms = 16'h000c;
  // interrupt mask clear [NVMe INTMC]
  localparam logic [15:0] RegIntmc = 16'h0010;
  // controller configuration: EN 0, CSS 6:4, MPS 10:7, AMS 13:11, SHN 15:14, IOSQES 19:16 (6: 64
  // bytes), IOCQES 23:20 (4: 16 bytes) [NVMe CC]
  localparam logic [15:0] RegCc = 16'h0014;
  // controller status: RDY 0, CFS 1, SHST 3:2 [NVMe CSTS]
  localparam logic [15:0] RegCsts = 16'h001c;
  // admin queue attributes: ASQS 11:0, ACQS 27:16, zero-based [NVMe AQA]
  localparam logic [15:0] RegAqa = 16'h0024;
  // admin submission queue base address [NVMe ASQ]
  localparam logic [15:0] RegAsq = 16'h0028;
  // admin completion queue base address [NVMe ACQ]
  localparam logic [15:0] RegAcq = 16'h0030;
  // 0x44435331: the ASCII letters 'DCS1', most significant first
  localparam logic [15:0] RegEngineId = 16'h0f00;
  // version of this command set, DCS_ABI_VERSION
  localparam logic [15:0] RegEngineAbi = 16'h0f04;
  // bytes of a block buffer
  localparam logic [15:0] RegEngineBlockSize = 16'h0f08;
  // block buffers in all (the credits of the D2D protocol's Rx Base Credit)
  localparam logic [15:0] RegEngineBlocks = 16'h0f0c;
  // block buffers that are free now
  localparam logic [15:0] RegEngineBlocksFree = 16'h0f10;
  // commands that may be active at once
  localparam logic [15:0] RegEngineCommands = 16'h0f14;
  // scoreboard entries: in use 15:0, in all 31:16
  localparam logic [15:0] RegEngineScoreboard = 16'h0f18;
  // bit n: operator number n (below 64) is there
  localparam logic [15:0] RegEngineOperators = 16'h0f20;

  // Submission queue entry: one command. Shaped as an NVMe common command (NVMe Base 2.1, Common
  // Command Format); FlexCSV (section 4.3.1) names op_chain and rid.
  typedef struct packed {
    // Reserved, zero.
    logic [1:0][7:0] reserved_62;
    // DCS_FLAG_*. [CDW15 bits 15:0]
    logic [15:0] flags;
    // Milliseconds after which the command fails with TIMEOUT; 0: never. [CDW14]
    logic [31:0] timeout_ms;
    // Bytes to move, those of the prefix included, or DCS_LENGTH_TO_END: until the source ends or,
    // where it has extents, all of them. [CDW12-13]
    logic [63:0] length;
    // The operator chain in the order in which data pass, DCS_OP_*; 0 ends it. [CDW10-11; FlexCSV
    // op_chain]
    logic [7:0][7:0] op_chain;
    // Reserved, zero.
    logic [7:0][7:0] reserved_32;
    // Bus address of the descriptor. [NVMe DPTR, PRP entry 1]
    logic [63:0] descriptor_address;
    // Bus address of the result area, DCS_RESULT_SIZE bytes; 0: none wanted. [NVMe MPTR]
    logic [63:0] result_address;
    // Bytes of the descriptor. [CDW3]
    logic [31:0] descriptor_length;
    // Request id: a command does not start before the earlier ones of this tenant with the same rid
    // are finished; 0: no such order. [CDW2; FlexCSV request_id]
    logic [31:0] rid;
    // Namespace: 0 for the engine itself. [NVMe NSID]
    logic [31:0] nsid;
    // Command identifier, the submitter's choice, unique among the commands in flight of this
    // queue. [NVMe CDW0 bits 31:16]
    logic [15:0] cid;
    // Zero. [NVMe CDW0 bits 15:8: no fused commands, PRPs]
    logic [7:0] nvme_flags;
    // Opcode: DCS_OPCODE_*. [NVMe CDW0 bits 7:0]
    logic [7:0] opcode;
  } sqe_t;

  // Submission queue entry of a transfer with DCS_FLAG_INLINE: it has no descriptor. What it has in
  // common with struct dcs_sqe is in the same place and means the same.
  typedef struct packed {
    // DCS_MODE_*: bits 1:0 the source's page cache, 3:2 its zero copy, 5:4 and 7:6 the
    // destination's; bit 8: the source is immutable. Others zero. See struct dcs_endpoint.
    logic [15:0] modes;
    // DCS_FLAG_*, DCS_FLAG_INLINE among them.
    logic [15:0] flags;
    // Milliseconds after which the command fails with TIMEOUT; 0: never.
    logic [31:0] timeout_ms;
    // Bytes to move; DCS_LENGTH_TO_END where neither end needs to know.
    logic [63:0] length;
    // Handle of the destination.
    logic [31:0] destination_handle;
    // DCS_ENDPOINT_* of the destination; likewise.
    logic [7:0] destination_kind;
    // DCS_ENDPOINT_* of the source; neither NONE nor PACED.
    logic [7:0] source_kind;
    // The operator chain: two operators that take no parameters; 0 ends it.
    logic [1:0][7:0] op_chain;
    // First byte at the destination, of the same kinds: from there on a FILE goes as far as it can,
    // the others for `length` bytes. Else 0.
    logic [63:0] destination_offset;
    // First byte at the source, of FILE, BLOCK, MEMORY and DEVICE_MEMORY: from there on it has
    // `length` bytes. Else 0.
    logic [63:0] source_offset;
    // Bus address of the result area; 0: none wanted.
    logic [63:0] result_address;
    // Handle of the source.
    logic [31:0] source_handle;
    // Request id.
    logic [31:0] rid;
    // Zero.
    logic [31:0] nsid;
    // Command identifier.
    logic [15:0] cid;
    // Zero.
    logic [7:0] nvme_flags;
    // DCS_OPCODE_TRANSFER.
    logic [7:0] opcode;
  } inline_sqe_t;

  // Completion queue entry. Shaped as NVMe's (NVMe Base 2.1, Common Completion Queue Entry Layout);
  // DW0 and DW1 say how far the command came, success or not.
  typedef struct packed {
    // Bit 0: phase, inverted each time the queue wraps. Bits 15:1: status, DCS_STATUS_*. [DW3 bits
    // 31:16]
    logic [15:0] status;
    // Command identifier. [DW3 bits 15:0]
    logic [15:0] cid;
    // Submission queue of the command. [DW2 bits 31:16]
    logic [15:0] sq_id;
    // Submission queue head: entries before it may be reused. [DW2 bits 15:0]
    logic [15:0] sq_head;
    // Which operator of the chain failed, where stage is OPERATOR. [DW1 bits 31:24]
    logic [7:0] stage_index;
    // Stage that failed, DCS_STAGE_*; 0 on success. [DW1 bits 23:16]
    logic [7:0] stage;
    // Bytes that the destination took, in order, from the first one; at most 2^48 - 1. Cancel:
    // commands aborted later in bits 31:16, at once in bits 15:0. [DW0-1 bits 47:0; NVMe Cancel
    // DW0]
    logic [47:0] delivered;
  } cqe_t;

  // A run of bytes of a file, a block device or memory.
  typedef struct packed {
    // Bytes. Where offset and length of a FILE's last extent come to 2^63 - 1, it goes on until the
    // file gives no more: that is how a file is read that does not tell its size.
    logic [63:0] length;
    // First byte: file offset, device offset (LBA times block size) or bus address.
    logic [63:0] offset;
  } extent_t;

  // Where bytes come from or go to.
  typedef struct packed {
    // Reserved, zero.
    logic [2:0][7:0] reserved_29;
    // DCS_PACING_*: what says when the bytes of a PACED destination are due; else 0.
    logic [7:0] pacing;
    // Microseconds, at most DCS_WINDOW_MAX. PACED as a destination: datagrams that are due within
    // this time go together. As a source: a missing datagram is waited for so long. Else 0.
    logic [31:0] window_us;
    // Bits a second, without the headers of datagrams, where pacing is CONSTANT; else 0.
    logic [63:0] rate;
    // Number of extents; at least 1 where there is an endpoint that has extents, 0 for FLOW, STREAM
    // and PACED.
    logic [31:0] extents_count;
    // Offset in the descriptor of the first struct dcs_extent; FILE, BLOCK, MEMORY and
    // DEVICE_MEMORY.
    logic [31:0] extents_offset;
    // Handle that the session was given for the file, device, socket or memory.
    logic [31:0] handle;
    // 1: nobody writes to it before the reader at the destination has read what is sent, so that
    // pages of the page cache may be lent out. The transfer's end does not end the promise. A
    // source's; else 0.
    logic [7:0] immutable;
    // Zero copy and peer-to-peer: DCS_MODE_AUTO, _ON or _OFF.
    logic [7:0] zero_copy;
    // Page cache: DCS_MODE_AUTO, _ON (through the page cache) or _OFF (O_DIRECT).
    logic [7:0] cache;
    // DCS_ENDPOINT_*.
    logic [7:0] kind;
  } endpoint_t;

  // Where an operator's parameter block is. [FlexCSV direct_param and file_param]
  typedef struct packed {
    // Offset in the descriptor.
    logic [63:0] offset;
    // In bytes.
    logic [31:0] length;
    // DCS_PARAMETER_*: none, direct (in the descriptor).
    logic [31:0] kind;
  } parameter_t;

  // Header of a descriptor.
  typedef struct packed {
    // Reserved, zero.
    logic [15:0][7:0] reserved_240;
    // Parameters of the operator at the same place of the chain.
    parameter_t [7:0] parameters;
    // Where they go.
    endpoint_t destination;
    // Where the bytes come from.
    endpoint_t source;
    // Bytes that come before the source's, kind MEMORY or NONE: what the caller had already read
    // off a socket.
    endpoint_t prefix;
    // Reserved, zero.
    logic [7:0][7:0] reserved_8;
    // Bytes of header, extents and parameters together.
    logic [31:0] total_length;
    // Bytes of this header, 256.
    logic [15:0] header_length;
    // DCS_ABI_VERSION.
    logic [15:0] version;
  } descriptor_t;

  // The value of one digest operator, or what another operator found in the data.
  typedef struct packed {
    // The value; CRCs most significant byte first.
    logic [63:0][7:0] value;
    // Bytes that went into the digest, or that came out of another operator: after a failure it may
    // be more than was delivered.
    logic [63:0] covered;
    // Reserved, zero.
    logic [5:0][7:0] reserved_2;
    // Bytes of the value.
    logic [7:0] size;
    // The operator, DCS_OP_*; 0: this place of the chain tells no value.
    logic [7:0] operator;
  } digest_t;

  // Times of one stage, in nanoseconds of the engine's clock.
  typedef struct packed {
    // Device operations.
    logic [63:0] operations;
    // Sum of the times from issue to done of all its operations.
    logic [63:0] busy;
    // When its last device operation was done.
    logic [63:0] last_done;
    // When its first device operation was issued; 0: never.
    logic [63:0] first_issue;
  } stage_times_t;

  // Result area.
  typedef struct packed {
    // Reserved, zero.
    logic [63:0][7:0] reserved_1024;
    // Digests, at the place of their operator in the chain.
    digest_t [7:0] digests;
    // Times: source, destination, then each operator of the chain.
    stage_times_t [9:0] stages;
    // Reserved, zero.
    logic [7:0][7:0] reserved_56;
    // When it was finished.
    logic [63:0] finished;
    // When the command was let start.
    logic [63:0] started;
    // When the entry was fetched, nanoseconds of the engine's clock.
    logic [63:0] queued;
    // Bytes the destination took, in order, from the first one.
    logic [63:0] bytes_out;
    // Bytes read from prefix and source.
    logic [63:0] bytes_in;
    // Reserved, zero.
    logic [3:0][7:0] reserved_12;
    // DCS_PATH_*: which paths the bytes took.
    logic [31:0] path;
    // errno of the system call that failed, 0 where there is none.
    logic [31:0] errno;
    // Which operator failed, where stage is OPERATOR.
    logic [7:0] stage_index;
    // Stage that failed, DCS_STAGE_*.
    logic [7:0] stage;
    // The status again: bits 14:0 as in the completion entry's bits 15:1.
    logic [15:0] status;
  } result_t;

  // Admin submission entry. Shaped as an NVMe common command (NVMe Base 2.1, Common Command
  // Format).
  typedef struct packed {
    // Arguments: see each command. [NVMe CDW10 to CDW15]
    logic [5:0][31:0] words;
    // Reserved, zero.
    logic [7:0][7:0] reserved_32;
    // Bus address of the data buffer, where the command has one. [NVMe DPTR, PRP entry 1]
    logic [63:0] data_address;
    // Reserved, zero.
    logic [19:0][7:0] reserved_4;
    // Command identifier, the submitter's choice, unique among the admin commands in flight. [NVMe
    // CDW0 bits 31:16]
    logic [15:0] cid;
    // Reserved, zero.
    logic [7:0] reserved_1;
    // Opcode: DCS_ADMIN_*. [NVMe CDW0 bits 7:0]
    logic [7:0] opcode;
  } admin_sqe_t;

  // Admin completion entry. Shaped as NVMe's (NVMe Base 2.1, Common Completion Queue Entry Layout).
  typedef struct packed {
    // Bit 0: phase. Bits 15:1: status, DCS_STATUS_*. [DW3 bits 31:16]
    logic [15:0] status;
    // Command identifier. [DW3 bits 15:0]
    logic [15:0] cid;
    // Submission queue of the command: 0. [DW2 bits 31:16]
    logic [15:0] sq_id;
    // Submission queue head: entries before it may be reused. [DW2 bits 15:0]
    logic [15:0] sq_head;
    // More of it: see each. [DW1]
    logic [31:0] extra;
    // Result of the command: a handle, most of the time. [DW0]
    logic [31:0] value;
  } admin_cqe_t;

  // Identity of an SSD and of the namespace that the engine drives.
  typedef struct packed {
    // Reserved, zero.
    logic [3:0][7:0] reserved_60;
    // The controller's serial number, padded with spaces. [NVMe Identify Controller, SN]
    logic [19:0][7:0] serial;
    // Logical blocks.
    logic [63:0] blocks;
    // Bytes of a logical block.
    logic [31:0] block_size;
    // Number of the namespace.
    logic [31:0] nsid;
    // IEEE extended unique identifier; zeros: none. [NVMe Identify Namespace, EUI64]
    logic [7:0][7:0] eui64;
    // Namespace globally unique identifier; zeros: none. [NVMe Identify Namespace, NGUID]
    logic [15:0][7:0] nguid;
  } ssd_identity_t;

  // What a media stream has sent.
  typedef struct packed {
    // Reserved, zero.
    logic [3:0][7:0] reserved_172;
    // errno (Linux) for which the last one was lost; 0: none was.
    logic [31:0] errno;
    // Datagrams by their deviation: at most 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 100, 250 ms,
    // and more.
    logic [11:0][63:0] deviations;
    // Largest deviation from the due time, in nanoseconds.
    logic [63:0] worst;
    // Bytes left out, which are no packets of a transport stream.
    logic [63:0] skipped;
    // Clock references (PCR) that jumped without a mark.
    logic [63:0] jumps;
    // Nanoseconds that it was put off by, in total.
    logic [63:0] slipped;
    // Times that all that followed was put off, since bytes came too late.
    logic [63:0] slips;
    // Datagrams that were not sent: there was no link, or no way to the peer.
    logic [63:0] lost;
    // Datagrams that were sent more than 5 ms after their time.
    logic [63:0] late;
    // Bytes of their payload.
    logic [63:0] bytes;
    // Datagrams that were sent.
    logic [63:0] datagrams;
  } paced_sending_t;

  // verilator lint_on UNUSEDPARAM
  // verilator lint_on SYMRSVDWORD

endpackage
