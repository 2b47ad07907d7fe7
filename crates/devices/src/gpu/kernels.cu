// The kernels of the GPU controller. tools/gpu-kernels compiles them to kernels.ptx, which is what the library carries;
// the stand-in of CUDA's driver in crates/devices/tests/cuda compiles this file as C++.
//
// Each kernel works on an array of jobs, one of each stream. The structures are those of jobs.rs; jobs and constants are
// all that a kernel is given, data lie where a job says.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

static __device__ __forceinline__ u32 rotate_left(u32 value, u32 by) { return (value << by) | (value >> (32 - by)); }

static __device__ __forceinline__ u32 rotate_right(u32 value, u32 by) { return (value >> by) | (value << (32 - by)); }

static __device__ __forceinline__ u32 swap_bytes(u32 value) {
    return (value << 24) | ((value & 0xff00) << 8) | ((value >> 8) & 0xff00) | (value >> 24);
}

// MD5 and SHA-256: a hash is a serial chain, so a thread takes a stream, and a launch as many streams as there are.
struct HashJob {
    u64 data;   // whole blocks of 64 bytes, aligned to 16
    u64 blocks; // so many of them
    u32 state[8];
};

// The next 16 words of a stream, as they lie in memory.
static __device__ __forceinline__ void load_block(const uint4 *data, u32 *words) {
#pragma unroll
    for (int at = 0; at < 4; at++) {
        uint4 four = data[at];
        words[4 * at] = four.x;
        words[4 * at + 1] = four.y;
        words[4 * at + 2] = four.z;
        words[4 * at + 3] = four.w;
    }
}

#define MD5_F(x, y, z) ((((y) ^ (z)) & (x)) ^ (z))
#define MD5_G(x, y, z) ((((x) ^ (y)) & (z)) ^ (y))
#define MD5_H(x, y, z) ((x) ^ (y) ^ (z))
#define MD5_I(x, y, z) ((y) ^ ((x) | ~(z)))
#define MD5_STEP(function, a, b, c, d, word, rotation, constant)                                                       \
    a = rotate_left(a + function(b, c, d) + words[word] + constant, rotation) + b;
// Four steps: each register is the new one once. RFC 1321 section 3.4.
#define MD5_FOUR(function, w0, w1, w2, w3, r0, r1, r2, r3, k0, k1, k2, k3)                                             \
    MD5_STEP(function, a, b, c, d, w0, r0, k0)                                                                         \
    MD5_STEP(function, d, a, b, c, w1, r1, k1)                                                                         \
    MD5_STEP(function, c, d, a, b, w2, r2, k2)                                                                         \
    MD5_STEP(function, b, c, d, a, w3, r3, k3)

