/* dcs_operator.h: an operator of dcs in WebAssembly, written in C. docs/wasm.md describes the interface.
 *
 * Define DCS_IN_PLACE before including it if the output overwrites the input, and DCS_BUFFER for buffers of a size
 * other than 64 KiB. Then write dcs_start and dcs_step. Memory is zeroed for every stream. Build:
 *
 *   clang --target=wasm32 -O2 -mbulk-memory -nostdlib -Wl,--no-entry -o mine.wasm mine.c
 */
#ifndef DCS_OPERATOR_H
#define DCS_OPERATOR_H

#include <stddef.h>
#include <stdint.h>

#ifndef DCS_BUFFER
#define DCS_BUFFER 65536
#endif

#define DCS_EXPORT(name) __attribute__((export_name(#name)))

/* Return values of dcs_step. */
enum {
    DCS_GO_ON = 0,     /* more may follow */
    DCS_FINISHED = 1,  /* all input is consumed and all output produced; only with `last` */
    DCS_CORRUPT = 2,   /* the operator cannot process the data */
    DCS_TRUNCATED = 3, /* the data ended too early */
};

/* The block that dcs reads, little-endian as everything in WebAssembly. */
struct dcs_block {
    uint32_t version; /* 1 */
    uint32_t input, input_size;
    uint32_t output, output_size;
    uint32_t consumed, produced; /* of the last dcs_step */
    uint32_t value_size;         /* 0 to 64: bytes of the operator's result, such as a digest */
    uint8_t value[64];
};

static uint8_t dcs_input[DCS_BUFFER];
#ifdef DCS_IN_PLACE
#define dcs_output dcs_input
#else
static uint8_t dcs_output[DCS_BUFFER];
#endif
static struct dcs_block dcs_block;

/* Returns the block with the places of the buffers; called once. */
DCS_EXPORT(dcs_operator) struct dcs_block *dcs_operator(void)
{
    dcs_block.version = 1;
    dcs_block.input = (uint32_t)(uintptr_t)dcs_input;
    dcs_block.input_size = sizeof dcs_input;
    dcs_block.output = (uint32_t)(uintptr_t)dcs_output;
    dcs_block.output_size = sizeof dcs_output;
    return &dcs_block;
}

/* Begins a stream. dcs_input has its parameter, `length` bytes, at most 1,024. Returns 0 to accept it. */
DCS_EXPORT(dcs_start) int32_t dcs_start(uint32_t length);

/* Processes the next `length` bytes in dcs_input; with `last` nothing follows them. Reports the bytes consumed, and the
 * bytes produced in dcs_output; bytes not consumed are passed again. Each call must make progress, unless the stream
 * is finished. With `last` it is called until it is finished. */
DCS_EXPORT(dcs_step) int32_t dcs_step(uint32_t length, int32_t last);

/* Makes the answer of dcs_step: this many bytes consumed and produced. */
static inline int32_t dcs_say(size_t consumed, size_t produced, int32_t answer)
{
    dcs_block.consumed = (uint32_t)consumed;
    dcs_block.produced = (uint32_t)produced;
    return answer;
}

#endif
