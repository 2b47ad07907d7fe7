/*
 * dcs.h - commands that move bytes from device to device, with operators in between.
 *
 * One command says where bytes are, what happens to them on the way, and where they go:
 *
 *     file -> md5, aes256-ctr -> socket
 *
 * An engine runs it and answers with one completion: status, bytes delivered, digests, times.
 * The first part of this file is the command set, byte for byte as it lies in memory (docs/abi.md
 * explains it); it needs no library. The functions behind it are in libdcs:
 *
 *     const struct dcs_op through[] = {{.op = DCS_OP_MD5}};
 *     struct dcs_engine *engine;
 *     struct dcs_session *session;
 *     struct dcs_completion done;
 *     char md5[33];
 *
 *     if (dcs_engine_start(NULL, &engine) == 0 && dcs_session_open(engine, 0, &session) == 0) {
 *         if (dcs_sendfile(session, socket, file, NULL, SIZE_MAX, through, 1, &done) >= 0) {
 *             dcs_digest_text(&done.result.digests[0], md5, sizeof md5);
 *         }
 *         dcs_session_close(session);
 *     }
 *
 *     cc program.c $(pkg-config --cflags --libs dcs)
 *
 * Functions return -1 and set errno where something is wrong; what became of a transfer, failed or
 * not, is in its struct dcs_completion. Whole programs are in examples/c.
 *
 * All integers are little-endian. Bytes named reserved_NN are zero; an engine refuses others.
 *
 * Generated. Do not edit: change the tables in crates/abi, then run `cargo run -p dcs-abi-gen`.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef DCS_H
#define DCS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "dcs.h: the structures are little-endian and this machine is not"
#endif

#ifdef __cplusplus
#define DCS_STATIC_ASSERT(condition, what) static_assert(condition, what)
extern "C" {
#else
#define DCS_STATIC_ASSERT(condition, what) _Static_assert(condition, what)
#endif

/* ---- Version and limits ---- */

/** version of this command set, in every descriptor */
#define DCS_ABI_VERSION 2
/** most operators in one chain [FlexCSV 4.3.1, op_chain] */
#define DCS_CHAIN_MAX 8
/** most bytes of a descriptor, extents and parameters included */
#define DCS_DESCRIPTOR_MAX 65536
/** bytes of the longest digest */
#define DCS_DIGEST_MAX 64
/** longest window of a paced endpoint, microseconds */
#define DCS_WINDOW_MAX 10000000

/* ---- Bytes of the structures ---- */

/** bytes of struct dcs_sqe */
#define DCS_SQE_SIZE 64
/** bytes of struct dcs_inline_sqe */
#define DCS_INLINE_SQE_SIZE 64
/** bytes of struct dcs_cqe */
#define DCS_CQE_SIZE 16
/** bytes of struct dcs_extent */
#define DCS_EXTENT_SIZE 16
/** bytes of struct dcs_endpoint */
#define DCS_ENDPOINT_SIZE 32
/** bytes of struct dcs_parameter */
#define DCS_PARAMETER_SIZE 16
/** bytes of struct dcs_descriptor */
#define DCS_DESCRIPTOR_SIZE 256
/** bytes of struct dcs_digest */
#define DCS_DIGEST_SIZE 80
/** bytes of struct dcs_stage_times */
#define DCS_STAGE_TIMES_SIZE 32
/** bytes of struct dcs_result */
#define DCS_RESULT_SIZE 1088
/** bytes of struct dcs_admin_sqe */
#define DCS_ADMIN_SQE_SIZE 64
/** bytes of struct dcs_admin_cqe */
#define DCS_ADMIN_CQE_SIZE 16
/** bytes of struct dcs_ssd_identity */
#define DCS_SSD_IDENTITY_SIZE 64
/** bytes of struct dcs_paced_sending */
#define DCS_PACED_SENDING_SIZE 176

/* ---- Opcodes ---- */

/** Transfer: source, operator chain, destination (struct dcs_sqe) */
#define DCS_OPCODE_TRANSFER 0x81u
/**
 * cancel a command of the same queue [NVMe I/O command 18h]: op_chain[0..2] = SQID, op_chain[2..4]
 * = CID (CDW10)
 */
#define DCS_OPCODE_CANCEL 0x18u

/* ---- Opcodes of admin commands ---- */

/** delete a submission queue: CDW10 15:0 QID [NVMe 00h] */
#define DCS_ADMIN_DELETE_SQ 0x00u
/**
 * create a submission queue: CDW10 15:0 QID, 31:16 size (0's based); CDW11 bit 0 contiguous (must
 * be 1), 31:16 the CQ, which has the same number; CDW12 15:0 tenant, one of the function's own,
 * whose rids order commands; data_address: base [NVMe 01h; CDW12 is ours]
 */
#define DCS_ADMIN_CREATE_SQ 0x01u
/** delete a completion queue: CDW10 15:0 QID [NVMe 04h] */
#define DCS_ADMIN_DELETE_CQ 0x04u
/**
 * create a completion queue: CDW10 15:0 QID, 31:16 size (0's based); CDW11 bit 0 contiguous (must
 * be 1), bit 1 interrupts, 31:16 vector; data_address: base [NVMe 05h]
 */
#define DCS_ADMIN_CREATE_CQ 0x05u
/** abort a command: CDW10 15:0 SQID, 31:16 CID [NVMe 08h] */
#define DCS_ADMIN_ABORT 0x08u
/**
 * memory that queues, descriptors, results and MEMORY endpoints may lie in: data_address, CDW10-11
 * bytes, CDW12 DCS_GRANT_*; gives a handle
 */
#define DCS_ADMIN_GRANT_MEMORY 0xc0u
/**
 * let go of a handle: CDW10; a part that was lent is taken back; a connection that is open is
 * reset, datagrams that are not sent yet are not, but a media stream sends what it has taken, in
 * its time
 */
#define DCS_ADMIN_RELEASE 0xc4u
/**
 * drive an NVMe controller: data_address: its BAR0, CDW10 bytes of that, CDW11 namespace (0: the
 * first one); gives a handle, CDW1: bytes of a logical block
 */
#define DCS_ADMIN_ATTACH_SSD 0xc8u
/**
 * drive a NIC: data_address: its BAR0, CDW10 bytes of that, CDW11 PCI device id, CDW12 IPv4
 * address, CDW13 7:0 prefix length, 31:16 MTU, CDW14 gateway (0: none); gives a handle
 */
#define DCS_ADMIN_ATTACH_NIC 0xccu
/** wait for TCP connections: CDW10 the NIC's handle, CDW11 port; gives a handle */
#define DCS_ADMIN_LISTEN 0xd0u
/**
 * take a connection, when there is one: CDW10 the listener's handle; gives a handle, CDW1: the
 * peer's IPv4 address
 */
#define DCS_ADMIN_ACCEPT 0xd4u
/**
 * make a TCP connection: CDW10 the NIC's handle, CDW11 IPv4 address, CDW12 port; gives a handle
 */
#define DCS_ADMIN_CONNECT 0xd8u
/** end a connection's outgoing stream (FIN): CDW10 its handle */
#define DCS_ADMIN_SHUTDOWN 0xdcu
/**
 * open UDP datagrams between a port and a peer: CDW10 the NIC's handle, CDW11 the peer's IPv4
 * address, CDW12 15:0 its port, 31:16 the port here, CDW13 bytes of payload of each datagram that
 * is sent (0: as many as the MTU allows); gives a handle
 */
#define DCS_ADMIN_DATAGRAMS 0xe0u
/**
 * how many datagrams came when there was no room for them: CDW10 the datagrams' handle; gives their
 * number, modulo 2^32
 */
#define DCS_ADMIN_DROPPED 0xe4u
/**
 * what an SSD says of itself: CDW10 its handle; data_address: where 64 bytes are written
 * (dcs_ssd_identity), in granted memory
 */
#define DCS_ADMIN_IDENTIFY_SSD 0xeau
/**
 * open a media stream to a host or a group, a PACED destination: CDW10 the NIC's handle, CDW11 the
 * peer's IPv4 address, CDW12 15:0 its port, 31:16 bytes of payload of each datagram, CDW13 7:0 hops
 * of datagrams to a group, bit 8 RTP (a header before each payload, reports to the next port),
 * CDW14-15 where RTP's numbers begin; CDW6-7 nanoseconds since 1970; gives a handle
 */
#define DCS_ADMIN_OPEN_PACED 0xecu
/**
 * what a media stream has sent: CDW10 its handle; data_address: where 176 bytes are written
 * (dcs_paced_sending), in granted memory
 */
#define DCS_ADMIN_PACED_SENDING 0xf2u
/**
 * let another function of the card use a part of an SSD: CDW10 the SSD's handle, CDW11 15:0 the
 * function, 31:16 DCS_GRANT_*, CDW12-13 first byte, CDW14-15 bytes (whole logical blocks); function
 * 0's alone; gives a handle, CDW1: the part's number there
 */
#define DCS_ADMIN_LEND_SSD 0xf4u
/**
 * open a part of an SSD that function 0 lends to this one: CDW10 its number, from 0; gives a
 * handle, which IDENTIFY_SSD takes too, CDW1: bytes of a logical block
 */
#define DCS_ADMIN_OPEN_PART 0xf8u

/* ---- What memory is granted for ---- */

/** the engine may read it */
#define DCS_GRANT_READ 1
/** the engine may write it */
#define DCS_GRANT_WRITE 2

/* ---- Flags of a submission entry ---- */

/** make the destination durable (fdatasync, NVMe Flush) before the completion */
#define DCS_FLAG_DURABLE 0x0001u
/** more data follow on the destination socket soon (MSG_MORE on the last block) */
#define DCS_FLAG_MORE 0x0002u
/**
 * complete when the TCP of the destination's peer has acknowledged every byte; without it, when all
 * are sent. Acknowledged is not read by the peer's application
 */
#define DCS_FLAG_ACKNOWLEDGED 0x0004u
/** the entry has no descriptor: it is laid out as struct dcs_inline_sqe */
#define DCS_FLAG_INLINE 0x0008u

/* ---- Special lengths ---- */

/** until the source ends; for a source with extents, all of them */
#define DCS_LENGTH_TO_END UINT64_C(0xffffffffffffffff)

/* ---- Operators ---- */

/**
 * md5: MD5 (RFC 1321). Digest of 16 bytes. Parameter: none, or the value expected, as the digest is
 * told: the command fails with DIGEST_MISMATCH where it is another
 */
#define DCS_OP_MD5 0x01u
/**
 * sha1: SHA-1 (FIPS 180-4). Digest of 20 bytes. Parameter: none, or the value expected, as the
 * digest is told: the command fails with DIGEST_MISMATCH where it is another
 */
#define DCS_OP_SHA1 0x02u
/**
 * sha256: SHA-256 (FIPS 180-4). Digest of 32 bytes. Parameter: none, or the value expected, as the
 * digest is told: the command fails with DIGEST_MISMATCH where it is another
 */
#define DCS_OP_SHA256 0x03u
/**
 * sha512: SHA-512 (FIPS 180-4). Digest of 64 bytes. Parameter: none, or the value expected, as the
 * digest is told: the command fails with DIGEST_MISMATCH where it is another
 */
#define DCS_OP_SHA512 0x04u
/**
 * crc32: CRC-32/ISO-HDLC, as in Ethernet and gzip (RFC 1952). Digest of 4 bytes. Parameter: none,
 * or the value expected, as the digest is told: the command fails with DIGEST_MISMATCH where it is
 * another
 */
#define DCS_OP_CRC32 0x08u
/**
 * crc32c: CRC-32/ISCSI (RFC 3720 section 12.1). Digest of 4 bytes. Parameter: none, or the value
 * expected, as the digest is told: the command fails with DIGEST_MISMATCH where it is another
 */
#define DCS_OP_CRC32C 0x09u
/**
 * crc64-nvme: CRC-64/NVME (NVM Command Set Specification 1.1). Digest of 8 bytes. Parameter: none,
 * or the value expected, as the digest is told: the command fails with DIGEST_MISMATCH where it is
 * another
 */
#define DCS_OP_CRC64_NVME 0x0au
/**
 * aes256-ctr: AES-256 in counter mode (SP 800-38A section 6.5); encryption and decryption are the
 * same. Same length. Parameter: key[32], counter[16] (the initial counter block, big-endian,
 * counted up over all 128 bits)
 */
