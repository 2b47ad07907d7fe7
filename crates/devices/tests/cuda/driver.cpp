// A stand-in for CUDA's driver in tests: the entry points that dcs calls, and dcs's kernels, compiled from the same source as C++.
//
// It shows that the kernels compute the right results and that the controller uses the interface as documented. It is not a GPU: it says
// nothing about speed, about a real driver's behaviour, or about the PTX, which ptxas checks (tools/gpu-kernels).
//
// Asynchronous work is done late, on a thread of the context, with streams in random order: a buffer that is reused too early gives
// wrong bytes. After a fault, the other streams continue with their work until the context is destroyed. A violation of the interface
// (a call without a context, a handle of another one, a copy from memory that is not locked, memory freed while a copy waits) ends the
// process with a message.
//
// The number of the device selects the fault:
//
//   0          nothing
//   1          the third kernel ends with a fault, which the context keeps
//   2          the GPU has 64 KiB of memory
//   3          every second launch is refused, and nothing else
//   4          every kernel takes 300 ms
//   5          the first kernel takes 6.5 s
//   6          cuFile's driver does not open (storage.cpp)
//   7          cuFile is in compatibility mode
//   8          cuFile refuses every file
//   9          every second read of cuFile's comes short
//   10         cuFile does not register memory
//   12         the first read of cuFile's takes 6.5 s
//   13         as 1, and the context cannot be destroyed: its work goes on
//   1000 + n   the n-th piece of asynchronous work ends with a fault, which the context keeps
//   2000 + n   the n-th call after the context was created is refused
//   3000 + n   from the n-th call after the context was created on, the GPU is gone: every call is refused
//   4000 + n   the n-th read of cuFile's fails with EIO
//   5000 + n   the n-th read of cuFile's comes short
//   6000 + n   the n-th read of cuFile's fails half-way with an error of cuFile
//   7000 + n   the n-th other call of cuFile's is refused

#include "shim.h"

#include "../../src/gpu/kernels.cu"

#include <atomic>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <sys/mman.h>
#include <thread>

namespace {

typedef int Result;
enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    OUT_OF_RESOURCES = 701,
    LAUNCH_FAILED = 719,
    UNKNOWN = 999,
};