extern "C" __global__ void __launch_bounds__(32) dcs_md5(HashJob *jobs, u32 count) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) {
        return;
    }
    HashJob *job = jobs + at;
    const uint4 *data = (const uint4 *)job->data;
    u32 a = job->state[0], b = job->state[1], c = job->state[2], d = job->state[3];
    for (u64 left = job->blocks; left > 0; left--, data += 4) {
        u32 words[16];
        load_block(data, words);
        u32 a0 = a, b0 = b, c0 = c, d0 = d;
        MD5_FOUR(MD5_F, 0, 1, 2, 3, 7, 12, 17, 22, 0xd76aa478u, 0xe8c7b756u, 0x242070dbu, 0xc1bdceeeu)
        MD5_FOUR(MD5_F, 4, 5, 6, 7, 7, 12, 17, 22, 0xf57c0fafu, 0x4787c62au, 0xa8304613u, 0xfd469501u)
        MD5_FOUR(MD5_F, 8, 9, 10, 11, 7, 12, 17, 22, 0x698098d8u, 0x8b44f7afu, 0xffff5bb1u, 0x895cd7beu)
        MD5_FOUR(MD5_F, 12, 13, 14, 15, 7, 12, 17, 22, 0x6b901122u, 0xfd987193u, 0xa679438eu, 0x49b40821u)
        MD5_FOUR(MD5_G, 1, 6, 11, 0, 5, 9, 14, 20, 0xf61e2562u, 0xc040b340u, 0x265e5a51u, 0xe9b6c7aau)
        MD5_FOUR(MD5_G, 5, 10, 15, 4, 5, 9, 14, 20, 0xd62f105du, 0x02441453u, 0xd8a1e681u, 0xe7d3fbc8u)
        MD5_FOUR(MD5_G, 9, 14, 3, 8, 5, 9, 14, 20, 0x21e1cde6u, 0xc33707d6u, 0xf4d50d87u, 0x455a14edu)
        MD5_FOUR(MD5_G, 13, 2, 7, 12, 5, 9, 14, 20, 0xa9e3e905u, 0xfcefa3f8u, 0x676f02d9u, 0x8d2a4c8au)
        MD5_FOUR(MD5_H, 5, 8, 11, 14, 4, 11, 16, 23, 0xfffa3942u, 0x8771f681u, 0x6d9d6122u, 0xfde5380cu)
        MD5_FOUR(MD5_H, 1, 4, 7, 10, 4, 11, 16, 23, 0xa4beea44u, 0x4bdecfa9u, 0xf6bb4b60u, 0xbebfbc70u)
        MD5_FOUR(MD5_H, 13, 0, 3, 6, 4, 11, 16, 23, 0x289b7ec6u, 0xeaa127fau, 0xd4ef3085u, 0x04881d05u)
        MD5_FOUR(MD5_H, 9, 12, 15, 2, 4, 11, 16, 23, 0xd9d4d039u, 0xe6db99e5u, 0x1fa27cf8u, 0xc4ac5665u)
        MD5_FOUR(MD5_I, 0, 7, 14, 5, 6, 10, 15, 21, 0xf4292244u, 0x432aff97u, 0xab9423a7u, 0xfc93a039u)
        MD5_FOUR(MD5_I, 12, 3, 10, 1, 6, 10, 15, 21, 0x655b59c3u, 0x8f0ccc92u, 0xffeff47du, 0x85845dd1u)
        MD5_FOUR(MD5_I, 8, 15, 6, 13, 6, 10, 15, 21, 0x6fa87e4fu, 0xfe2ce6e0u, 0xa3014314u, 0x4e0811a1u)
        MD5_FOUR(MD5_I, 4, 11, 2, 9, 6, 10, 15, 21, 0xf7537e82u, 0xbd3af235u, 0x2ad7d2bbu, 0xeb86d391u)
        a += a0;
        b += b0;
        c += c0;
        d += d0;
    }
    job->state[0] = a;
    job->state[1] = b;
    job->state[2] = c;
    job->state[3] = d;
}

// FIPS 180-4 section 4.2.2.
static __constant__ u32 sha256_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

extern "C" __global__ void __launch_bounds__(32) dcs_sha256(HashJob *jobs, u32 count) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) {
        return;
    }
    HashJob *job = jobs + at;
    const uint4 *data = (const uint4 *)job->data;
    u32 state[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        state[i] = job->state[i];
    }
    for (u64 left = job->blocks; left > 0; left--, data += 4) {
        u32 words[16];
        load_block(data, words);
        u32 a = state[0], b = state[1], c = state[2], d = state[3];
        u32 e = state[4], f = state[5], g = state[6], h = state[7];
        // The schedule of 64 words is kept 16 at a time. All indices are known when this is compiled.
#pragma unroll
        for (int step = 0; step < 64; step++) {
            u32 word;
            if (step < 16) {
                word = swap_bytes(words[step]);
            } else {
                u32 early = words[(step + 1) & 15], late = words[(step + 14) & 15];
                u32 s0 = rotate_right(early, 7) ^ rotate_right(early, 18) ^ (early >> 3);
                u32 s1 = rotate_right(late, 17) ^ rotate_right(late, 19) ^ (late >> 10);
                word = words[step & 15] + s0 + words[(step + 9) & 15] + s1;
            }
            words[step & 15] = word;
            u32 s1 = rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25);
            u32 t1 = h + s1 + (((f ^ g) & e) ^ g) + sha256_constants[step] + word;
            u32 s0 = rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22);
            u32 t2 = s0 + ((a & b) | (c & (a | b)));
            h = g;
            g = f;
            f = e;
            e = d + t1;
            d = c;
            c = b;
            b = a;
            a = t1 + t2;
        }
        state[0] += a;
        state[1] += b;
        state[2] += c;
        state[3] += d;
        state[4] += e;
        state[5] += f;
        state[6] += g;
        state[7] += h;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        job->state[i] = state[i];
    }
}