#define DCS_OP_AES256_CTR 0x10u
/**
 * aes256-xts: AES-256 in XTS mode, encryption (IEEE 1619, SP 800-38E). Same length, whole units.
 * Parameter: key[64] (data key, then tweak key), unit_size u32 (bytes of a data unit: 16 to 65536,
 * a power of two), reserved u32, first_unit u64
 */
#define DCS_OP_AES256_XTS 0x12u
/**
 * aes256-xts-decrypt: AES-256 in XTS mode, decryption (IEEE 1619, SP 800-38E). Same length, whole
 * units. Parameter: key[64] (data key, then tweak key), unit_size u32 (bytes of a data unit: 16 to
 * 65536, a power of two), reserved u32, first_unit u64
 */
#define DCS_OP_AES256_XTS_DECRYPT 0x13u
/**
 * blowfish-ctr: Blowfish (Schneier, 1993) in counter mode (SP 800-38A section 6.5); encryption and
 * decryption are the same. Same length. Parameter: counter[8] (the initial counter block,
 * big-endian, counted up over all 64 bits), key[4 to 56]
 */
#define DCS_OP_BLOWFISH_CTR 0x14u
/**
 * gzip: gzip compression (RFC 1952), level 0 to 9, 1 where none is given. Other length. Parameter:
 * none, or level u8
 */
#define DCS_OP_GZIP 0x20u
/** gunzip: gzip decompression (RFC 1952), of one or more members. Other length. Parameter: none */
#define DCS_OP_GUNZIP 0x21u
/**
 * zstd: Zstandard compression (RFC 8878), level 1 to 19, 3 where none is given. Other length.
 * Parameter: none, or level u8
 */
#define DCS_OP_ZSTD 0x22u
/**
 * unzstd: Zstandard decompression (RFC 8878), of one or more frames. Other length. Parameter: none
 */
#define DCS_OP_UNZSTD 0x23u
/**
 * aws-chunked: takes off S3's aws-chunked framing and checks its signatures; its value is the
 * trailing checksum, decoded (Amazon S3 API Reference, SigV4 streaming). Other length. Parameter:
 * flags u8 (1: the chunks are signed; 2: trailers follow the last chunk), checksum u8 (the operator
 * whose checksum a trailer brings: CRC32, CRC32C, CRC64_NVME, SHA1 or SHA256; 0: none),
 * reserved[6], decoded_length u64; where signed also: signing_key[32], seed_signature[32],
 * timestamp[16] (YYYYMMDDTHHMMSSZ), scope[1 to 128] (YYYYMMDD/region/s3/aws4_request)
 */
#define DCS_OP_AWS_CHUNKED 0x30u
/**
 * slice: drops skip bytes, passes take bytes and drops what follows. Other length. Parameter: skip
 * u64, take u64
 */
#define DCS_OP_SLICE 0x31u
/**
 * grep: lines that match a regular expression on bytes, or their number. Other length. Parameter:
 * flags u8 (1: letters match in either case; 2: lines that do not match; 4: the lines' number in
 * place of them), reserved[7], pattern[1 to 1016] (UTF-8; docs/operators.md says which expressions)
 */
#define DCS_OP_GREP 0x32u
/**
 * filter: rows of comma-separated values (RFC 4180), or binary ones of a fixed width, whose field
 * compares so with a constant. Other length. Parameter: expression[1 to 1024] (UTF-8;
 * docs/operators.md has the syntax): price>100
 */
#define DCS_OP_FILTER 0x33u
/**
 * aggregate: count, sum, least, most and mean of columns of comma-separated values (RFC 4180) or of
 * binary rows of a fixed width. Other length. Parameter: expression[1 to 1024] (UTF-8;
 * docs/operators.md has the syntax): sum(price)
 */
#define DCS_OP_AGGREGATE 0x34u
/**
 * knn: the k rows nearest to a vector by squared Euclidean distance: index and distance of each.
 * Other length. Parameter: element u8 (0: u8; 1: f32, little-endian), reserved[3], k u32 (1 to
 * 65536), query[1 to 2048] (whole elements; a row of the data has as many)
 */
#define DCS_OP_KNN 0x35u
/**
 * bitmap: run-length compressed bitmaps (RoaringFormatSpec, 32 bits): decompresses one, or combines
 * several. Other length. Parameter: none, or operation u8 (0: decompress one bitmap; 1: AND of all;
 * 2: OR of all), result u8 (0: its bits; 1: their number)
 */
#define DCS_OP_BITMAP 0x36u
/**
 * module: an operator of the user's own, in WebAssembly (docs/wasm.md); its value, if it tells one,
 * has up to 64 bytes. Other length. Parameter: module[32] (the SHA-256 of a module that was
 * loaded), parameter[0 to 1024] (what that module takes)
 */
#define DCS_OP_MODULE 0x3fu
/**
 * added to an operator's number: the engine's GPU does it (md5, sha256, crc32, crc32c, aes256-ctr)
 */
#define DCS_OP_ON_GPU 0x80u

/* ---- Kinds of endpoint ---- */

/** no endpoint */
#define DCS_ENDPOINT_NONE 0
/** extents of a file, by file offset */
#define DCS_ENDPOINT_FILE 1
/** extents of a block device, by byte offset */
#define DCS_ENDPOINT_BLOCK 2
/** a connected stream socket */
#define DCS_ENDPOINT_FLOW 3
/** host memory, by bus address */
#define DCS_ENDPOINT_MEMORY 4
/** device memory [NVMe SLM memory range set] */
#define DCS_ENDPOINT_DEVICE_MEMORY 5
/** an ordered stream without position: a pipe, a character device */
#define DCS_ENDPOINT_STREAM 6
/**
 * datagrams of a media stream: as a destination each is sent when it is due, as a source they are
 * put into their order
 */
#define DCS_ENDPOINT_PACED 7

/* ---- What says when bytes are due ---- */

/** as fast as they can be sent; always so for a source */
#define DCS_PACING_FREE 0
/** at a constant rate */
#define DCS_PACING_CONSTANT 1
/**
 * by the clock references of the MPEG transport stream that they are [ISO/IEC 13818-1, 2.4.3.5]
 */
#define DCS_PACING_PCR 2

/* ---- Whether a path is taken ---- */

/** the engine decides; the result says what it did */
#define DCS_MODE_AUTO 0
/** must be taken */
#define DCS_MODE_ON 1
/** must not be taken */
#define DCS_MODE_OFF 2

/* ---- Kinds of parameter ---- */

/** no parameters */
#define DCS_PARAMETER_NONE 0
/** in the descriptor [FlexCSV direct_param] */
#define DCS_PARAMETER_DIRECT 1

/* ---- Statuses, 15 bits ---- */

/** all of it was done [NVMe generic 00h] */
#define DCS_STATUS_SUCCESS 0x0000u
/** the opcode is not one of this command set [NVMe generic 01h] */
#define DCS_STATUS_INVALID_OPCODE 0x4001u
/** a field of entry or descriptor has a value that is not allowed [NVMe generic 02h] */
#define DCS_STATUS_INVALID_FIELD 0x4002u
/** this command identifier is still in flight in this queue [NVMe generic 03h] */
#define DCS_STATUS_COMMAND_ID_CONFLICT 0x4003u
/** the descriptor lies outside the registered memory or could not be fetched [NVMe generic 04h] */
#define DCS_STATUS_DATA_TRANSFER_ERROR 0x4004u
/** the engine or a device broke a rule [NVMe generic 06h] */
#define DCS_STATUS_INTERNAL_ERROR 0x0006u
/** the command was cancelled [NVMe generic 07h, Command Abort Requested] */
#define DCS_STATUS_CANCELLED 0x4007u
/** queue deleted or engine stopped first [NVMe generic 08h] */
#define DCS_STATUS_QUEUE_DELETED 0x4008u
/** the range lies outside its file, device or memory [NVMe generic 80h, LBA Out of Range] */
#define DCS_STATUS_OUT_OF_RANGE 0x4080u
/** the destination is full [NVMe generic 81h] */
#define DCS_STATUS_CAPACITY_EXCEEDED 0x4081u
/** the destination could not be written [NVMe media 80h, Write Fault] */
#define DCS_STATUS_WRITE_ERROR 0x0280u
/** the source could not be read [NVMe media 81h, Unrecovered Read Error] */
#define DCS_STATUS_READ_ERROR 0x0281u
/** the descriptor is not open for this access [NVMe media 86h] */
#define DCS_STATUS_ACCESS_DENIED 0x4286u
/** a number in the chain is no operator of this engine */
#define DCS_STATUS_UNKNOWN_OPERATOR 0x4701u
/** an operator's parameters have the wrong length or value */
#define DCS_STATUS_BAD_PARAMETER 0x4702u
/** the handle or file descriptor is not open */
#define DCS_STATUS_BAD_HANDLE 0x4703u
/** this kind of endpoint cannot be driven, or not in this direction */
#define DCS_STATUS_UNSUPPORTED_ENDPOINT 0x4704u
/** the source ended before the length that was asked for */
#define DCS_STATUS_END_OF_SOURCE 0x0705u
/** the peer reset or closed the connection */
#define DCS_STATUS_PEER_RESET 0x0706u
/** the data are not what the operator takes */
#define DCS_STATUS_CORRUPT_DATA 0x4707u
/** the data ended inside a unit that the operator needs whole */
#define DCS_STATUS_TRUNCATED_DATA 0x4708u
/** the engine was made too small for this command */
#define DCS_STATUS_OUT_OF_RESOURCES 0x4709u
/** the device was reset or removed meanwhile */
#define DCS_STATUS_DEVICE_RESET 0x070au
/** the time given ran out */
#define DCS_STATUS_TIMEOUT 0x070bu
/** the requested path is not available here */
#define DCS_STATUS_PATH_UNAVAILABLE 0x470du
/** the framing around the data breaks its rules, or its lengths do not add up */
#define DCS_STATUS_FRAMING_ERROR 0x470eu
/** a signature in the data is not the one that the data and the key give */
#define DCS_STATUS_SIGNATURE_MISMATCH 0x470fu
/** a digest of the data is not the expected one */
#define DCS_STATUS_DIGEST_MISMATCH 0x4710u
/** the destination overlaps the source: bytes that are still to be read would be overwritten */
#define DCS_STATUS_OVERLAP 0x4711u
/**
 * the module stopped by a trap: it reached what is unreachable, left its memory or divided by zero
 */
#define DCS_STATUS_MODULE_TRAP 0x4712u
/** the module ran for longer than it may for its data */
#define DCS_STATUS_MODULE_FUEL 0x4713u
/** the module asked for more memory than it may have */
#define DCS_STATUS_MODULE_MEMORY 0x4714u
/** the module gave an answer that breaks the rules of modules */
#define DCS_STATUS_MODULE_ANSWER 0x4715u

/* ---- Stages that can fail ---- */

/** no stage: the command did not fail */
#define DCS_STAGE_NONE 0
/** fetching, checking, binding to devices */
#define DCS_STAGE_FRONTEND 1
/** waiting for its turn, for a slot, or for an earlier command of the same rid */
#define DCS_STAGE_QUEUE 2
/** the source device */
#define DCS_STAGE_SOURCE 3
/** an operator of the chain; stage_index says which */
#define DCS_STAGE_OPERATOR 4
/** the destination device */
#define DCS_STAGE_DESTINATION 5

/* ---- Places in dcs_result.stages ---- */

/** the source's times */
#define DCS_SLOT_SOURCE 0
/** the destination's times */
#define DCS_SLOT_DESTINATION 1
/** the first operator's times; the others follow */
#define DCS_SLOT_OPERATORS 2

/* ---- Paths that bytes took ---- */