const struct {
    Result code;
    const char *name, *text;
} ERRORS[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

[[noreturn]] void misused(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "stand-in of CUDA's driver: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    abort();
}

struct Context;

struct Stream {
    Context *context;
    std::deque<std::function<Result()>> work;
    bool busy = false;
};

struct Event {
    Context *context;
    bool timed;
    int pending = 0;
    bool recorded = false;
    std::chrono::steady_clock::time_point time;
};

struct Module {
    Context *context;
    std::string text;
};

struct Function {
    Context *context;
    int kernel;
};

typedef std::map<uintptr_t, size_t> Ranges;

struct Context {
    int device;
    std::mutex mutex;
    std::condition_variable changed;
    std::set<Stream *> streams;
    std::set<Event *> events;
    std::set<Module *> modules;
    std::set<Function *> functions;
    Ranges memory;  // of the device
    Ranges mapped;  // likewise, with the guards around
    Ranges locked;  // of the host
    std::set<void *> own; // subset that was allocated here
    Result failed = SUCCESS;
    Stream *failing = nullptr;
    bool stopping = false;
    unsigned calls = 0, done = 0, kernels = 0, launches = 0;
    std::minstd_rand random{1};
    std::thread thread;

    explicit Context(int device) : device(device), thread([this] { run(); }) {}

    void run() {
        std::unique_lock<std::mutex> lock(mutex);
        for (;;) {
            std::vector<Stream *> ready;
            for (Stream *stream : streams) {
                if (!stream->work.empty() && stream != failing) {
                    ready.push_back(stream);
                }
            }
            if (stopping) {
                return;
            }
            if (ready.empty()) {
                changed.wait(lock);
                continue;
            }
            Stream *stream = ready[random() % ready.size()];
            auto work = std::move(stream->work.front());
            stream->work.pop_front();
            stream->busy = true;
            unsigned late = random() % 16 == 0 ? random() % 200 : 0;
            Result result = SUCCESS;
            if (device >= 1000 && device < 2000 && ++done == unsigned(device - 1000)) {
                result = ILLEGAL_ADDRESS;
            }
            lock.unlock();
            std::this_thread::sleep_for(std::chrono::microseconds(late));
            if (result == SUCCESS) {
                result = work();
            }
            lock.lock();
            stream->busy = false;
            if (result != SUCCESS && failed == SUCCESS) {
                failed = result;
                failing = stream;
            }
            changed.notify_all();
        }
    }

    void add(Stream *stream, std::function<Result()> work) {
        stream->work.push_back(std::move(work));
        changed.notify_all();
    }
};

bool contains(const Ranges &ranges, const void *start, size_t length) {
    auto after = ranges.upper_bound(uintptr_t(start));
    if (after == ranges.begin()) {
        return false;
    }
    auto range = std::prev(after);
    return uintptr_t(start) - range->first <= range->second && length <= range->second - (uintptr_t(start) - range->first);
}

std::mutex contexts_mutex;
std::set<Context *> contexts;
thread_local std::vector<Context *> stack;
std::atomic<bool> started{false};

// Interface to cuFile's stand-in; see storage.cpp.
void storage_check(uint64_t address, size_t length);
void storage_ends(Context *context);

// The current context, locked; every call after its creation goes through this.
struct Call {
    Context *context;
    std::unique_lock<std::mutex> lock;
    Result result = SUCCESS;

    explicit Call(const char *name) {
        if (stack.empty()) {
            misused("%s without a current context", name);
        }
        context = stack.back();
        lock = std::unique_lock<std::mutex>(context->mutex);
        unsigned call = ++context->calls;
        int device = context->device;
        if ((device >= 2000 && device < 3000 && call == unsigned(device - 2000)) ||
            (device >= 3000 && device < 4000 && call >= unsigned(device - 3000))) {
            result = UNKNOWN;
        } else {
            result = context->failed;
        }
    }

    template <typename T> T *own(const std::set<T *> &all, void *handle, const char *what) {
        if (all.count(static_cast<T *>(handle)) == 0) {
            misused("a %s that is not the current context's", what);
        }
        return static_cast<T *>(handle);
    }

    Stream *stream(void *handle) { return own(context->streams, handle, "stream"); }
    Event *event(void *handle) { return own(context->events, handle, "event"); }

    void device_range(uint64_t address, size_t length) {
        if (!contains(context->memory, reinterpret_cast<void *>(address), length)) {
            misused("%zu bytes at %llx are not memory of the device", length, (unsigned long long)address);
        }
        storage_check(address, length);
    }

    void host_range(const void *start, size_t length) {
        if (!contains(context->locked, start, length)) {
            misused("an asynchronous copy of %zu bytes whose pages on the host are not locked", length);
        }
    }
};

#define CALL(name)                                                                                                     \
    Call call(name);                                                                                                   \
    if (call.result != SUCCESS) {                                                                                      \
        return call.result;                                                                                            \
    }

const struct {
    const char *name;
    int parameters;
} KERNELS[] = {{"dcs_md5", 2}, {"dcs_sha256", 2}, {"dcs_crc32", 2}, {"dcs_aes256_ctr", 1}};

void run_kernel(int kernel, shim::Dim grid, shim::Dim block, const std::vector<std::vector<u8>> &parameters) {
    auto parameter = [&](int at, auto value) {
        memcpy(&value, parameters[at].data(), sizeof value);
        return value;
    };
    uint64_t jobs = parameter(0, uint64_t());
    switch (kernel) {
    case 0: {
        u32 count = parameter(1, u32());
        return shim::run(grid, block, false, [=] { dcs_md5(reinterpret_cast<HashJob *>(jobs), count); });
    }
    case 1: {
        u32 count = parameter(1, u32());
        return shim::run(grid, block, false, [=] { dcs_sha256(reinterpret_cast<HashJob *>(jobs), count); });
    }
    case 2: {
        CrcConstants constants = parameter(1, CrcConstants());
        return shim::run(grid, block, true, [=] { dcs_crc32(reinterpret_cast<CrcJob *>(jobs), constants); });
    }
    default:
        return shim::run(grid, block, true, [=] { dcs_aes256_ctr(reinterpret_cast<AesJob *>(jobs)); });
    }
}

size_t parameter_size(int kernel, int at) {
    return at == 0 ? sizeof(uint64_t) : kernel == 2 ? sizeof(CrcConstants) : sizeof(u32);
}

bool exists(int device) { return (device >= 0 && device <= 13) || (device >= 1000 && device < 8000); }

} // namespace