// CRCs of 32 bits, reflected. A thread takes a chunk, counted from the end of the data, so that only the first one may be
// short; a remainder is then moved over what follows its chunk, by a multiplication with a power of x. Remainders begin
// with zero and end as they are: the beginning, the end and what came before are the host's.
struct CrcJob {
    u64 data; // its end is aligned to 16
    u64 length;
    u32 remainder; // zero before
    u32 reserved[3];
};

#define CRC_CHUNK 1024
#define CRC_THREADS 128

struct CrcConstants {
    u32 polynomial;
    u32 powers[31]; // x to the power of 8 * CRC_CHUNK * 2^k, modulo the polynomial
};

// a * b modulo the polynomial; the coefficient of x^0 is the highest bit.
static __device__ u32 crc_multiply(u32 a, u32 b, u32 polynomial) {
    u32 product = 0;
#pragma unroll 8
    for (int bit = 31; bit >= 0; bit--) {
        product ^= b & (0 - ((a >> bit) & 1));
        b = (b >> 1) ^ (polynomial & (0 - (b & 1)));
    }
    return product;
}

extern "C" __global__ void __launch_bounds__(CRC_THREADS) dcs_crc32(CrcJob *jobs, CrcConstants constants) {
    __shared__ u32 table[4][256];
    __shared__ u32 powers[31];
    __shared__ u32 sum;
    for (u32 byte = threadIdx.x; byte < 256; byte += CRC_THREADS) {
        u32 entry = byte;
        for (int row = 0; row < 4; row++) {
            for (int bit = 0; bit < 8; bit++) {
                entry = (entry >> 1) ^ (constants.polynomial & (0 - (entry & 1)));
            }
            table[row][byte] = entry;
        }
    }
    if (threadIdx.x == 0) {
#pragma unroll
        for (int bit = 0; bit < 31; bit++) {
            powers[bit] = constants.powers[bit];
        }
        sum = 0;
    }
    __syncthreads();
    CrcJob *job = jobs + blockIdx.y;
    u64 chunks = (job->length + CRC_CHUNK - 1) / CRC_CHUNK;
    u64 behind = (u64)blockIdx.x * CRC_THREADS + threadIdx.x; // chunks behind this one
    if (behind < chunks) {
        u64 end = job->length - behind * CRC_CHUNK;
        u32 length = end < CRC_CHUNK ? (u32)end : CRC_CHUNK;
        const u8 *from = (const u8 *)job->data + (end - length);
        u32 remainder = 0;
        // Zeros in front change nothing: a short chunk is brought to whole words first.
        for (; length & 15; length--) {
            remainder = (remainder >> 8) ^ table[0][(remainder ^ *from++) & 0xff];
        }
        const uint4 *fours = (const uint4 *)from;
        for (; length > 0; length -= 16) {
            uint4 four = *fours++;
            u32 words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int at = 0; at < 4; at++) {
                u32 word = remainder ^ words[at];
                remainder = table[3][word & 0xff] ^ table[2][(word >> 8) & 0xff] ^ table[1][(word >> 16) & 0xff] ^
                            table[0][word >> 24];
            }
        }
        for (int bit = 0; behind != 0; bit++, behind >>= 1) {
            if (behind & 1) {
                remainder = crc_multiply(remainder, powers[bit], constants.polynomial);
            }
        }
        atomicXor(&sum, remainder);
    }
    __syncthreads();
    if (threadIdx.x == 0 && sum != 0) {
        atomicXor(&job->remainder, sum);
    }
}

