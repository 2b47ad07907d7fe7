/* Fills every structure of dcs.h and writes its bytes; header.rs says the same values in Rust. C11 and C++17.
 * errno.h is included because it makes a macro of a name that a field has. */
#include "dcs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void put(const void *bytes, size_t size) {
    fwrite(bytes, size, 1, stdout);
}

static void submission(void) {
    struct dcs_sqe sqe;
    memset(&sqe, 0, sizeof sqe);
    sqe.opcode = DCS_OPCODE_TRANSFER;
    sqe.nvme_flags = 0x40;
    sqe.cid = 0x0102;
    sqe.nsid = 0x03040506;
    sqe.rid = 0x0708090a;
    sqe.descriptor_length = 0x0b0c0d0e;
    sqe.result_address = UINT64_C(0x0f10111213141516);
    sqe.descriptor_address = UINT64_C(0x1718191a1b1c1d1e);
    sqe.op_chain[0] = DCS_OP_MD5;
    sqe.op_chain[1] = DCS_OP_AES256_CTR;
    sqe.op_chain[2] = DCS_OP_CRC64_NVME;
    sqe.op_chain[DCS_CHAIN_MAX - 1] = 0x7f;
    sqe.length = DCS_LENGTH_TO_END - 1;
    sqe.timeout_ms = 0x1f202122;
    sqe.flags = DCS_FLAG_DURABLE | DCS_FLAG_MORE;
    put(&sqe, DCS_SQE_SIZE);
}

static void completion(void) {
    struct dcs_cqe cqe;
    memset(&cqe, 0, sizeof cqe);
    for (int i = 0; i < 6; i++) {
        cqe.delivered[i] = (uint8_t)(i + 1);
    }
    cqe.stage = DCS_STAGE_OPERATOR;
    cqe.stage_index = 3;
    cqe.sq_head = 0x0405;
    cqe.sq_id = 0x0607;
    cqe.cid = 0x0809;
    cqe.status = (uint16_t)(DCS_STATUS_CORRUPT_DATA << 1 | 1u);
    put(&cqe, DCS_CQE_SIZE);
}

static struct dcs_endpoint endpoint(uint8_t kind, uint32_t seed) {
    struct dcs_endpoint endpoint;
    memset(&endpoint, 0, sizeof endpoint);
    endpoint.kind = kind;
    endpoint.cache = DCS_MODE_OFF;
    endpoint.zero_copy = DCS_MODE_ON;
    endpoint.immutable = 0x5a;
    endpoint.handle = seed;
    endpoint.extents_offset = seed + 1;
    endpoint.extents_count = seed + 2;
    endpoint.rate = 0x0102030405060708 + seed;
    endpoint.window_us = seed + 3;
    endpoint.pacing = DCS_PACING_PCR;
    return endpoint;
}

static void descriptor(void) {
    struct dcs_descriptor header;
    struct dcs_extent extent;
    memset(&header, 0, sizeof header);
    memset(&extent, 0, sizeof extent);
    header.version = DCS_ABI_VERSION;
    header.header_length = sizeof header;
    header.total_length = 0x00010203;
    header.prefix = endpoint(DCS_ENDPOINT_MEMORY, 0x10000000);
    header.source = endpoint(DCS_ENDPOINT_FILE, 0x20000000);
    header.destination = endpoint(DCS_ENDPOINT_FLOW, 0x30000000);
    for (uint32_t at = 0; at < DCS_CHAIN_MAX; at++) {
        header.parameters[at].kind = DCS_PARAMETER_DIRECT;
        header.parameters[at].length = 100 + at;
        header.parameters[at].offset = UINT64_C(0x100000000) + at;
    }
    extent.offset = UINT64_C(0x1122334455667788);
    extent.length = 0x99aa;
    put(&header, DCS_DESCRIPTOR_SIZE);
    put(&extent, DCS_EXTENT_SIZE);
}

static void times(struct dcs_stage_times *slot, uint64_t at) {
    slot->first_issue = at;
    slot->last_done = at << 8;
    slot->busy = at << 16;
    slot->operations = at << 24;
}

static void digest(struct dcs_digest *slot, uint8_t at) {
    slot->operator_ = at;
    slot->size = (uint8_t)(at + 1);
    slot->covered = UINT64_C(0x010000000000) + at;
    for (int byte = 0; byte < DCS_DIGEST_MAX; byte++) {
        slot->value[byte] = (uint8_t)(byte ^ at);
    }
}

static void result(void) {
    struct dcs_result result;
    memset(&result, 0, sizeof result);
    result.status = DCS_STATUS_PEER_RESET;
    result.stage = DCS_STAGE_DESTINATION;
    result.stage_index = 7;
    result.errno_ = 104;
    result.path = DCS_PATH_IO_URING | DCS_PATH_PEER_TO_PEER;
    result.bytes_in = UINT64_C(0x0101010101010101);
    result.bytes_out = UINT64_C(0x0202020202020202);
    result.queued = UINT64_C(0x0303030303030303);
    result.started = UINT64_C(0x0404040404040404);
    result.finished = UINT64_C(0x0505050505050505);
    for (uint64_t at = 0; at < 10; at++) {
        times(&result.stages[at], at + 1);
    }
    for (uint8_t at = 0; at < DCS_CHAIN_MAX; at++) {
        digest(&result.digests[at], at);
    }
    put(&result, DCS_RESULT_SIZE);
}

int main(void) {
    submission();
    completion();
    descriptor();
    result();
    return ferror(stdout);
}