/** source bytes came through the page cache */
#define DCS_PATH_SOURCE_CACHED 0x00000001u
/** source bytes were read with O_DIRECT */
#define DCS_PATH_SOURCE_DIRECT 0x00000002u
/** bytes were written through the page cache */
#define DCS_PATH_DESTINATION_CACHED 0x00000004u
/** bytes were written with O_DIRECT */
#define DCS_PATH_DESTINATION_DIRECT 0x00000008u
/** the kernel moved the bytes itself (sendfile, splice, copy_file_range) */
#define DCS_PATH_KERNEL_COPY 0x00000010u
/** bytes were sent without a copy into socket buffers */
#define DCS_PATH_ZERO_COPY 0x00000020u
/** io_uring carried at least one operation */
#define DCS_PATH_IO_URING 0x00000040u
/** plain system calls carried at least one operation */
#define DCS_PATH_SYSCALL 0x00000080u
/** bytes went device to device over the bus */
#define DCS_PATH_PEER_TO_PEER 0x00000100u
/** a controller was driven from user space, past the kernel's driver */
#define DCS_PATH_VFIO 0x00000200u
/** a GPU did an operator of the chain */
#define DCS_PATH_GPU 0x00000400u
/** source bytes were read into a GPU's memory, by GPUDirect Storage */
#define DCS_PATH_GPU_STORAGE 0x00000800u
/** a virtual drive ran the chain beside its disk */
#define DCS_PATH_NEAR_STORAGE 0x00001000u

/* ---- Parts of BAR0 ---- */

/** where the engine's own registers start */
#define DCS_ENGINE_BLOCK 0x0f00u
/** where doorbells start [NVMe over PCIe Transport 1.1 3.1.2] */
#define DCS_DOORBELL_BASE 0x1000u

/* ---- Registers, by offset in BAR0 ---- */

/**
 * controller capabilities: MQES 15:0, CQR 16, TO 31:24, DSTRD 35:32, CSS 44:37, MPSMIN 51:48,
 * MPSMAX 55:52 [NVMe CAP]
 */
#define DCS_REG_CAP 0x0000u
/** version, 0x00020100 [NVMe VS] */
#define DCS_REG_VS 0x0008u
/** interrupt mask set [NVMe INTMS] */
#define DCS_REG_INTMS 0x000cu
/** interrupt mask clear [NVMe INTMC] */
#define DCS_REG_INTMC 0x0010u
/**
 * controller configuration: EN 0, CSS 6:4, MPS 10:7, AMS 13:11, SHN 15:14, IOSQES 19:16 (6: 64
 * bytes), IOCQES 23:20 (4: 16 bytes) [NVMe CC]
 */
#define DCS_REG_CC 0x0014u
/** controller status: RDY 0, CFS 1, SHST 3:2 [NVMe CSTS] */
#define DCS_REG_CSTS 0x001cu
/** admin queue attributes: ASQS 11:0, ACQS 27:16, zero-based [NVMe AQA] */
#define DCS_REG_AQA 0x0024u
/** admin submission queue base address [NVMe ASQ] */
#define DCS_REG_ASQ 0x0028u
/** admin completion queue base address [NVMe ACQ] */
#define DCS_REG_ACQ 0x0030u
/** 0x44435331: the ASCII letters 'DCS1', most significant first */
#define DCS_REG_ENGINE_ID 0x0f00u
/** version of this command set, DCS_ABI_VERSION */
#define DCS_REG_ENGINE_ABI 0x0f04u
/** bytes of a block buffer */
#define DCS_REG_ENGINE_BLOCK_SIZE 0x0f08u
/** block buffers in all (the credits of the D2D protocol's Rx Base Credit) */
#define DCS_REG_ENGINE_BLOCKS 0x0f0cu
/** block buffers that are free now */
#define DCS_REG_ENGINE_BLOCKS_FREE 0x0f10u
/** commands that may be active at once */
#define DCS_REG_ENGINE_COMMANDS 0x0f14u
/** scoreboard entries: in use 15:0, in all 31:16 */
#define DCS_REG_ENGINE_SCOREBOARD 0x0f18u
/** bit n: operator number n (below 64) is there */
#define DCS_REG_ENGINE_OPERATORS 0x0f20u

/* ---- Doorbells, by offset in BAR0, where CAP.DSTRD is 0 ---- */

/** Where the new tail of submission queue `queue` is written: entries up to it may be fetched. */
#define DCS_SQ_TAIL_DOORBELL(queue) (DCS_DOORBELL_BASE + 8u * (queue))
/** Where the new head of completion queue `queue` is written: entries before it may be reused. */
#define DCS_CQ_HEAD_DOORBELL(queue) (DCS_DOORBELL_BASE + 8u * (queue) + 4u)

/* ---- Structures ---- */

/**
 * Submission queue entry: one command. Shaped as an NVMe common command (NVMe Base 2.1, Common
 * Command Format); FlexCSV (section 4.3.1) names op_chain and rid.
 */
struct dcs_sqe {
    /** Opcode: DCS_OPCODE_*. [NVMe CDW0 bits 7:0] */
    uint8_t opcode;
    /** Zero. [NVMe CDW0 bits 15:8: no fused commands, PRPs] */
    uint8_t nvme_flags;
    /**
     * Command identifier, the submitter's choice, unique among the commands in flight of this
     * queue. [NVMe CDW0 bits 31:16]
     */
    uint16_t cid;
    /** Namespace: 0 for the engine itself. [NVMe NSID] */
    uint32_t nsid;
    /**
     * Request id: a command does not start before the earlier ones of this tenant with the same rid
     * are finished; 0: no such order. [CDW2; FlexCSV request_id]
     */
    uint32_t rid;
    /** Bytes of the descriptor. [CDW3] */
    uint32_t descriptor_length;
    /** Bus address of the result area, DCS_RESULT_SIZE bytes; 0: none wanted. [NVMe MPTR] */
    uint64_t result_address;
    /** Bus address of the descriptor. [NVMe DPTR, PRP entry 1] */
    uint64_t descriptor_address;
    /** Reserved, zero. */
    uint8_t reserved_32[8];
    /**
     * The operator chain in the order in which data pass, DCS_OP_*; 0 ends it. [CDW10-11; FlexCSV
     * op_chain]
     */
    uint8_t op_chain[8];
    /**
     * Bytes to move, those of the prefix included, or DCS_LENGTH_TO_END: until the source ends or,
     * where it has extents, all of them. [CDW12-13]
     */
    uint64_t length;
    /** Milliseconds after which the command fails with TIMEOUT; 0: never. [CDW14] */
    uint32_t timeout_ms;
    /** DCS_FLAG_*. [CDW15 bits 15:0] */
    uint16_t flags;
    /** Reserved, zero. */
    uint8_t reserved_62[2];
};
DCS_STATIC_ASSERT(sizeof(struct dcs_sqe) == 64, "dcs_sqe");
DCS_STATIC_ASSERT(offsetof(struct dcs_sqe, opcode) == 0, "dcs_sqe.opcode");
DCS_STATIC_ASSERT(offsetof(struct dcs_sqe, nvme_flags) == 1, "dcs_sqe.nvme_flags");
DCS_STATIC_ASSERT(offsetof(struct dcs_sqe, cid) == 2, "dcs_sqe.cid");
DCS_STATIC_ASSERT(offsetof(struct dcs_sqe, nsid) == 4, "dcs_sqe.nsid");
DCS_STATIC_ASSERT(offsetof(struct dcs_sqe, rid) == 8, "dcs_sqe.rid");
DCS_STATIC_ASSERT(offsetof(struct dcs_sqe, descriptor_length) == 12, "dcs_sqe.descriptor_length");
DCS_STATIC_ASSERT(offsetof(struct dcs_sqe, result_address) == 16, "dcs_sqe.result_address");
DCS_STATIC_ASSERT(offsetof(struct dcs_sqe, descriptor_address) == 24, "dcs_sqe.descriptor_address");
DCS_STATIC_ASSERT(offsetof(struct dcs_sqe, reserved_32) == 32, "dcs_sqe.reserved_32");
DCS_STATIC_ASSERT(offsetof(struct dcs_sqe, op_chain) == 40, "dcs_sqe.op_chain");
DCS_STATIC_ASSERT(offsetof(struct dcs_sqe, length) == 48, "dcs_sqe.length");
DCS_STATIC_ASSERT(offsetof(struct dcs_sqe, timeout_ms) == 56, "dcs_sqe.timeout_ms");
DCS_STATIC_ASSERT(offsetof(struct dcs_sqe, flags) == 60, "dcs_sqe.flags");
DCS_STATIC_ASSERT(offsetof(struct dcs_sqe, reserved_62) == 62, "dcs_sqe.reserved_62");

/**
 * Submission queue entry of a transfer with DCS_FLAG_INLINE: it has no descriptor. What it has in
 * common with struct dcs_sqe is in the same place and means the same.
 */
struct dcs_inline_sqe {
    /** DCS_OPCODE_TRANSFER. */
    uint8_t opcode;
    /** Zero. */
    uint8_t nvme_flags;
    /** Command identifier. */
    uint16_t cid;
    /** Zero. */
    uint32_t nsid;
    /** Request id. */
    uint32_t rid;
    /** Handle of the source. */
    uint32_t source_handle;
    /** Bus address of the result area; 0: none wanted. */
    uint64_t result_address;
    /**
     * First byte at the source, of FILE, BLOCK, MEMORY and DEVICE_MEMORY: from there on it has
     * `length` bytes. Else 0.
     */
    uint64_t source_offset;
    /**
     * First byte at the destination, of the same kinds: from there on a FILE goes as far as it can,
     * the others for `length` bytes. Else 0.
     */
    uint64_t destination_offset;
    /** The operator chain: two operators that take no parameters; 0 ends it. */
    uint8_t op_chain[2];
    /** DCS_ENDPOINT_* of the source; neither NONE nor PACED. */
    uint8_t source_kind;
    /** DCS_ENDPOINT_* of the destination; likewise. */
    uint8_t destination_kind;
    /** Handle of the destination. */
    uint32_t destination_handle;
    /** Bytes to move; DCS_LENGTH_TO_END where neither end needs to know. */
    uint64_t length;
    /** Milliseconds after which the command fails with TIMEOUT; 0: never. */
    uint32_t timeout_ms;
    /** DCS_FLAG_*, DCS_FLAG_INLINE among them. */
    uint16_t flags;
    /**
     * DCS_MODE_*: bits 1:0 the source's page cache, 3:2 its zero copy, 5:4 and 7:6 the
     * destination's; bit 8: the source is immutable. Others zero. See struct dcs_endpoint.
     */
    uint16_t modes;
};
DCS_STATIC_ASSERT(sizeof(struct dcs_inline_sqe) == 64, "dcs_inline_sqe");
DCS_STATIC_ASSERT(offsetof(struct dcs_inline_sqe, opcode) == 0, "dcs_inline_sqe.opcode");
DCS_STATIC_ASSERT(offsetof(struct dcs_inline_sqe, nvme_flags) == 1, "dcs_inline_sqe.nvme_flags");
DCS_STATIC_ASSERT(offsetof(struct dcs_inline_sqe, cid) == 2, "dcs_inline_sqe.cid");
DCS_STATIC_ASSERT(offsetof(struct dcs_inline_sqe, nsid) == 4, "dcs_inline_sqe.nsid");
DCS_STATIC_ASSERT(offsetof(struct dcs_inline_sqe, rid) == 8, "dcs_inline_sqe.rid");
DCS_STATIC_ASSERT(offsetof(struct dcs_inline_sqe, source_handle) == 12, "dcs_inline_sqe.source_handle");
DCS_STATIC_ASSERT(offsetof(struct dcs_inline_sqe, result_address) == 16, "dcs_inline_sqe.result_address");
DCS_STATIC_ASSERT(offsetof(struct dcs_inline_sqe, source_offset) == 24, "dcs_inline_sqe.source_offset");
DCS_STATIC_ASSERT(offsetof(struct dcs_inline_sqe, destination_offset) == 32, "dcs_inline_sqe.destination_offset");
DCS_STATIC_ASSERT(offsetof(struct dcs_inline_sqe, op_chain) == 40, "dcs_inline_sqe.op_chain");
DCS_STATIC_ASSERT(offsetof(struct dcs_inline_sqe, source_kind) == 42, "dcs_inline_sqe.source_kind");
DCS_STATIC_ASSERT(offsetof(struct dcs_inline_sqe, destination_kind) == 43, "dcs_inline_sqe.destination_kind");
DCS_STATIC_ASSERT(offsetof(struct dcs_inline_sqe, destination_handle) == 44, "dcs_inline_sqe.destination_handle");
DCS_STATIC_ASSERT(offsetof(struct dcs_inline_sqe, length) == 48, "dcs_inline_sqe.length");
DCS_STATIC_ASSERT(offsetof(struct dcs_inline_sqe, timeout_ms) == 56, "dcs_inline_sqe.timeout_ms");
DCS_STATIC_ASSERT(offsetof(struct dcs_inline_sqe, flags) == 60, "dcs_inline_sqe.flags");
DCS_STATIC_ASSERT(offsetof(struct dcs_inline_sqe, modes) == 62, "dcs_inline_sqe.modes");