// AES-256 in counter mode: a thread takes every so many-th unit of 16 bytes of a job.
struct AesJob {
    u64 data;  // aligned to 16: where the first unit begins, whose first bytes may have been processed before
    u64 units; // of 16 bytes, the last one perhaps in part: what is behind it is changed too, and is nobody's
    u64 counter_high; // of the first unit
    u64 counter_low;
    u32 keys[60]; // the expanded key, FIPS 197 section 5.2
    u32 reserved[4];
};

#define AES_THREADS 256
#define AES_LANES 32

// FIPS 197 figure 7.
static __constant__ u8 aes_substitution[256] = {
    0x63, 0x7c, 0x77, 0x7b, 0xf2, 0x6b, 0x6f, 0xc5, 0x30, 0x01, 0x67, 0x2b, 0xfe, 0xd7, 0xab, 0x76,
    0xca, 0x82, 0xc9, 0x7d, 0xfa, 0x59, 0x47, 0xf0, 0xad, 0xd4, 0xa2, 0xaf, 0x9c, 0xa4, 0x72, 0xc0,
    0xb7, 0xfd, 0x93, 0x26, 0x36, 0x3f, 0xf7, 0xcc, 0x34, 0xa5, 0xe5, 0xf1, 0x71, 0xd8, 0x31, 0x15,
    0x04, 0xc7, 0x23, 0xc3, 0x18, 0x96, 0x05, 0x9a, 0x07, 0x12, 0x80, 0xe2, 0xeb, 0x27, 0xb2, 0x75,
    0x09, 0x83, 0x2c, 0x1a, 0x1b, 0x6e, 0x5a, 0xa0, 0x52, 0x3b, 0xd6, 0xb3, 0x29, 0xe3, 0x2f, 0x84,
    0x53, 0xd1, 0x00, 0xed, 0x20, 0xfc, 0xb1, 0x5b, 0x6a, 0xcb, 0xbe, 0x39, 0x4a, 0x4c, 0x58, 0xcf,
    0xd0, 0xef, 0xaa, 0xfb, 0x43, 0x4d, 0x33, 0x85, 0x45, 0xf9, 0x02, 0x7f, 0x50, 0x3c, 0x9f, 0xa8,
    0x51, 0xa3, 0x40, 0x8f, 0x92, 0x9d, 0x38, 0xf5, 0xbc, 0xb6, 0xda, 0x21, 0x10, 0xff, 0xf3, 0xd2,
    0xcd, 0x0c, 0x13, 0xec, 0x5f, 0x97, 0x44, 0x17, 0xc4, 0xa7, 0x7e, 0x3d, 0x64, 0x5d, 0x19, 0x73,
    0x60, 0x81, 0x4f, 0xdc, 0x22, 0x2a, 0x90, 0x88, 0x46, 0xee, 0xb8, 0x14, 0xde, 0x5e, 0x0b, 0xdb,
    0xe0, 0x32, 0x3a, 0x0a, 0x49, 0x06, 0x24, 0x5c, 0xc2, 0xd3, 0xac, 0x62, 0x91, 0x95, 0xe4, 0x79,
    0xe7, 0xc8, 0x37, 0x6d, 0x8d, 0xd5, 0x4e, 0xa9, 0x6c, 0x56, 0xf4, 0xea, 0x65, 0x7a, 0xae, 0x08,
    0xba, 0x78, 0x25, 0x2e, 0x1c, 0xa6, 0xb4, 0xc6, 0xe8, 0xdd, 0x74, 0x1f, 0x4b, 0xbd, 0x8b, 0x8a,
    0x70, 0x3e, 0xb5, 0x66, 0x48, 0x03, 0xf6, 0x0e, 0x61, 0x35, 0x57, 0xb9, 0x86, 0xc1, 0x1d, 0x9e,
    0xe1, 0xf8, 0x98, 0x11, 0x69, 0xd9, 0x8e, 0x94, 0x9b, 0x1e, 0x87, 0xe9, 0xce, 0x55, 0x28, 0xdf,
    0x8c, 0xa1, 0x89, 0x0d, 0xbf, 0xe6, 0x42, 0x68, 0x41, 0x99, 0x2d, 0x0f, 0xb0, 0x54, 0xbb, 0x16,
};

