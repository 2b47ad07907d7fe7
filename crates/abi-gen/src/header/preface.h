/*
 * dcs.h - commands that move bytes from device to device, with operators in between.
 *
 * One command says where bytes are, what happens to them on the way, and where they go:
 *
 *     file -> md5, aes256-ctr -> socket
 *
 * An engine runs it and answers with one completion: status, bytes delivered, digests, times.
 * The first part of this file is the command set, byte for byte as it lies in memory (docs/abi.md
 * explains it); it needs no library. Functions, where there are any, are in libdcs:
 *
 *     cc -I include program.c -ldcs
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