extern "C" {

// Tells dcs that there is no GPU behind it.
int dcs_stand_in = 1;

Result cuInit(unsigned flags) {
    if (flags != 0) {
        return INVALID_VALUE;
    }
    started = true;
    return SUCCESS;
}

Result cuDriverGetVersion(int *version) { return *version = 11080, SUCCESS; }

Result cuGetErrorName(Result code, const char **name) {
    for (auto &error : ERRORS) {
        if (error.code == code) {
            return *name = error.name, SUCCESS;
        }
    }
    return *name = nullptr, INVALID_VALUE;
}

Result cuGetErrorString(Result code, const char **text) {
    for (auto &error : ERRORS) {
        if (error.code == code) {
            return *text = error.text, SUCCESS;
        }
    }
    return *text = nullptr, INVALID_VALUE;
}

Result cuDeviceGetCount(int *count) {
    if (!started) {
        misused("cuDeviceGetCount before cuInit");
    }
    return *count = 1, SUCCESS;
}

Result cuDeviceGet(int *device, int ordinal) {
    if (!started) {
        misused("cuDeviceGet before cuInit");
    }
    return exists(ordinal) ? (*device = ordinal, SUCCESS) : INVALID_DEVICE;
}

Result cuDeviceGetName(char *name, int length, int device) {
    if (!exists(device)) {
        return INVALID_DEVICE;
    }
    snprintf(name, length, "stand-in, no GPU");
    return SUCCESS;
}

Result cuDeviceTotalMem_v2(size_t *bytes, int device) {
    return *bytes = device == 2 ? 64 << 10 : size_t(1) << 30, SUCCESS;
}

Result cuDeviceGetAttribute(int *value, int which, int) {
    switch (which) {
    case 16:
        return *value = 1, SUCCESS;
    case 38:
        return *value = 64 << 10, SUCCESS;
    case 75:
        return *value = 7, SUCCESS;
    case 76:
        return *value = 0, SUCCESS;
    default:
        return INVALID_VALUE;
    }
}

Result cuCtxCreate_v2(void **context, unsigned, int device) {
    if (!exists(device)) {
        return INVALID_DEVICE;
    }
    Context *made = new Context(device);
    std::lock_guard<std::mutex> lock(contexts_mutex);
    contexts.insert(made);
    stack.push_back(made);
    *context = made;
    return SUCCESS;
}

Result cuCtxDestroy_v2(void *handle) {
    Context *context = static_cast<Context *>(handle);
    {
        std::lock_guard<std::mutex> lock(contexts_mutex);
        if (contexts.erase(context) == 0) {
            misused("a context is destroyed that is not there");
        }
    }
    if (context->device == 13) {
        return UNKNOWN;
    }
    storage_ends(context);
    {
        std::lock_guard<std::mutex> lock(context->mutex);
        context->stopping = true;
        context->changed.notify_all();
    }
    context->thread.join();
    while (!stack.empty() && stack.back() == context) {
        stack.pop_back();
    }
    for (auto &range : context->mapped) {
        munmap(reinterpret_cast<void *>(range.first), range.second);
    }
    for (void *memory : context->own) {
        free(memory);
    }
    for (Stream *stream : context->streams) {
        delete stream;
    }
    for (Event *event : context->events) {
        delete event;
    }
    for (Module *module : context->modules) {
        delete module;
    }
    for (Function *function : context->functions) {
        delete function;
    }
    delete context;
    return SUCCESS;
}

Result cuCtxPushCurrent_v2(void *handle) {
    Context *context = static_cast<Context *>(handle);
    std::lock_guard<std::mutex> lock(contexts_mutex);
    if (contexts.count(context) == 0) {
        misused("a context is made current that is not there");
    }
    stack.push_back(context);
    return SUCCESS;
}

Result cuCtxPopCurrent_v2(void **context) {
    if (stack.empty()) {
        misused("no context is current");
    }
    *context = stack.back();
    stack.pop_back();
    return SUCCESS;
}

Result cuModuleLoadData(void **module, const void *image) {
    CALL("cuModuleLoadData")
    std::string text(static_cast<const char *>(image));
    if (text.find(".version") == text.npos || text.find(".target") == text.npos) {
        return INVALID_IMAGE;
    }
    *module = *call.context->modules.insert(new Module{call.context, text}).first;
    return SUCCESS;
}

Result cuModuleGetFunction(void **function, void *handle, const char *name) {
    CALL("cuModuleGetFunction")
    Module *module = call.own(call.context->modules, handle, "module");
    size_t at = module->text.find(std::string(".entry ") + name + "(");
    for (int kernel = 0; kernel < 4 && at != module->text.npos; kernel++) {
        if (strcmp(KERNELS[kernel].name, name) == 0) {
            std::string list = module->text.substr(at, module->text.find(')', at) - at);
            int parameters = 0;
            for (size_t from = 0; (from = list.find(".param", from)) != list.npos; from++) {
                parameters++;
            }
            if (parameters != KERNELS[kernel].parameters) {
                misused("%s has %d parameters in the PTX", name, parameters);
            }
            *function = *call.context->functions.insert(new Function{call.context, kernel}).first;
            return SUCCESS;
        }
    }
    return NOT_FOUND;
}

Result cuMemAlloc_v2(uint64_t *address, size_t length) {
    CALL("cuMemAlloc")
    size_t all = length;
    for (auto &range : call.context->memory) {
        all += range.second;
    }
    if (all > (call.context->device == 2 ? size_t(64) << 10 : size_t(1) << 30)) {
        return OUT_OF_MEMORY;
    }
    // The memory before it, and after it up to the next page, must not be touched.
    size_t pages = (length + 4095) / 4096 * 4096;
    char *start = static_cast<char *>(mmap(nullptr, pages + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(start + 4096, pages, PROT_READ | PROT_WRITE);
    memset(start + 4096, 0xa5, pages);
    call.context->mapped[uintptr_t(start)] = pages + 8192;
    call.context->memory[uintptr_t(start + 4096)] = length;
    *address = uintptr_t(start + 4096);
    return SUCCESS;
}

Result cuMemAllocHost_v2(void **start, size_t length) {
    CALL("cuMemAllocHost")
    *start = aligned_alloc(4096, (length + 4095) / 4096 * 4096);
    memset(*start, 0xa5, length);
    call.context->own.insert(*start);
    call.context->locked[uintptr_t(*start)] = length;
    return SUCCESS;
}

Result cuMemHostRegister_v2(void *start, size_t length, unsigned flags) {
    CALL("cuMemHostRegister")
    if (flags != 0 || length == 0) {
        return INVALID_VALUE;
    }
    auto &locked = call.context->locked;
    auto after = locked.lower_bound(uintptr_t(start));
    bool overlaps = after != locked.end() && after->first < uintptr_t(start) + length;
    overlaps |= after != locked.begin() && std::prev(after)->first + std::prev(after)->second > uintptr_t(start);
    if (overlaps) {
        misused("pages are locked twice");
    }
    locked[uintptr_t(start)] = length;
    return SUCCESS;
}

Result cuMemHostUnregister(void *start) {
    CALL("cuMemHostUnregister")
    for (Stream *stream : call.context->streams) {
        if (stream->busy || !stream->work.empty()) {
            misused("pages are unlocked while a stream is busy");
        }
    }
    return call.context->locked.erase(uintptr_t(start)) == 1 ? SUCCESS : INVALID_VALUE;
}

Result cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t length, void *stream) {
    CALL("cuMemcpyHtoDAsync")
    call.device_range(to, length);
    call.host_range(from, length);
    call.context->add(call.stream(stream), [=] { return memcpy(reinterpret_cast<void *>(to), from, length), SUCCESS; });
    return SUCCESS;
}

Result cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t length, void *stream) {
    CALL("cuMemcpyDtoHAsync")
    call.device_range(from, length);
    call.host_range(to, length);
    call.context->add(call.stream(stream), [=] { return memcpy(to, reinterpret_cast<void *>(from), length), SUCCESS; });
    return SUCCESS;
}

Result cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t length, void *stream) {
    CALL("cuMemcpyDtoDAsync")
    call.device_range(from, length);
    call.device_range(to, length);
    call.context->add(call.stream(stream), [=] {
        return memmove(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), length), SUCCESS;
    });
    return SUCCESS;
}