extern "C" __global__ void __launch_bounds__(AES_THREADS) dcs_aes256_ctr(AesJob *jobs) {
    // SubBytes and MixColumns of one byte as a word: (2s, s, s, 3s). Each lane of a warp has a copy of its own in the bank of
    // its own: no look-up waits for another, whatever the key and the data.
    __shared__ u32 table[256 * AES_LANES];
    __shared__ u32 keys[60];
    AesJob *job = jobs + blockIdx.y;
    for (u32 at = threadIdx.x; at < 256 * AES_LANES; at += AES_THREADS) {
        u32 s = aes_substitution[at / AES_LANES];
        u32 doubled = (s << 1) ^ ((s >> 7) * 0x11b);
        table[at] = doubled << 24 | s << 16 | s << 8 | (doubled ^ s);
    }
    if (threadIdx.x < 60) {
        keys[threadIdx.x] = job->keys[threadIdx.x];
    }
    __syncthreads();
    const u32 *own = table + threadIdx.x % AES_LANES;
#define AES_TABLE(byte) own[((byte) & 0xff) * AES_LANES]
#define AES_COLUMN(a, b, c, d)                                                                                         \
    (AES_TABLE(a >> 24) ^ rotate_right(AES_TABLE(b >> 16), 8) ^ rotate_right(AES_TABLE(c >> 8), 16) ^                  \
     rotate_right(AES_TABLE(d), 24))
// The last round has no MixColumns: s stands in the second and third byte of a table's word.
#define AES_LAST(a, b, c, d)                                                                                           \
    (((AES_TABLE(a >> 24) << 8) & 0xff000000u) | (AES_TABLE(b >> 16) & 0x00ff0000u) |                                  \
     (AES_TABLE(c >> 8) & 0x0000ff00u) | ((AES_TABLE(d) >> 8) & 0x000000ffu))
    uint4 *data = (uint4 *)job->data;
    u64 stride = (u64)gridDim.x * AES_THREADS;
    for (u64 unit = (u64)blockIdx.x * AES_THREADS + threadIdx.x; unit < job->units; unit += stride) {
        u64 low = job->counter_low + unit;
        u64 high = job->counter_high + (low < unit ? 1 : 0);
        u32 a = (u32)(high >> 32) ^ keys[0], b = (u32)high ^ keys[1];
        u32 c = (u32)(low >> 32) ^ keys[2], d = (u32)low ^ keys[3];
#pragma unroll
        for (int round = 1; round < 14; round++) {
            u32 a1 = AES_COLUMN(a, b, c, d) ^ keys[4 * round];
            u32 b1 = AES_COLUMN(b, c, d, a) ^ keys[4 * round + 1];
            u32 c1 = AES_COLUMN(c, d, a, b) ^ keys[4 * round + 2];
            u32 d1 = AES_COLUMN(d, a, b, c) ^ keys[4 * round + 3];
            a = a1;
            b = b1;
            c = c1;
            d = d1;
        }
        uint4 bytes = data[unit];
        bytes.x ^= swap_bytes(AES_LAST(a, b, c, d) ^ keys[56]);
        bytes.y ^= swap_bytes(AES_LAST(b, c, d, a) ^ keys[57]);
        bytes.z ^= swap_bytes(AES_LAST(c, d, a, b) ^ keys[58]);
        bytes.w ^= swap_bytes(AES_LAST(d, a, b, c) ^ keys[59]);
        data[unit] = bytes;
    }
}
