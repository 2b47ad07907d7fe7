/* dcs_operator.h: an operator of dcs in WebAssembly, written in C. docs/wasm.md describes the interface.
 *
 * Define DCS_IN_PLACE before it where the output is to be written over the input, DCS_BUFFER for buffers of another
 * size than 64 KiB. Then write dcs_start and dcs_step. Memory starts as zeros for every stream. Build:
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

/* What dcs_step returns. */
enum {
    DCS_GO_ON = 0,     /* more may follow */
    DCS_FINISHED = 1,  /* all is consumed and all is out; only with `last` */
    DCS_CORRUPT = 2,   /* the data are not what this operator takes */
    DCS_TRUNCATED = 3, /* the data ended too early */
};

/* What dcs reads, little-endian as all of WebAssembly. */
struct dcs_block {
    uint32_t version; /* 1 */
    uint32_t input, input_size;
    uint32_t output, output_size;
    uint32_t consumed, produced; /* of the last dcs_step */
    uint32_t value_size;         /* 0 to 64: what the operator tells at its end, as a digest does */
    uint8_t value[64];
};

static uint8_t dcs_input[DCS_BUFFER];
#ifdef DCS_IN_PLACE
#define dcs_output dcs_input
#else
static uint8_t dcs_output[DCS_BUFFER];
#endif
static struct dcs_block dcs_block;

/* Says where everything lies; called once. */
DCS_EXPORT(dcs_operator) struct dcs_block *dcs_operator(void)
{
    dcs_block.version = 1;
    dcs_block.input = (uint32_t)(uintptr_t)dcs_input;
    dcs_block.input_size = sizeof dcs_input;
    dcs_block.output = (uint32_t)(uintptr_t)dcs_output;
    dcs_block.output_size = sizeof dcs_output;
    return &dcs_block;
}

/* A stream begins. dcs_input has its parameter, `length` bytes, at most 1,024. 0: it is taken; else: it is not. */
DCS_EXPORT(dcs_start) int32_t dcs_start(uint32_t length);

/* The next `length` bytes are in dcs_input; `last`: nothing follows them. Say how many of them you have consumed, and
 * how many bytes you have produced in dcs_output: what was not consumed comes again. Do something each time, unless
 * you are finished. With `last` it is called again, until it is finished. */
DCS_EXPORT(dcs_step) int32_t dcs_step(uint32_t length, int32_t last);

/* What dcs_step says: this many bytes consumed and produced. */
static inline int32_t dcs_say(size_t consumed, size_t produced, int32_t answer)
{
    dcs_block.consumed = (uint32_t)consumed;
    dcs_block.produced = (uint32_t)produced;
    return answer;
}

#endif