/**
 * Completion queue entry. Shaped as NVMe's (NVMe Base 2.1, Common Completion Queue Entry Layout);
 * DW0 and DW1 say how far the command came, success or not.
 */
struct dcs_cqe {
    /**
     * Bytes that the destination took, in order, from the first one; at most 2^48 - 1. Cancel:
     * commands aborted later in bits 31:16, at once in bits 15:0. [DW0-1 bits 47:0; NVMe Cancel
     * DW0]
     */
    uint8_t delivered[6];
    /** Stage that failed, DCS_STAGE_*; 0 on success. [DW1 bits 23:16] */
    uint8_t stage;
    /** Which operator of the chain failed, where stage is OPERATOR. [DW1 bits 31:24] */
    uint8_t stage_index;
    /** Submission queue head: entries before it may be reused. [DW2 bits 15:0] */
    uint16_t sq_head;
    /** Submission queue of the command. [DW2 bits 31:16] */
    uint16_t sq_id;
    /** Command identifier. [DW3 bits 15:0] */
    uint16_t cid;
    /**
     * Bit 0: phase, inverted each time the queue wraps. Bits 15:1: status, DCS_STATUS_*. [DW3 bits
     * 31:16]
     */
    uint16_t status;
};
DCS_STATIC_ASSERT(sizeof(struct dcs_cqe) == 16, "dcs_cqe");
DCS_STATIC_ASSERT(offsetof(struct dcs_cqe, delivered) == 0, "dcs_cqe.delivered");
DCS_STATIC_ASSERT(offsetof(struct dcs_cqe, stage) == 6, "dcs_cqe.stage");
DCS_STATIC_ASSERT(offsetof(struct dcs_cqe, stage_index) == 7, "dcs_cqe.stage_index");
DCS_STATIC_ASSERT(offsetof(struct dcs_cqe, sq_head) == 8, "dcs_cqe.sq_head");
DCS_STATIC_ASSERT(offsetof(struct dcs_cqe, sq_id) == 10, "dcs_cqe.sq_id");
DCS_STATIC_ASSERT(offsetof(struct dcs_cqe, cid) == 12, "dcs_cqe.cid");
DCS_STATIC_ASSERT(offsetof(struct dcs_cqe, status) == 14, "dcs_cqe.status");

/** A run of bytes of a file, a block device or memory. */
struct dcs_extent {
    /** First byte: file offset, device offset (LBA times block size) or bus address. */
    uint64_t offset;
    /**
     * Bytes. Where offset and length of a FILE's last extent come to 2^63 - 1, it goes on until the
     * file gives no more: that is how a file is read that does not tell its size.
     */
    uint64_t length;
};
DCS_STATIC_ASSERT(sizeof(struct dcs_extent) == 16, "dcs_extent");
DCS_STATIC_ASSERT(offsetof(struct dcs_extent, offset) == 0, "dcs_extent.offset");
DCS_STATIC_ASSERT(offsetof(struct dcs_extent, length) == 8, "dcs_extent.length");

/** Where bytes come from or go to. */
struct dcs_endpoint {
    /** DCS_ENDPOINT_*. */
    uint8_t kind;
    /** Page cache: DCS_MODE_AUTO, _ON (through the page cache) or _OFF (O_DIRECT). */
    uint8_t cache;
    /** Zero copy and peer-to-peer: DCS_MODE_AUTO, _ON or _OFF. */
    uint8_t zero_copy;
    /**
     * 1: nobody writes to it before the reader at the destination has read what is sent, so that
     * pages of the page cache may be lent out. The transfer's end does not end the promise. A
     * source's; else 0.
     */
    uint8_t immutable;
    /** Handle that the session was given for the file, device, socket or memory. */
    uint32_t handle;
    /**
     * Offset in the descriptor of the first struct dcs_extent; FILE, BLOCK, MEMORY and
     * DEVICE_MEMORY.
     */
    uint32_t extents_offset;
    /**
     * Number of extents; at least 1 where there is an endpoint that has extents, 0 for FLOW, STREAM
     * and PACED.
     */
    uint32_t extents_count;
    /** Bits a second, without the headers of datagrams, where pacing is CONSTANT; else 0. */
    uint64_t rate;
    /**
     * Microseconds, at most DCS_WINDOW_MAX. PACED as a destination: datagrams that are due within
     * this time go together. As a source: a missing datagram is waited for so long. Else 0.
     */
    uint32_t window_us;
    /** DCS_PACING_*: what says when the bytes of a PACED destination are due; else 0. */
    uint8_t pacing;
    /** Reserved, zero. */
    uint8_t reserved_29[3];
};
DCS_STATIC_ASSERT(sizeof(struct dcs_endpoint) == 32, "dcs_endpoint");
DCS_STATIC_ASSERT(offsetof(struct dcs_endpoint, kind) == 0, "dcs_endpoint.kind");
DCS_STATIC_ASSERT(offsetof(struct dcs_endpoint, cache) == 1, "dcs_endpoint.cache");
DCS_STATIC_ASSERT(offsetof(struct dcs_endpoint, zero_copy) == 2, "dcs_endpoint.zero_copy");
DCS_STATIC_ASSERT(offsetof(struct dcs_endpoint, immutable) == 3, "dcs_endpoint.immutable");
DCS_STATIC_ASSERT(offsetof(struct dcs_endpoint, handle) == 4, "dcs_endpoint.handle");
DCS_STATIC_ASSERT(offsetof(struct dcs_endpoint, extents_offset) == 8, "dcs_endpoint.extents_offset");
DCS_STATIC_ASSERT(offsetof(struct dcs_endpoint, extents_count) == 12, "dcs_endpoint.extents_count");
DCS_STATIC_ASSERT(offsetof(struct dcs_endpoint, rate) == 16, "dcs_endpoint.rate");
DCS_STATIC_ASSERT(offsetof(struct dcs_endpoint, window_us) == 24, "dcs_endpoint.window_us");
DCS_STATIC_ASSERT(offsetof(struct dcs_endpoint, pacing) == 28, "dcs_endpoint.pacing");
DCS_STATIC_ASSERT(offsetof(struct dcs_endpoint, reserved_29) == 29, "dcs_endpoint.reserved_29");

/** Where an operator's parameter block is. [FlexCSV direct_param and file_param] */
struct dcs_parameter {
    /** DCS_PARAMETER_*: none, direct (in the descriptor). */
    uint32_t kind;
    /** In bytes. */
    uint32_t length;
    /** Offset in the descriptor. */
    uint64_t offset;
};
DCS_STATIC_ASSERT(sizeof(struct dcs_parameter) == 16, "dcs_parameter");
DCS_STATIC_ASSERT(offsetof(struct dcs_parameter, kind) == 0, "dcs_parameter.kind");
DCS_STATIC_ASSERT(offsetof(struct dcs_parameter, length) == 4, "dcs_parameter.length");
DCS_STATIC_ASSERT(offsetof(struct dcs_parameter, offset) == 8, "dcs_parameter.offset");

/** Header of a descriptor. */
struct dcs_descriptor {
    /** DCS_ABI_VERSION. */
    uint16_t version;
    /** Bytes of this header, 256. */
    uint16_t header_length;
    /** Bytes of header, extents and parameters together. */
    uint32_t total_length;
    /** Reserved, zero. */
    uint8_t reserved_8[8];
    /**
     * Bytes that come before the source's, kind MEMORY or NONE: what the caller had already read
     * off a socket.
     */
    struct dcs_endpoint prefix;
    /** Where the bytes come from. */
    struct dcs_endpoint source;
    /** Where they go. */
    struct dcs_endpoint destination;
    /** Parameters of the operator at the same place of the chain. */
    struct dcs_parameter parameters[8];
    /** Reserved, zero. */
    uint8_t reserved_240[16];
};
DCS_STATIC_ASSERT(sizeof(struct dcs_descriptor) == 256, "dcs_descriptor");
DCS_STATIC_ASSERT(offsetof(struct dcs_descriptor, version) == 0, "dcs_descriptor.version");
DCS_STATIC_ASSERT(offsetof(struct dcs_descriptor, header_length) == 2, "dcs_descriptor.header_length");
DCS_STATIC_ASSERT(offsetof(struct dcs_descriptor, total_length) == 4, "dcs_descriptor.total_length");
DCS_STATIC_ASSERT(offsetof(struct dcs_descriptor, reserved_8) == 8, "dcs_descriptor.reserved_8");
DCS_STATIC_ASSERT(offsetof(struct dcs_descriptor, prefix) == 16, "dcs_descriptor.prefix");
DCS_STATIC_ASSERT(offsetof(struct dcs_descriptor, source) == 48, "dcs_descriptor.source");
DCS_STATIC_ASSERT(offsetof(struct dcs_descriptor, destination) == 80, "dcs_descriptor.destination");
DCS_STATIC_ASSERT(offsetof(struct dcs_descriptor, parameters) == 112, "dcs_descriptor.parameters");
DCS_STATIC_ASSERT(offsetof(struct dcs_descriptor, reserved_240) == 240, "dcs_descriptor.reserved_240");

/** The value of one digest operator, or what another operator found in the data. */
struct dcs_digest {
    /** The operator, DCS_OP_*; 0: this place of the chain tells no value. */
    uint8_t operator_;
    /** Bytes of the value. */
    uint8_t size;
    /** Reserved, zero. */
    uint8_t reserved_2[6];
    /**
     * Bytes that went into the digest, or that came out of another operator: after a failure it may
     * be more than was delivered.
     */
    uint64_t covered;
    /** The value; CRCs most significant byte first. */
    uint8_t value[64];
};
DCS_STATIC_ASSERT(sizeof(struct dcs_digest) == 80, "dcs_digest");
DCS_STATIC_ASSERT(offsetof(struct dcs_digest, operator_) == 0, "dcs_digest.operator_");
DCS_STATIC_ASSERT(offsetof(struct dcs_digest, size) == 1, "dcs_digest.size");
DCS_STATIC_ASSERT(offsetof(struct dcs_digest, reserved_2) == 2, "dcs_digest.reserved_2");
DCS_STATIC_ASSERT(offsetof(struct dcs_digest, covered) == 8, "dcs_digest.covered");
DCS_STATIC_ASSERT(offsetof(struct dcs_digest, value) == 16, "dcs_digest.value");

/** Times of one stage, in nanoseconds of the engine's clock. */
struct dcs_stage_times {
    /** When its first device operation was issued; 0: never. */
    uint64_t first_issue;
    /** When its last device operation was done. */
    uint64_t last_done;
    /** Sum of the times from issue to done of all its operations. */
    uint64_t busy;
    /** Device operations. */
    uint64_t operations;
};
DCS_STATIC_ASSERT(sizeof(struct dcs_stage_times) == 32, "dcs_stage_times");
DCS_STATIC_ASSERT(offsetof(struct dcs_stage_times, first_issue) == 0, "dcs_stage_times.first_issue");
DCS_STATIC_ASSERT(offsetof(struct dcs_stage_times, last_done) == 8, "dcs_stage_times.last_done");
DCS_STATIC_ASSERT(offsetof(struct dcs_stage_times, busy) == 16, "dcs_stage_times.busy");
DCS_STATIC_ASSERT(offsetof(struct dcs_stage_times, operations) == 24, "dcs_stage_times.operations");