Result cuMemsetD8Async(uint64_t to, unsigned char value, size_t length, void *stream) {
    CALL("cuMemsetD8Async")
    call.device_range(to, length);
    call.context->add(call.stream(stream), [=] { return memset(reinterpret_cast<void *>(to), value, length), SUCCESS; });
    return SUCCESS;
}

Result cuStreamCreate(void **stream, unsigned flags) {
    CALL("cuStreamCreate")
    if (flags > 1) {
        return INVALID_VALUE;
    }
    Stream *made = new Stream{call.context, {}, false};
    call.context->streams.insert(made);
    *stream = made;
    return SUCCESS;
}

Result cuStreamSynchronize(void *handle) {
    CALL("cuStreamSynchronize")
    Stream *stream = call.stream(handle);
    call.context->changed.wait(call.lock, [&] {
        return call.context->failed != SUCCESS || (stream->work.empty() && !stream->busy);
    });
    return call.context->failed;
}

Result cuEventCreate(void **event, unsigned flags) {
    CALL("cuEventCreate")
    if ((flags & ~3u) != 0) {
        return INVALID_VALUE;
    }
    Event *made = new Event{call.context, (flags & 2) == 0, 0, false, {}};
    call.context->events.insert(made);
    *event = made;
    return SUCCESS;
}

