// The extensions of CUDA C that the kernels use, in C++: a block's threads are coroutines of one thread.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <ucontext.h>
#include <vector>

#define __device__
#define __global__
#define __constant__ const
#define __forceinline__ inline
#define __launch_bounds__(threads)
// State of a block: blocks run one after the other, each on one thread.
#define __shared__ static thread_local

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

namespace shim {

struct Dim {
    unsigned x = 0, y = 0, z = 0;
};

struct State {
    Dim thread, block, threads, blocks;
    ucontext_t scheduler;
    std::vector<ucontext_t> contexts;
    std::vector<std::vector<char>> stacks;
    std::vector<char> over;
    const std::function<void()> *kernel = nullptr;
    bool barriers = false;
};

inline State &state() {
    static thread_local State state;
    return state;
}

inline void begin() {
    State &now = state();
    (*now.kernel)();
    state().over[state().thread.x] = 1;
}

inline void barrier() {
    State &now = state();
    if (!now.barriers) {
        abort();
    }
    swapcontext(&now.contexts[now.thread.x], &now.scheduler);
}

// Runs a grid. Threads take turns at barriers; they run in ascending and descending order alternately, so that a missing barrier shows.
inline void run(Dim blocks, Dim threads, bool barriers, const std::function<void()> &kernel) {
    State &now = state();
    now.threads = threads;
    now.blocks = blocks;
    now.kernel = &kernel;
    now.barriers = barriers;
    now.contexts.resize(threads.x);
    now.stacks.resize(threads.x);
    for (unsigned y = 0; y < blocks.y; y++) {
        for (unsigned x = 0; x < blocks.x; x++) {
            now.block = {x, y, 0};
            if (!barriers) {
                for (unsigned thread = 0; thread < threads.x; thread++) {
                    now.thread = {thread, 0, 0};
                    kernel();
                }
                continue;
            }
            now.over.assign(threads.x, 0);
            for (unsigned thread = 0; thread < threads.x; thread++) {
                now.stacks[thread].resize(64 << 10);
                getcontext(&now.contexts[thread]);
                now.contexts[thread].uc_stack.ss_sp = now.stacks[thread].data();
                now.contexts[thread].uc_stack.ss_size = now.stacks[thread].size();
                now.contexts[thread].uc_link = &now.scheduler;
                makecontext(&now.contexts[thread], begin, 0);
            }
            for (bool down = false;; down = !down) {
                unsigned over = 0;
                for (unsigned at = 0; at < threads.x; at++) {
                    now.thread = {down ? threads.x - 1 - at : at, 0, 0};
                    swapcontext(&now.scheduler, &now.contexts[now.thread.x]);
                    over += now.over[now.thread.x];
                }
                if (over == threads.x) {
                    break;
                }
                if (over != 0) {
                    abort(); // some ended while others wait at a barrier
                }
            }
        }
    }
}

} // namespace shim

#define threadIdx (shim::state().thread)
#define blockIdx (shim::state().block)
#define blockDim (shim::state().threads)
#define gridDim (shim::state().blocks)

inline void __syncthreads() { shim::barrier(); }

inline unsigned atomicXor(unsigned *place, unsigned value) {
    unsigned before = *place;
    *place ^= value;
    return before;
}