/** Result area. */
struct dcs_result {
    /** The status again: bits 14:0 as in the completion entry's bits 15:1. */
    uint16_t status;
    /** Stage that failed, DCS_STAGE_*. */
    uint8_t stage;
    /** Which operator failed, where stage is OPERATOR. */
    uint8_t stage_index;
    /** errno of the system call that failed, 0 where there is none. */
    uint32_t errno_;
    /** DCS_PATH_*: which paths the bytes took. */
    uint32_t path;
    /** Reserved, zero. */
    uint8_t reserved_12[4];
    /** Bytes read from prefix and source. */
    uint64_t bytes_in;
    /** Bytes the destination took, in order, from the first one. */
    uint64_t bytes_out;
    /** When the entry was fetched, nanoseconds of the engine's clock. */
    uint64_t queued;
    /** When the command was let start. */
    uint64_t started;
    /** When it was finished. */
    uint64_t finished;
    /** Reserved, zero. */
    uint8_t reserved_56[8];
    /** Times: source, destination, then each operator of the chain. */
    struct dcs_stage_times stages[10];
    /** Digests, at the place of their operator in the chain. */
    struct dcs_digest digests[8];
    /** Reserved, zero. */
    uint8_t reserved_1024[64];
};
DCS_STATIC_ASSERT(sizeof(struct dcs_result) == 1088, "dcs_result");
DCS_STATIC_ASSERT(offsetof(struct dcs_result, status) == 0, "dcs_result.status");
DCS_STATIC_ASSERT(offsetof(struct dcs_result, stage) == 2, "dcs_result.stage");
DCS_STATIC_ASSERT(offsetof(struct dcs_result, stage_index) == 3, "dcs_result.stage_index");
DCS_STATIC_ASSERT(offsetof(struct dcs_result, errno_) == 4, "dcs_result.errno_");
DCS_STATIC_ASSERT(offsetof(struct dcs_result, path) == 8, "dcs_result.path");
DCS_STATIC_ASSERT(offsetof(struct dcs_result, reserved_12) == 12, "dcs_result.reserved_12");
DCS_STATIC_ASSERT(offsetof(struct dcs_result, bytes_in) == 16, "dcs_result.bytes_in");
DCS_STATIC_ASSERT(offsetof(struct dcs_result, bytes_out) == 24, "dcs_result.bytes_out");
DCS_STATIC_ASSERT(offsetof(struct dcs_result, queued) == 32, "dcs_result.queued");
DCS_STATIC_ASSERT(offsetof(struct dcs_result, started) == 40, "dcs_result.started");
DCS_STATIC_ASSERT(offsetof(struct dcs_result, finished) == 48, "dcs_result.finished");
DCS_STATIC_ASSERT(offsetof(struct dcs_result, reserved_56) == 56, "dcs_result.reserved_56");
DCS_STATIC_ASSERT(offsetof(struct dcs_result, stages) == 64, "dcs_result.stages");
DCS_STATIC_ASSERT(offsetof(struct dcs_result, digests) == 384, "dcs_result.digests");
DCS_STATIC_ASSERT(offsetof(struct dcs_result, reserved_1024) == 1024, "dcs_result.reserved_1024");

/**
 * Admin submission entry. Shaped as an NVMe common command (NVMe Base 2.1, Common Command Format).
 */
struct dcs_admin_sqe {
    /** Opcode: DCS_ADMIN_*. [NVMe CDW0 bits 7:0] */
    uint8_t opcode;
    /** Reserved, zero. */
    uint8_t reserved_1;
    /**
     * Command identifier, the submitter's choice, unique among the admin commands in flight. [NVMe
     * CDW0 bits 31:16]
     */
    uint16_t cid;
    /** Reserved, zero. */
    uint8_t reserved_4[20];
    /** Bus address of the data buffer, where the command has one. [NVMe DPTR, PRP entry 1] */
    uint64_t data_address;
    /** Reserved, zero. */
    uint8_t reserved_32[8];
    /** Arguments: see each command. [NVMe CDW10 to CDW15] */
    uint32_t words[6];
};
DCS_STATIC_ASSERT(sizeof(struct dcs_admin_sqe) == 64, "dcs_admin_sqe");
DCS_STATIC_ASSERT(offsetof(struct dcs_admin_sqe, opcode) == 0, "dcs_admin_sqe.opcode");
DCS_STATIC_ASSERT(offsetof(struct dcs_admin_sqe, reserved_1) == 1, "dcs_admin_sqe.reserved_1");
DCS_STATIC_ASSERT(offsetof(struct dcs_admin_sqe, cid) == 2, "dcs_admin_sqe.cid");
DCS_STATIC_ASSERT(offsetof(struct dcs_admin_sqe, reserved_4) == 4, "dcs_admin_sqe.reserved_4");
DCS_STATIC_ASSERT(offsetof(struct dcs_admin_sqe, data_address) == 24, "dcs_admin_sqe.data_address");
DCS_STATIC_ASSERT(offsetof(struct dcs_admin_sqe, reserved_32) == 32, "dcs_admin_sqe.reserved_32");
DCS_STATIC_ASSERT(offsetof(struct dcs_admin_sqe, words) == 40, "dcs_admin_sqe.words");

/**
 * Admin completion entry. Shaped as NVMe's (NVMe Base 2.1, Common Completion Queue Entry Layout).
 */
struct dcs_admin_cqe {
    /** Result of the command: a handle, most of the time. [DW0] */
    uint32_t value;
    /** More of it: see each. [DW1] */
    uint32_t extra;
    /** Submission queue head: entries before it may be reused. [DW2 bits 15:0] */
    uint16_t sq_head;
    /** Submission queue of the command: 0. [DW2 bits 31:16] */
    uint16_t sq_id;
    /** Command identifier. [DW3 bits 15:0] */
    uint16_t cid;
    /** Bit 0: phase. Bits 15:1: status, DCS_STATUS_*. [DW3 bits 31:16] */
    uint16_t status;
};
DCS_STATIC_ASSERT(sizeof(struct dcs_admin_cqe) == 16, "dcs_admin_cqe");
DCS_STATIC_ASSERT(offsetof(struct dcs_admin_cqe, value) == 0, "dcs_admin_cqe.value");
DCS_STATIC_ASSERT(offsetof(struct dcs_admin_cqe, extra) == 4, "dcs_admin_cqe.extra");
DCS_STATIC_ASSERT(offsetof(struct dcs_admin_cqe, sq_head) == 8, "dcs_admin_cqe.sq_head");
DCS_STATIC_ASSERT(offsetof(struct dcs_admin_cqe, sq_id) == 10, "dcs_admin_cqe.sq_id");
DCS_STATIC_ASSERT(offsetof(struct dcs_admin_cqe, cid) == 12, "dcs_admin_cqe.cid");
DCS_STATIC_ASSERT(offsetof(struct dcs_admin_cqe, status) == 14, "dcs_admin_cqe.status");

/** Identity of an SSD and of the namespace that the engine drives. */
struct dcs_ssd_identity {
    /** Namespace globally unique identifier; zeros: none. [NVMe Identify Namespace, NGUID] */
    uint8_t nguid[16];
    /** IEEE extended unique identifier; zeros: none. [NVMe Identify Namespace, EUI64] */
    uint8_t eui64[8];
    /** Number of the namespace. */
    uint32_t nsid;
    /** Bytes of a logical block. */
    uint32_t block_size;
    /** Logical blocks. */
    uint64_t blocks;
    /** The controller's serial number, padded with spaces. [NVMe Identify Controller, SN] */
    uint8_t serial[20];
    /** Reserved, zero. */
    uint8_t reserved_60[4];
};
DCS_STATIC_ASSERT(sizeof(struct dcs_ssd_identity) == 64, "dcs_ssd_identity");
DCS_STATIC_ASSERT(offsetof(struct dcs_ssd_identity, nguid) == 0, "dcs_ssd_identity.nguid");
DCS_STATIC_ASSERT(offsetof(struct dcs_ssd_identity, eui64) == 16, "dcs_ssd_identity.eui64");
DCS_STATIC_ASSERT(offsetof(struct dcs_ssd_identity, nsid) == 24, "dcs_ssd_identity.nsid");
DCS_STATIC_ASSERT(offsetof(struct dcs_ssd_identity, block_size) == 28, "dcs_ssd_identity.block_size");
DCS_STATIC_ASSERT(offsetof(struct dcs_ssd_identity, blocks) == 32, "dcs_ssd_identity.blocks");
DCS_STATIC_ASSERT(offsetof(struct dcs_ssd_identity, serial) == 40, "dcs_ssd_identity.serial");
DCS_STATIC_ASSERT(offsetof(struct dcs_ssd_identity, reserved_60) == 60, "dcs_ssd_identity.reserved_60");

/** What a media stream has sent. */
struct dcs_paced_sending {
    /** Datagrams that were sent. */
    uint64_t datagrams;
    /** Bytes of their payload. */
    uint64_t bytes;
    /** Datagrams that were sent more than 5 ms after their time. */
    uint64_t late;
    /** Datagrams that were not sent: there was no link, or no way to the peer. */
    uint64_t lost;
    /** Times that all that followed was put off, since bytes came too late. */
    uint64_t slips;
    /** Nanoseconds that it was put off by, in total. */
    uint64_t slipped;
    /** Clock references (PCR) that jumped without a mark. */
    uint64_t jumps;
    /** Bytes left out, which are no packets of a transport stream. */
    uint64_t skipped;
    /** Largest deviation from the due time, in nanoseconds. */
    uint64_t worst;
    /**
     * Datagrams by their deviation: at most 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 100, 250 ms,
     * and more.
     */
    uint64_t deviations[12];
    /** errno (Linux) for which the last one was lost; 0: none was. */
    uint32_t errno_;
    /** Reserved, zero. */
    uint8_t reserved_172[4];
};
DCS_STATIC_ASSERT(sizeof(struct dcs_paced_sending) == 176, "dcs_paced_sending");
DCS_STATIC_ASSERT(offsetof(struct dcs_paced_sending, datagrams) == 0, "dcs_paced_sending.datagrams");
DCS_STATIC_ASSERT(offsetof(struct dcs_paced_sending, bytes) == 8, "dcs_paced_sending.bytes");
DCS_STATIC_ASSERT(offsetof(struct dcs_paced_sending, late) == 16, "dcs_paced_sending.late");
DCS_STATIC_ASSERT(offsetof(struct dcs_paced_sending, lost) == 24, "dcs_paced_sending.lost");
DCS_STATIC_ASSERT(offsetof(struct dcs_paced_sending, slips) == 32, "dcs_paced_sending.slips");
DCS_STATIC_ASSERT(offsetof(struct dcs_paced_sending, slipped) == 40, "dcs_paced_sending.slipped");
DCS_STATIC_ASSERT(offsetof(struct dcs_paced_sending, jumps) == 48, "dcs_paced_sending.jumps");
DCS_STATIC_ASSERT(offsetof(struct dcs_paced_sending, skipped) == 56, "dcs_paced_sending.skipped");
DCS_STATIC_ASSERT(offsetof(struct dcs_paced_sending, worst) == 64, "dcs_paced_sending.worst");
DCS_STATIC_ASSERT(offsetof(struct dcs_paced_sending, deviations) == 72, "dcs_paced_sending.deviations");
DCS_STATIC_ASSERT(offsetof(struct dcs_paced_sending, errno_) == 168, "dcs_paced_sending.errno_");
DCS_STATIC_ASSERT(offsetof(struct dcs_paced_sending, reserved_172) == 172, "dcs_paced_sending.reserved_172");

/* ---- Reading a completion entry ---- */

/** The phase bit: the entry is new where it equals the phase that the reader expects. */
static inline bool dcs_cqe_phase(const struct dcs_cqe *cqe) {
    return (cqe->status & 1u) != 0;
}

/** The status, DCS_STATUS_*. */
static inline uint16_t dcs_cqe_status(const struct dcs_cqe *cqe) {
    return (uint16_t)(cqe->status >> 1);
}

/** Bytes that the destination took. */
static inline uint64_t dcs_cqe_delivered(const struct dcs_cqe *cqe) {
    uint64_t value = 0;
    for (int i = 5; i >= 0; i--) {
        value = value << 8 | cqe->delivered[i];
    }
    return value;
}

/** Do Not Retry: the same command would fail again. */
static inline bool dcs_status_do_not_retry(uint16_t status) {
    return (status & 0x4000u) != 0;
}

/* ---- Functions ---- */

/**
 * A thread of the engine's own runs it: it spins while there is work, and sleeps when there is none.
 */
#define DCS_DRIVER_THREAD 0

/**
 * The thread that waits for a transfer runs it: no hand-over between threads. Nothing moves while no thread
 * waits.
 */
#define DCS_DRIVER_CALLER 1

