// A stand-in for cuFile (GPUDirect Storage), part of the stand-in for CUDA's driver (driver.cpp), whose contexts and memory it uses. It
// says nothing about the speed or behaviour of the real one.
//
// A read fills its place with other bytes first, and is late, which shows if the place is read too early. It ends the process if the
// interface is misused: no context, or another one than the memory's; memory or files that are not registered, registered twice or released
// while they are read; a descriptor that is closed before its file is released; a copy from or to a place being read; a context that ends
// before its reads.

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

struct FileCode {
    int own, cuda;
};

const FileCode FILE_SUCCESS = {0, 0};
enum {
    NOT_INITIALIZED = 5001,
    IO_NOT_SUPPORTED = 5008,
    CUDA_ERROR = 5011,
    DIO_NOT_SET = 5020,
    PINNING_FAILED = 5036,
};

struct FileDescription {
    int type;
    union {
        int fd;
        void *handle;
    };
    const void *operations;
};

struct FileProperties {
    unsigned major, minor;
    size_t poll_threshold, direct_most;
    unsigned status, control, features, cache, buffer_cache, pinned, batch, batch_timeout;
};

struct RegisteredFile {
    int fd;
    dev_t device;
    ino_t inode;
    int reads = 0;
};

struct RegisteredMemory {
    Context *context;
    size_t length;
};

std::mutex storage_mutex;
bool storage_open = false;
std::set<RegisteredFile *> storage_files;
std::map<uintptr_t, RegisteredMemory> storage_memory;
std::map<Context *, unsigned> storage_calls, storage_reads;
struct Reading {
    uintptr_t start;
    size_t length;
};
std::map<unsigned, Reading> storage_reading;
unsigned storage_number = 0;

Context *storage_context(const char *name) {
    if (stack.empty()) {
        misused("%s without a current context", name);
    }
    return stack.back();
}

// A call that may be refused by its number: the result, with the mutex held.
FileCode storage_call(Context *context) {
    unsigned call = ++storage_calls[context];
    return context->device == int(7000 + call) ? FileCode{CUDA_ERROR, UNKNOWN} : FILE_SUCCESS;
}

bool same_file(const RegisteredFile *file) {
    struct stat now;
    return fstat(file->fd, &now) == 0 && now.st_dev == file->device && now.st_ino == file->inode;
}

// Called by the driver before it copies.
void storage_check(uint64_t address, size_t length) {
    std::lock_guard<std::mutex> lock(storage_mutex);
    for (auto &reading : storage_reading) {
        if (address < reading.second.start + reading.second.length && reading.second.start < address + length) {
            misused("memory of the device is used while a file is read to it");
        }
    }
}

// Called by the driver before a context ends.
void storage_ends(Context *context) {
    std::lock_guard<std::mutex> lock(storage_mutex);
    for (auto &memory : storage_memory) {
        if (memory.second.context == context) {
            misused("a context ends whose memory is registered with cuFile");
        }
    }
    storage_calls.erase(context);
    storage_reads.erase(context);
}

} // namespace