Result cuEventRecord(void *handle, void *stream) {
    CALL("cuEventRecord")
    Event *event = call.event(handle);
    event->pending++;
    event->recorded = true;
    Context *context = call.context;
    context->add(call.stream(stream), [=] {
        std::lock_guard<std::mutex> lock(context->mutex);
        event->pending--;
        event->time = std::chrono::steady_clock::now();
        return SUCCESS;
    });
    return SUCCESS;
}

Result cuEventQuery(void *handle) {
    CALL("cuEventQuery")
    return call.event(handle)->pending == 0 ? SUCCESS : NOT_READY;
}

Result cuEventElapsedTime(float *milliseconds, void *first, void *last) {
    CALL("cuEventElapsedTime")
    Event *from = call.event(first), *to = call.event(last);
    if (!from->timed || !to->timed || !from->recorded || !to->recorded) {
        misused("the time between events that tell none");
    }
    if (from->pending || to->pending) {
        return NOT_READY;
    }
    *milliseconds = std::chrono::duration<float, std::milli>(to->time - from->time).count();
    return SUCCESS;
}

Result cuLaunchKernel(void *handle, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                      void *stream, void **parameters, void **extra) {
    CALL("cuLaunchKernel")
    Context *context = call.context;
    int kernel = call.own(context->functions, handle, "function")->kernel;
    if (x == 0 || y == 0 || z != 1 || y > 65535 || bx == 0 || bx > 1024 || by != 1 || bz != 1 || shared != 0 || extra) {
        return INVALID_VALUE;
    }
    if (context->device == 3 && ++context->launches % 2 == 0) {
        return OUT_OF_RESOURCES;
    }
    std::vector<std::vector<u8>> copies;
    for (int at = 0; at < KERNELS[kernel].parameters; at++) {
        u8 *from = static_cast<u8 *>(parameters[at]);
        copies.emplace_back(from, from + parameter_size(kernel, at));
    }
    context->add(call.stream(stream), [=] {
        if ((context->device == 1 || context->device == 13) && ++context->kernels == 3) {
            return LAUNCH_FAILED;
        }
        if (context->device == 4 || (context->device == 5 && context->kernels++ == 0)) {
            std::this_thread::sleep_for(std::chrono::milliseconds(context->device == 4 ? 300 : 6500));
        }
        run_kernel(kernel, {x, y, 1}, {bx, 1, 1}, copies);
        return SUCCESS;
    });
    return SUCCESS;
}

Result cuLaunchHostFunc(void *stream, void (*function)(void *), void *data) {
    CALL("cuLaunchHostFunc")
    call.context->add(call.stream(stream), [=] { return function(data), SUCCESS; });
    return SUCCESS;
}
}

#include "storage.cpp"