/**
 * This machine's kernel.
 */
#define DCS_BACKEND_KERNEL 0

/**
 * A dcs card, with the SSDs and NICs that the environment variables DCS_CARD, DCS_CARD_DISKS
 * (FUNCTION=DISK,...) and DCS_CARD_NIC (FUNCTION=ADDRESS/PREFIX,GATEWAY;...) name.
 */
#define DCS_BACKEND_CARD 1

/**
 * As DCS_BACKEND_KERNEL, in a guest that has virtual drives (dcs csd): operators on files of such a drive run
 * beside its disk. A file that the drive cannot read so is refused.
 */
#define DCS_BACKEND_DRIVE 2

/**
 * io_uring where it is available, else plain system calls. The environment variable DCS_IO (auto, uring,
 * plain) may override this.
 */
#define DCS_IO_AUTO 0

/**
 * io_uring; an error where it is not available.
 */
#define DCS_IO_URING 1

/**
 * Plain system calls; other threads make those that may wait.
 */
#define DCS_IO_PLAIN 2

/**
 * In dcs_engine_options.flags: bind the engine's thread to dcs_engine_options.cpu; of several cores the next
 * thread to the next CPU, and so on.
 */
#define DCS_ENGINE_BIND_CPU 1

/**
 * In dcs_engine_options.cores: one for each processor that the process may use, or that the NUMA node has.
 */
#define DCS_CORES_ALL 65535

/**
 * In dcs_engine_options.spin_us: sleep at once.
 */
#define DCS_SPIN_NEVER 4294967295

/**
 * Bytes of the name of a module: its SHA-256, with which the parameters of DCS_OP_MODULE begin.
 */
#define DCS_MODULE_NAME 32

/**
 * Data pass unchanged, and a value comes out.
 */
#define DCS_KIND_DIGEST 1

/**
 * Data change; their length does not.
 */
#define DCS_KIND_IN_PLACE 2

/**
 * Data change, and so does their length.
 */
#define DCS_KIND_RESIZE 3

/**
 * Bytes of the parameters of DCS_OP_AES256_CTR.
 */
#define DCS_AES256_CTR_PARAMETERS 48

/**
 * Bytes of the parameters of DCS_OP_AES256_XTS and DCS_OP_AES256_XTS_DECRYPT.
 */
#define DCS_AES256_XTS_PARAMETERS 80

/**
 * Most bytes of the parameters of DCS_OP_AWS_CHUNKED.
 */
#define DCS_AWS_CHUNKED_PARAMETERS 224

/**
 * Bytes of the parameters of DCS_OP_SLICE.
 */
#define DCS_SLICE_PARAMETERS 16

/**
 * Most bytes of the parameters of DCS_OP_BLOWFISH_CTR.
 */
#define DCS_BLOWFISH_CTR_PARAMETERS 64

/**
 * Most bytes of the parameters of DCS_OP_KNN.
 */
#define DCS_KNN_PARAMETERS 2056

/**
 * Bytes of the parameters of DCS_OP_BITMAP.
 */
#define DCS_BITMAP_PARAMETERS 2

/**
 * DCS_OP_KNN: elements are bytes without a sign.
 */
#define DCS_KNN_U8 0

/**
 * DCS_OP_KNN: elements are floating-point numbers of single precision, little-endian.
 */
#define DCS_KNN_F32 1

/**
 * DCS_OP_BITMAP: decompresses the one bitmap that is there.
 */
#define DCS_BITMAP_ONE 0

/**
 * DCS_OP_BITMAP: the bits that are set in all bitmaps.
 */
#define DCS_BITMAP_AND 1

/**
 * DCS_OP_BITMAP: the bits that are set in any bitmap.
 */
#define DCS_BITMAP_OR 2

/**
 * Most bytes of the parameters of DCS_OP_GREP.
 */
#define DCS_GREP_PARAMETERS 1024

/**
 * DCS_OP_GREP: ASCII letters match in either case.
 */
#define DCS_GREP_IGNORE_CASE 1

/**
 * DCS_OP_GREP: lines that do not match.
 */
#define DCS_GREP_INVERT 2

/**
 * DCS_OP_GREP: the lines' number, in decimal digits and a line feed, in place of them.
 */
#define DCS_GREP_COUNT 4

/**
 * Prefixes of up to this many bytes are copied when the transfer is submitted.
 */
#define DCS_PREFIX_COPIED 65536

/**
 * An engine. Any thread of the process that made it may use it.
 *
 * After fork(2) it stays the parent's. In the child every call with it, or with its sessions and transfers,
 * fails with EPERM, a transfer with DCS_STATUS_QUEUE_DELETED and EPERM; to stop, close and free them there
 * does nothing to the parent's. A child starts an engine of its own. Descriptors of what the parent has in
 * flight at a fork are open in the child too, until it ends or calls execve.
 */
struct dcs_engine;

/**
 * A prepared transfer. One thread at a time may use it.
 */
struct dcs_prepared;

/**
 * A queue pair to an engine, with its transfers. Threads may share it.
 */
struct dcs_session;

/**
 * A transfer, in flight or done. Threads may share it.
 */
struct dcs_transfer;

/**
 * The results of a transfer, whether it succeeded or not.
 */
struct dcs_completion {
    /**
     * Status, stage that failed, errno, bytes in and out, paths, times, digests. A digest has the place of
     * its operator in the chain: that of the first one is digests[0]. After a failure, the digests cover
     * what passed their operators.
     */
    struct dcs_result result;
    /**
     * The chain: DCS_OP_*, then zeros.
     */
    uint8_t chain[8];
    /**
     * Zero.
     */
    uint8_t reserved[56];
};

/**
 * The settings of an engine. Members that are 0 stand for the default.
 */
struct dcs_engine_options {
    /**
     * sizeof(struct dcs_engine_options).
     */
    size_t size;
    /**
     * Who runs the engine: DCS_DRIVER_*.
     */
    uint8_t driver;
    /**
     * The interface to the kernel: DCS_IO_*.
     */
    uint8_t io;
    /**
     * DCS_ENGINE_*.
     */
    uint16_t flags;
    /**
     * Bytes of a block buffer: a multiple of 4096; 131072 by default.
     */
    uint32_t block_size;
    /**
     * Block buffers, at least two for each session; 256 by default.
     */
    uint32_t blocks;
    /**
     * Transfers in flight in all, at least two for each session; 256 by default.
     */
    uint16_t commands;
    /**
     * Sessions that may be open; 64 by default.
     */
    uint16_t sessions;
    /**
     * Blocks that one transfer may hold: how far reading runs ahead of writing; 4 by default.
     */
    uint16_t window;
    /**
     * The CPU, where DCS_ENGINE_BIND_CPU is set.
     */
    uint16_t cpu;
    /**
     * Microseconds for which the engine looks for work before it sleeps; 20 by default (none on a machine
     * with one core).
     */
    uint32_t spin_us;
    /**
     * The nice value of the engine's thread, -20 to 19; 0 leaves it as it is. Those below the process's own
     * need CAP_SYS_NICE, or a limit that allows them.
     */
    int8_t nice;
    /**
     * The backend that runs the transfers: DCS_BACKEND_*.
     */
    uint8_t backend;
    /**
     * Which GPU does the operators to whose numbers DCS_OP_ON_GPU is added, counted from 1; 0: there is
     * none. See dcs_gpu_sentence.
     */
    uint8_t gpu;
    /**
     * Choice of whether that GPU reads files itself (GPUDirect Storage) where the first operator is on it:
     * DCS_MODE_*. With DCS_MODE_ON there is no engine without it; DCS_PATH_GPU_STORAGE says of each transfer
     * whether it did.
     */
    uint8_t gpu_storage;
    /**
     * Threads, for as many processors: 1 by default, DCS_CORES_ALL. Each has the blocks, commands and sessions
     * that are named above. An engine that its callers drive, that is a card's, or that has a GPU, has one.
     */
    uint16_t cores;
    /**
     * The NUMA node on whose processors the threads run, and from which they take their memory, counted from
     * 1; 0: anywhere.
     */
    uint16_t numa_node;
};

/**
 * The properties of an operator.
 */
struct dcs_operator_info {
    /**
     * Its number in a chain: DCS_OP_*.
     */
    uint8_t op;
    /**
     * DCS_KIND_*.
     */
    uint8_t kind;
    /**
     * Bytes of its digest; 0 where it is none.
     */
    uint8_t digest_size;
    /**
     * Fewest bytes of its parameters.
     */
    uint16_t parameter_min;
    /**
     * Most bytes of its parameters.
     */
    uint16_t parameter_max;
    /**
     * The name that people type: `aes256-ctr`.
     */
    const char *name;
    /**
     * A description in one line, with its source.
     */
    const char *summary;
    /**
     * The contents of its parameters.
     */
    const char *parameter;
};

/**
 * The facts that an S3 request's headers tell of a body in aws-chunked framing.
 */
struct dcs_aws_chunked {
    /**
     * Bytes of the data without their framing (`x-amz-decoded-content-length`).
     */
    uint64_t decoded_length;
    /**
     * 1 where trailers follow the last chunk (`x-amz-content-sha256` ends in `-TRAILER`), else 0.
     */
    uint8_t trailers;
    /**
     * The checksum that a trailer brings (`x-amz-trailer`): DCS_OP_CRC32, DCS_OP_CRC32C, DCS_OP_CRC64_NVME,
     * DCS_OP_SHA1 or DCS_OP_SHA256; 0 where it brings none.
     */
    uint8_t checksum;
    /**
     * Zero.
     */
    uint8_t reserved[6];
    /**
     * The 32 bytes of the signing key, derived from the secret key for day, region and service; NULL where
     * the chunks are not signed, and then the members below mean nothing.
     */
    const uint8_t *key;
    /**
     * The 32 bytes of the signature of the request's headers.
     */
    const uint8_t *seed;
    /**
     * The request's time, `YYYYMMDDTHHMMSSZ` (`x-amz-date`).
     */
    const char *timestamp;
    /**
     * The credential scope, `YYYYMMDD/region/s3/aws4_request`: 1 to 128 bytes.
     */
    const char *scope;
};

/**
 * One end of a transfer: a descriptor, or memory.
 */
struct dcs_side {
    /**
     * A file, block device, stream socket, pipe, FIFO or character device. The transfer has its own
     * duplicate: this one may be closed once the transfer is submitted. Whether it is non-blocking makes no
     * difference.
     */
    int fd;
    /**
     * The page cache: DCS_MODE_ON through it, DCS_MODE_OFF past it (O_DIRECT).
     */
    uint8_t cache;
    /**
     * Zero-copy send, and the kernel's own copy where the chain is empty or, to a socket or pipe, the source
     * is immutable: DCS_MODE_OFF forbids both; DCS_MODE_ON demands the former of a destination.
     */
    uint8_t zero_copy;
    /**
     * 1 for a source: a promise that these bytes of the file are neither written nor truncated until the
     * reader at the other end has read them. That is later than the end of the transfer, and later than
     * TCP's acknowledgement if the reader is on the same machine or in a container of it: a file that is
     * replaced by renaming another one over it keeps the promise, one that is written in place does not. If
     * the chain is empty or has only digests, the kernel may then be lent the pages of the page cache, as by
     * sendfile(2): that saves a copy or two. If the file is written all the same, the reader may get other
     * bytes than those that the digests cover. With 0 the reader gets the bytes that were read, whatever
     * happens to the file. A destination's is 0.
     */
    uint8_t immutable;
    /**
     * 1 for a destination: the virtual drive that has the file writes it itself, with DCS_BACKEND_DRIVE and
     * operators (else PATH_UNAVAILABLE). The range was written before, begins at a logical block, and has no
     * other user meanwhile; the output has to fit into it. A source's is 0.
     */
    uint8_t near_storage;
    /**
     * Position in the file or block device. 0 for everything else. The file's own position is not used, nor
     * changed.
     */
    uint64_t offset;
    /**
     * Memory in place of a descriptor; NULL where `fd` counts. It must stay valid and untouched until the
     * transfer is done: until dcs_transfer_wait or dcs_transfer_poll has said so, or dcs_transfer_free,
     * dcs_session_close or dcs_engine_stop has returned.
     */
    void *memory;
    /**
     * Bytes of the memory: what there is to read, or the room that there is.
     */
    size_t memory_length;
};