extern "C" {

FileCode cuFileDriverOpen() {
    Context *context = storage_context("cuFileDriverOpen");
    std::lock_guard<std::mutex> lock(storage_mutex);
    if (context->device == 6) {
        return {NOT_INITIALIZED, 0};
    }
    storage_open = true;
    return storage_call(context);
}

FileCode cuFileDriverGetProperties(FileProperties *properties) {
    Context *context = storage_context("cuFileDriverGetProperties");
    std::lock_guard<std::mutex> lock(storage_mutex);
    *properties = {};
    if (context->device != 7) {
        properties->major = 2;
        properties->minor = 20;
    }
    return storage_call(context);
}

FileCode cuFileHandleRegister(void **handle, FileDescription *description) {
    Context *context = storage_context("cuFileHandleRegister");
    std::lock_guard<std::mutex> lock(storage_mutex);
    if (!storage_open || description->type != 1 || description->operations != nullptr) {
        misused("a file is registered in a way that is not documented");
    }
    FileCode code = storage_call(context);
    int flags = fcntl(description->fd, F_GETFL);
    struct stat stat;
    if (flags < 0 || fstat(description->fd, &stat) != 0) {
        misused("a file is registered that is not open");
    }
    if (code.own != 0 || context->device == 8) {
        return code.own != 0 ? code : FileCode{IO_NOT_SUPPORTED, 0};
    }
    if ((flags & O_DIRECT) == 0) {
        return {DIO_NOT_SET, 0};
    }
    for (RegisteredFile *file : storage_files) {
        if (file->fd == description->fd) {
            misused("a descriptor is registered twice, or was closed before its file was given up");
        }
    }
    RegisteredFile *file = new RegisteredFile{description->fd, stat.st_dev, stat.st_ino};
    storage_files.insert(file);
    *handle = file;
    return FILE_SUCCESS;
}

void cuFileHandleDeregister(void *handle) {
    std::lock_guard<std::mutex> lock(storage_mutex);
    RegisteredFile *file = static_cast<RegisteredFile *>(handle);
    if (storage_files.erase(file) == 0) {
        misused("a file is given up that is not registered");
    }
    if (file->reads != 0 || !same_file(file)) {
        misused(file->reads ? "a file is given up while it is read" : "a descriptor is closed before its file is given up");
    }
    delete file;
}

FileCode cuFileBufRegister(const void *start, size_t length, int flags) {
    Context *context = storage_context("cuFileBufRegister");
    bool ours;
    {
        std::lock_guard<std::mutex> lock(context->mutex);
        ours = contains(context->memory, start, length);
    }
    std::lock_guard<std::mutex> lock(storage_mutex);
    if (!storage_open || flags != 0 || !ours) {
        misused("%zu bytes that are not memory of the device are registered", length);
    }
    FileCode code = storage_call(context);
    if (code.own != 0 || context->device == 10) {
        return code.own != 0 ? code : FileCode{PINNING_FAILED, 0};
    }
    if (!storage_memory.insert({uintptr_t(start), {context, length}}).second) {
        misused("memory is registered twice");
    }
    return FILE_SUCCESS;
}

FileCode cuFileBufDeregister(const void *start) {
    Context *context = storage_context("cuFileBufDeregister");
    std::lock_guard<std::mutex> lock(storage_mutex);
    auto memory = storage_memory.find(uintptr_t(start));
    if (memory == storage_memory.end() || memory->second.context != context) {
        misused("memory is given up that is not registered, or of another context");
    }
    for (auto &reading : storage_reading) {
        if (contains({{memory->first, memory->second.length}}, reinterpret_cast<void *>(reading.second.start), 1)) {
            misused("memory is given up while a file is read to it");
        }
    }
    storage_memory.erase(memory);
    return FILE_SUCCESS;
}

ssize_t cuFileRead(void *handle, void *base, size_t length, off_t offset, off_t place) {
    Context *context = storage_context("cuFileRead");
    char *to = static_cast<char *>(base) + place;
    RegisteredFile *file = static_cast<RegisteredFile *>(handle);
    unsigned number, read;
    Result failed;
    {
        std::lock_guard<std::mutex> lock(context->mutex);
        failed = context->failed;
        if (context->device >= 3000 && context->device < 4000 && context->calls >= unsigned(context->device - 3000)) {
            failed = UNKNOWN;
        }
    }
    {
        std::lock_guard<std::mutex> lock(storage_mutex);
        auto memory = storage_memory.find(uintptr_t(base));
        if (memory == storage_memory.end() || memory->second.context != context || place < 0 ||
            size_t(place) > memory->second.length || length > memory->second.length - place) {
            misused("a file is read to memory that is not registered, or of another context");
        }
        if (storage_files.count(file) == 0 || !same_file(file)) {
            misused("a file is read that is not registered, or was closed");
        }
        if (length == 0 || (length | size_t(offset) | uintptr_t(to)) % 4096 != 0) {
            misused("%zu bytes from %lld on are no whole pages", length, (long long)offset);
        }
        for (auto &reading : storage_reading) {
            if (uintptr_t(to) < reading.second.start + reading.second.length && reading.second.start < uintptr_t(to) + length) {
                misused("two files are read to the same memory");
            }
        }
        number = storage_number++;
        storage_reading[number] = {uintptr_t(to), length};
        file->reads++;
        read = ++storage_reads[context];
    }
    int device = context->device;
    memset(to, 0x5c, length);
    std::this_thread::sleep_for(std::chrono::microseconds(read % 7 == 0 ? 900 : read * 37 % 150));
    if (device == 12 && read == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(6500));
    }
    ssize_t result = 0;
    if (failed != SUCCESS) {
        result = -CUDA_ERROR;
    } else if (device == int(4000 + read)) {
        errno = EIO;
        result = -1;
    } else {
        bool half = device == int(5000 + read) || device == int(6000 + read) || (device == 9 && read % 2 == 0);
        void *aligned = aligned_alloc(4096, length);
        ssize_t wanted = half ? length / 2 / 4096 * 4096 : length;
        result = pread(file->fd, aligned, wanted, offset);
        int error = errno;
        if (result > 0) {
            memcpy(to, aligned, result);
        }
        free(aligned);
        errno = error;
        if (device == int(6000 + read)) {
            result = -CUDA_ERROR;
        }
    }
    int error = errno;
    {
        std::lock_guard<std::mutex> lock(storage_mutex);
        storage_reading.erase(number);
        file->reads--;
    }
    errno = error;
    return result;
}
}
