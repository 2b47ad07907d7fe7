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