/**
 * One operator of a chain. Data pass the chain in order: a digest before a cipher covers the plain data, one
 * behind it the encrypted data. Parameters are copied when the transfer is submitted.
 */
struct dcs_op {
    /**
     * Which operator: DCS_OP_*; plus DCS_OP_ON_GPU where the engine's GPU is to do it.
     */
    uint8_t op;
    /**
     * Its parameters (key, level; see DCS_OP_*), or NULL where it takes none.
     */
    const void *parameter;
    /**
     * Bytes of its parameters.
     */
    size_t parameter_length;
};

/**
 * A transfer. Set all of it to zero first, then what is to be different.
 */
struct dcs_request {
    /**
     * sizeof(struct dcs_request).
     */
    size_t size;
    /**
     * Source of the bytes.
     */
    struct dcs_side source;
    /**
     * Destination of the bytes. A file grows as needed and is not truncated.
     */
    struct dcs_side destination;
    /**
     * Bytes to move in all, those of the prefix included; a source that ends before fails with
     * DCS_STATUS_END_OF_SOURCE. DCS_LENGTH_TO_END: all that there is, from a file as it is now. A file that
     * says that it has no bytes (one of /proc) is read until it gives no more.
     */
    uint64_t length;
    /**
     * Bytes that come before the source's: what was already read off a socket, or a header. As many as
     * DCS_PREFIX_COPIED are copied; more must stay valid and untouched until the transfer is done.
     */
    const void *prefix;
    /**
     * Bytes of the prefix.
     */
    size_t prefix_length;
    /**
     * The chain of operators on the way; NULL for none.
     */
    const struct dcs_op *chain;
    /**
     * Operators of the chain: 0 to DCS_CHAIN_MAX.
     */
    size_t operators;
    /**
     * Request id: the transfer does not start before the earlier ones of this engine with the same id are
     * finished. 0: no such order.
     */
    uint32_t rid;
    /**
     * Milliseconds after which it fails with DCS_STATUS_TIMEOUT; 0: never.
     */
    uint32_t timeout_ms;
    /**
     * DCS_FLAG_*.
     */
    uint32_t flags;
    /**
     * Zero.
     */
    uint32_t reserved;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of this library, for example `0.1.0`.
 */
const char *dcs_version(void);

/**
 * Says in one line what a transfer did: stage, status, errno and bytes delivered where it failed.
 *
 * Writes up to `size` bytes, the NUL at the end included, and returns the length of the whole line, as
 * snprintf(3) does; 0 where `completion` is NULL.
 *
 * # Safety
 *
 * `completion` is NULL or points to a completion; `line` is NULL or valid for `size` bytes.
 */
size_t dcs_completion_sentence(const struct dcs_completion *completion,
                               char *line,
                               size_t size);

/**
 * Writes a digest in lower-case hexadecimal, as md5sum(1) prints it: 2 * size + 1 bytes, at most 129.
 *
 * Writes up to `size` bytes, the NUL at the end included, and returns the length of the whole text, as
 * snprintf(3) does; 0 where there is no digest.
 *
 * # Safety
 *
 * `digest` is NULL or points to a digest; `text` is NULL or valid for `size` bytes.
 */
size_t dcs_digest_text(const struct dcs_digest *digest,
                       char *text,
                       size_t size);

/**
 * Starts an engine.
 *
 * `options` may be NULL for all defaults. The engine is stored in `*engine`; stop it with dcs_engine_stop.
 *
 * Returns 0, or -1 and errno: EFAULT (`engine` is NULL), EINVAL (a size or value that makes no engine),
 * E2BIG (options of a newer version of this library), or why the system has not what it needs (ENOSYS,
 * EPERM: io_uring was demanded and is not available; EAGAIN, EMFILE: no thread or descriptor left; EACCES:
 * the nice value is not permitted; ENODEV: there is no card, no such GPU, no such NUMA node, or it cannot be
 * used).
 *
 * # Safety
 *
 * `options` is NULL or points to as many bytes as its `size` says; `engine` is NULL or valid for a write.
 */
int dcs_engine_start(const struct dcs_engine_options *options,
                     struct dcs_engine **engine);

/**
 * Describes a GPU, counted from 1, in one line, or says why it is not available: no driver, no GPU, not that many.
 *
 * Writes up to `size` bytes, the NUL at the end included, and returns the length of the whole line, as
 * snprintf(3) does.
 *
 * # Safety
 *
 * `line` is NULL or valid for `size` bytes.
 */
size_t dcs_gpu_sentence(uint8_t gpu,
                        char *line,
                        size_t size);

/**
 * 1 where io_uring carries what takes time, 0 where plain system calls do (as with DCS_DRIVER_CALLER and
 * DCS_IO_AUTO); -1 and EFAULT for NULL.
 *
 * # Safety
 *
 * `engine` is NULL or an engine that was not stopped.
 */
int dcs_engine_uses_io_uring(const struct dcs_engine *engine);

/**
 * Its cores: how many threads it has, or 1 where its callers drive it; -1 and EFAULT for NULL.
 *
 * # Safety
 *
 * `engine` is NULL or an engine that was not stopped.
 */
int dcs_engine_cores(const struct dcs_engine *engine);

/**
 * Aborts what is in flight, waits until the engine has released all descriptors and memory, and stops it.
 *
 * Its transfers end with DCS_STATUS_QUEUE_DELETED unless they were faster. Its sessions and transfers stay,
 * and are to be closed and freed as ever, before or after; they cannot submit any more. NULL is ignored. No
 * other thread may use the engine meanwhile or later; its sessions and transfers they may.
 *
 * # Safety
 *
 * `engine` is NULL or an engine that was not stopped.
 */
void dcs_engine_stop(struct dcs_engine *engine);

/**
 * Opens a session with room for `depth` transfers (1 to 4096; 0: 64). A transfer takes its room until it is
 * freed.
 *
 * It is on one of the engine's cores for good, and so are its transfers: on that with the least load, transfers
 * in flight and open sessions. To use all cores, open as many sessions as dcs_engine_cores says, or one for
 * each of your threads. Request ids order the transfers of sessions on one core.
 *
 * Returns 0 and the session in `*session`, or -1 and errno: EFAULT (NULL), EINVAL (depth), EMFILE (as many
 * sessions are open as the engine was made for).
 *
 * # Safety
 *
 * `engine` is NULL or an engine that was not stopped; `session` is NULL or valid for a write.
 */
int dcs_session_open(struct dcs_engine *engine,
                     uint16_t depth,
                     struct dcs_session **session);

/**
 * Aborts the session's transfers, waits until the engine has released their descriptors and memory, and
 * closes it.
 *
 * The transfers end with DCS_STATUS_QUEUE_DELETED unless they were faster; they stay, and are to be freed as
 * ever, before or after. NULL is ignored. No other thread may use the session meanwhile or later; its
 * transfers they may.
 *
 * # Safety
 *
 * `session` is NULL or a session that was not closed.
 */
void dcs_session_close(struct dcs_session *session);

/**
 * An eventfd that is readable after a transfer of this session was done: read its 8 bytes, then poll the
 * transfers (dcs_transfer_poll). It does not block, belongs to the session, and is closed with it.
 *
 * Returns the descriptor, or -1 and errno: EFAULT (NULL), EOPNOTSUPP (the engine is driven by the caller
 * that waits: nothing would drive it meanwhile), EMFILE.
 *
 * # Safety
 *
 * `session` is NULL or a session that was not closed.
 */
int dcs_session_eventfd(const struct dcs_session *session);

/**
 * Lets chains of this process name an operator of the user's own: DCS_OP_MODULE, whose parameters are the
 * DCS_MODULE_NAME bytes that are put at `name`, then what the module takes. `module` are the bytes of a WebAssembly
 * module (docs/wasm.md), which are copied. A process has 256 at most; one that is loaded again is the same.
 *
 * Returns 0. On failure returns -1 and sets errno, and puts the reason at `error`, cut to `size` bytes and ended by
 * a NUL: EFAULT where a pointer is NULL, EINVAL where `length` cannot be, ENOEXEC where the bytes are no operator, ENOSPC
 * where there are too many modules, ENOSYS where the library was built without an engine for them, EIO for a fault of the
 * library's own.
 *
 * # Safety
 *
 * `module` is valid for `length` bytes, `name` for DCS_MODULE_NAME; `error` is NULL or valid for `size`.
 */
int dcs_module_load(const void *module,
                    size_t length,
                    uint8_t *name,
                    char *error,
                    size_t size);

/**
 * Forgets the module of this name. Transfers that are under way keep it. Returns 0; -1 with EFAULT for NULL.
 *
 * # Safety
 *
 * `name` is NULL or valid for DCS_MODULE_NAME bytes.
 */
int dcs_module_unload(const uint8_t *name);

/**
 * The number of the operator of that name (`md5`, `aes256-ctr`, `gpu:md5`); 0 where there is none.
 *
 * # Safety
 *
 * `name` is NULL or a string.
 */
uint8_t dcs_op_from_name(const char *name);

/**
 * Every operator that there is: points `table` at them, and returns how many there are. The table is static.
 *
 * # Safety
 *
 * `table` is NULL or points to a pointer.
 */
size_t dcs_operators(const struct dcs_operator_info **table);

/**
 * Fills in the DCS_AES256_CTR_PARAMETERS bytes at `block` from a key of 32 bytes and the first counter block
 * of 16 bytes, and returns their number; 0 where a pointer is NULL. A counter block must never be used twice
 * with a key.
 *
 * # Safety
 *
 * The pointers are NULL or valid for that many bytes, and do not overlap.
 */
size_t dcs_parameter_aes256_ctr(uint8_t *block,
                                const uint8_t *key,
                                const uint8_t *counter);

/**
 * Fills in the DCS_AES256_XTS_PARAMETERS bytes at `block` from a key of 64 bytes (data key, then tweak key),
 * the bytes of a data unit (16 to 65536, a power of two) and the number of the first unit, and returns their
 * number; 0 where a pointer is NULL.
 *
 * # Safety
 *
 * The pointers are NULL or valid for that many bytes, and do not overlap.
 */
size_t dcs_parameter_aes256_xts(uint8_t *block,
                                const uint8_t *key,
                                uint32_t unit_size,
                                uint64_t first_unit);

/**
 * Fills in the one byte at `block` with the level of DCS_OP_GZIP (0 to 9) or DCS_OP_ZSTD (1 to 19), and
 * returns 1; 0 where the pointer is NULL.
 *
 * # Safety
 *
 * The pointer is NULL or valid.
 */
size_t dcs_parameter_level(uint8_t *block,
                           uint8_t level);

/**
 * Fills in the DCS_SLICE_PARAMETERS bytes at `block` from the bytes to drop and the bytes to pass, and
 * returns their number; 0 where the pointer is NULL.
 *
 * # Safety
 *
 * The pointer is NULL or valid for that many bytes.
 */
size_t dcs_parameter_slice(uint8_t *block,
                           uint64_t skip,
                           uint64_t take);

/**
 * Fills in the first of the DCS_GREP_PARAMETERS bytes at `block` from a regular expression on bytes in UTF-8
 * and flags (DCS_GREP_*), and returns how many they are; 0 where a pointer is NULL, or the expression or the
 * flags would be refused.
 *
 * # Safety
 *
 * The pointers are NULL or valid: `block` for DCS_GREP_PARAMETERS bytes, `pattern` as a string.
 */
size_t dcs_parameter_grep(uint8_t *block,
                          const char *pattern,
                          uint8_t flags);

/**
 * Fills in the first of the DCS_BLOWFISH_CTR_PARAMETERS bytes at `block` from a key of `length` bytes (4 to 56) and
 * the first counter block of 8 bytes, and returns how many they are; 0 where a pointer is NULL or the length is
 * another. A counter block must never be used twice with a key.
 *
 * # Safety
 *
 * The pointers are NULL or valid for that many bytes, and do not overlap.
 */
size_t dcs_parameter_blowfish_ctr(uint8_t *block,
                                  const uint8_t *key,
                                  size_t length,
                                  const uint8_t *counter);

/**
 * Fills in the first of the DCS_KNN_PARAMETERS bytes at `block` from the number of neighbours (1 to 65536), the type
 * of elements (DCS_KNN_U8, DCS_KNN_F32) and the `length` bytes of the vector whose neighbours are wanted, and returns how
 * many they are; 0 where a pointer is NULL or the parameters would be refused.
 *
 * # Safety
 *
 * The pointers are NULL or valid: `block` for DCS_KNN_PARAMETERS bytes, `query` for `length`; they do not overlap.
 */
size_t dcs_parameter_knn(uint8_t *block,
                         uint32_t k,
                         uint8_t element,
                         const uint8_t *query,
                         size_t length);

/**
 * Fills in the DCS_BITMAP_PARAMETERS bytes at `block` from an operation (DCS_BITMAP_*) and a flag: 1 where not the bits
 * of the result are wanted but their number, else 0. Returns how many they are; 0 where the pointer is NULL or a value is
 * none of these.
 *
 * # Safety
 *
 * The pointer is NULL or valid for that many bytes.
 */
size_t dcs_parameter_bitmap(uint8_t *block,
                            uint8_t operation,
                            uint8_t count);

/**
 * Fills in the first of the DCS_AWS_CHUNKED_PARAMETERS bytes at `block`, and returns how many they are; 0
 * where a pointer is NULL that must not be, or where a member has a value that it cannot have.
 *
 * # Safety
 *
 * The pointers are NULL or valid: `block` for DCS_AWS_CHUNKED_PARAMETERS bytes, those in `request` as their
 * members say.
 */
size_t dcs_parameter_aws_chunked(uint8_t *block,
                                 const struct dcs_aws_chunked *request);

/**
 * Prepares a transfer that is to be submitted often, each time with other offsets and another length, and stores it in
 * `*prepared`; free it with dcs_prepared_free, before its session is closed or after. Ends, operators and settings are those of
 * `request`; its offsets are 0, its length does not count, and it has no prefix. Descriptors are duplicated and
 * parameters copied now: what becomes of the caller's later changes nothing. Memory must stay valid until it is freed.
 *
 * Returns 0; or -1 and errno: EFAULT (a pointer is NULL), EINVAL (`size`; a prefix; a destination or a chain that a
 * virtual drive has), E2BIG (a request of a newer version of this library), EBADF (a descriptor is not open), EOPNOTSUPP (an
 * operator that is none), or the errno of what is wrong with an end.
 *
 * # Safety
 *
 * `session` is NULL or a session that was not closed; `request` is NULL or points to as many bytes as its
 * `size` says, and what it points to is valid; `prepared` is NULL or valid for a write.
 */
int dcs_prepare(struct dcs_session *session,
                const struct dcs_request *request,
                struct dcs_prepared **prepared);

/**
 * Submits a prepared transfer: `length` bytes from `source_offset` on, to `destination_offset` on. Sockets, pipes and
 * character devices have offset 0.
 *
 * Returns 0; or -1 and errno, and nothing is moved: EFAULT (NULL), EBUSY (its last submission was not waited for, or
 * polled until it was done), ESPIPE (an offset of what has none), ERANGE (offset and length overflow, or the end of a block
 * device), EAGAIN (the session is full), ESHUTDOWN (the engine was stopped).
 *
 * # Safety
 *
 * `prepared` is NULL or a prepared transfer that was not freed, used by this thread alone.
 */
int dcs_prepared_submit(struct dcs_prepared *prepared,
                        uint64_t source_offset,
                        uint64_t destination_offset,
                        uint64_t length);

/**
 * Waits until the last submission is done, and stores in `*done` what it did, whether it succeeded or not; `done` may be
 * NULL. It may be asked again, with the same answer, until the next submission. On an engine that is driven by its
 * callers this drives it. A submission whose peer never answers ends by its request's timeout_ms, or when another
 * thread closes the session: dcs_session_close may be called while this waits, and then dcs_prepared_free.
 *
 * Returns 0 where it succeeded; -1 and errno where it failed: that of the system call behind it, else dcs_status_errno of
 * its status; or EFAULT (NULL), EINVAL (it was never submitted).
 *
 * # Safety
 *
 * As for dcs_prepared_submit; `done` is NULL or valid for a write.
 */
int dcs_prepared_wait(struct dcs_prepared *prepared,
                      struct dcs_completion *done);

/**
 * Says whether the last submission is done, without waiting: for loops around poll(2) and dcs_session_eventfd.
 *
 * Returns 1 where it is done and succeeded; 0 where it is not done; -1 and errno, as dcs_prepared_wait, where it is done
 * and failed. `*done` is stored in the first and last case.
 *
 * # Safety
 *
 * As for dcs_prepared_wait.
 */
int dcs_prepared_poll(struct dcs_prepared *prepared,
                      struct dcs_completion *done);

/**
 * Frees a prepared transfer. A submission that is not done is cancelled first, and waited for. NULL is ignored.
 *
 * # Safety
 *
 * `prepared` is NULL or a prepared transfer that was not freed, used by this thread alone.
 */
void dcs_prepared_free(struct dcs_prepared *prepared);

/**
 * Sends bytes of a file through operators; the shape of sendfile(2).
 *
 * Moves up to `count` bytes from `in_fd` through the `operators` operators at `through` (NULL and 0 for
 * none) to `out_fd`, and waits until that is done. A file that has fewer gives fewer. A `count` over
 * SSIZE_MAX stands for all that there is.
 *
 * `offset` says where in the file to begin, and the file's own position does not change; where it is NULL,
 * the position says it, and is moved. `in_fd` may be a stream too (socket, pipe); `offset` is then NULL. An
 * `out_fd` that is a file is written at its position, which is moved. Unlike in sendfile(2), non-blocking
 * descriptors are waited for, and signals do not interrupt.
 *
 * Returns the bytes that were read from `in_fd` and moved, all of which arrived; fewer than `count` where
 * the source has no more. How many came out of the chain is in `done->result.bytes_out`, digests are in
 * `done->result.digests`. `*offset` is moved by as many as are returned.
 *
 * Returns -1 and errno on failure: that of the system call behind it, else dcs_status_errno of
 * `done->result.status`; EFAULT, EINVAL, EBADF, ESPIPE, ENOBUFS, EAGAIN (the session is full), ESHUTDOWN
 * among them. `done->result.bytes_out` bytes had been delivered then. `*offset` is moved behind them, so
 * that another call can send the rest; where the chain changes the length (gzip) it stays.
 *
 * Unlike with sendfile(2), the file may be written to once the call has returned: the peer gets what was
 * read. A file that is never written in place is sent with fewer copies by dcs_transfer_submit, with
 * `immutable`.
 *
 * `done` may be NULL. It is filled in on failure too. Threads may share a session.
 *
 * # Safety
 *
 * `session` is NULL or a session that was not closed; `offset` and `done` are NULL or valid for reads and
 * writes; `through` is NULL or points to `operators` operators.
 */
ssize_t dcs_sendfile(struct dcs_session *session,
                     int out_fd,
                     int in_fd,
                     off_t *offset,
                     size_t count,
                     const struct dcs_op *through,
                     size_t operators,
                     struct dcs_completion *done);

/**
 * Receives bytes into a file through operators; the counterpart of dcs_sendfile.
 *
 * Moves `count` bytes to `out_fd`: first the `prefix_length` bytes at `prefix` (what was already read off
 * the socket; NULL and 0 for none), which count, then what `in_sock` receives; all of them through the
 * `operators` operators at `through`; and waits until that is done. A peer that stops sending before gives
 * fewer. A `count` over SSIZE_MAX stands for all that it sends.
 *
 * `offset` says where in the file to write, and the file's own position does not change; where it is NULL,
 * the position says it, and is moved. Both are moved by the bytes that were written,
 * `done->result.bytes_out`, on failure too. The file grows as needed and is not truncated. `out_fd` may be a
 * stream too; `offset` is then NULL.
 *
 * Returns the bytes of prefix and socket that went in, all of which arrived; fewer than `count` where the
 * peer stopped sending. Returns -1 and errno on failure, as dcs_sendfile; what was received and not
 * delivered is lost then, and `done->result.bytes_in` says how much was received.
 *
 * `done` may be NULL. It is filled in on failure too. Threads may share a session.
 *
 * # Safety
 *
 * As for dcs_sendfile; `prefix` is NULL or valid for `prefix_length` bytes.
 */
ssize_t dcs_recvfile(struct dcs_session *session,
                     int in_sock,
                     int out_fd,
                     off_t *offset,
                     size_t count,
                     const void *prefix,
                     size_t prefix_length,
                     const struct dcs_op *through,
                     size_t operators,
                     struct dcs_completion *done);

/**
 * The name of a status: `END_OF_SOURCE` for DCS_STATUS_END_OF_SOURCE, `UNKNOWN` for a number that is none.
 *
 * The text is static. Any thread may call this any time.
 */
const char *dcs_status_name(uint16_t status);

/**
 * Describes a status, in one line. The text is static.
 */
const char *dcs_status_meaning(uint16_t status);

/**
 * Advises about a status, in one line. The text is static.
 */
const char *dcs_status_advice(uint16_t status);

/**
 * The errno that a function leaves where a transfer ends with this status and no system call is behind it; 0
 * for DCS_STATUS_SUCCESS.
 */
int dcs_status_errno(uint16_t status);

/**
 * Submits a transfer, which is stored in `*transfer`; free it with dcs_transfer_free.
 *
 * Everything that `request` points to is read now, but for memory, and prefixes longer than
 * DCS_PREFIX_COPIED. An error in the transfer itself (a descriptor that is not open, an unknown operator, a
 * wrong key length) is told by its completion, with its stage, as everything that goes wrong later.
 *
 * Returns 0; or -1 and errno, and there is no transfer: EFAULT (a pointer is NULL), EINVAL (`size`), E2BIG
 * (a request of a newer version of this library), EAGAIN (as many transfers are in flight or not freed as
 * the session has room for), ESHUTDOWN (the engine was stopped).
 *
 * # Safety
 *
 * `session` is NULL or a session that was not closed; `request` is NULL or points to as many bytes as its
 * `size` says, and what it points to is valid; `transfer` is NULL or valid for a write.
 */
int dcs_transfer_submit(struct dcs_session *session,
                        const struct dcs_request *request,
                        struct dcs_transfer **transfer);

/**
 * Waits until a transfer is done, and stores in `*done` what it did, whether it succeeded or not; `done` may
 * be NULL.
 *
 * It may be asked again, with the same answer. On an engine that is driven by its callers this drives it.
 * Signals do not interrupt it; dcs_transfer_cancel from another thread, or a timeout in the request, ends
 * it.
 *
 * Returns 0 where the transfer succeeded; -1 and errno where it failed: that of the system call behind it,
 * else dcs_status_errno of its status; or EFAULT (`transfer` is NULL).
 *
 * # Safety
 *
 * `transfer` is NULL or a transfer that was not freed; `done` is NULL or valid for a write.
 */
int dcs_transfer_wait(const struct dcs_transfer *transfer,
                      struct dcs_completion *done);

/**
 * Says whether a transfer is done, without waiting: for loops around poll(2) and dcs_session_eventfd.
 *
 * Returns 1 where it is done and succeeded; 0 where it is not done; -1 and errno, as dcs_transfer_wait,
 * where it is done and failed. `*done` is stored in the first and last case. It may be asked again, with the
 * same answer.
 *
 * # Safety
 *
 * As for dcs_transfer_wait.
 */
int dcs_transfer_poll(const struct dcs_transfer *transfer,
                      struct dcs_completion *done);

/**
 * Asks the engine to abort a transfer; another thread may be waiting for it. It is done soon after, with
 * DCS_STATUS_CANCELLED unless it was faster: wait for it, or free it.
 *
 * Returns 0; or -1 and EFAULT (NULL).
 *
 * # Safety
 *
 * `transfer` is NULL or a transfer that was not freed.
 */
int dcs_transfer_cancel(const struct dcs_transfer *transfer);

/**
 * Frees a transfer. One that is not done is cancelled first, and waited for: when this returns, the engine
 * uses none of its memory and descriptors any more. NULL is ignored. No other thread may use the transfer
 * meanwhile or later.
 *
 * # Safety
 *
 * `transfer` is NULL or a transfer that was not freed.
 */
void dcs_transfer_free(struct dcs_transfer *transfer);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#ifdef __cplusplus
}
#endif

#endif /* DCS_H */
