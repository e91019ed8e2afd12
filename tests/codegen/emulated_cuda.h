// Runs CUDA kernel texts on the CPU, for tests on machines without a GPU. Compiled before each text by the host compiler.
//
// The threads of a block are fibers of one thread: each runs until it waits for others (a barrier, an exchange in a warp) or
// ends. A barrier that not all of its threads reach is a deadlock, and said so. Fibers run in another order from block to block,
// so that a missing barrier shows.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#define IG_EMULATED 1
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __restrict__ __restrict

namespace ig_emulation {

inline constexpr size_t kStack = 256 * 1024;  ///< of a thread; touched pages only cost memory

struct Index {
  int x = 0;
};

struct Fiber {
  ucontext_t start;
  jmp_buf at;
  char* stack = nullptr;
  bool begun = false, done = false, waiting = false;
};

/// Threads that wait for each other until `count` of them have come.
struct Meeting {
  int arrived = 0;
  std::vector<int> who;
};

struct Block {
  std::vector<Fiber> fibers;
  jmp_buf scheduler;
  int current = 0, threads = 0;
  Meeting meetings[16 + 32];  // the numbered barriers, then one per warp
  unsigned long long slots[1024];
  void (*body)(void*) = nullptr;
  void* argument = nullptr;
};
inline Block block;

}  // namespace ig_emulation

inline ig_emulation::Index threadIdx, blockIdx, blockDim, gridDim;

namespace ig_emulation {

inline void yield() {
  if (_setjmp(block.fibers[block.current].at) == 0) _longjmp(block.scheduler, 1);
}

/// Comes to a meeting without waiting for it to be complete.
inline void arrive(int number, int count) {
  Meeting& meeting = block.meetings[number];
  if (++meeting.arrived != count) return;
  for (int fiber : meeting.who) block.fibers[fiber].waiting = false;
  meeting = {};
}

inline void meet(int number, int count) {
  Meeting& meeting = block.meetings[number];
  if (++meeting.arrived == count) {
    for (int fiber : meeting.who) block.fibers[fiber].waiting = false;
    meeting = {};
    return;
  }
  meeting.who.push_back(block.current);
  block.fibers[block.current].waiting = true;
  yield();
}

inline int warp_size() {
  const int left = block.threads - block.current / 32 * 32;
  return left < 32 ? left : 32;
}
inline void meet_warp() { meet(16 + block.current / 32, warp_size()); }

template <class V>
V exchange(V v, int lane) {
  static_assert(sizeof(V) <= 8);
  const int first = block.current / 32 * 32;
  std::memcpy(&block.slots[block.current], &v, sizeof(V));
  meet_warp();
  const int from = first + lane;
  V out = v;
  if (lane < warp_size()) std::memcpy(&out, &block.slots[from], sizeof(V));
  meet_warp();
  return out;
}

/// Runs `act(slots)` once all threads of the warp have come; slots[l] is what lane l gave.
template <class T, class F>
void together(T& mine, F act) {
  const int first = block.current / 32 * 32;
  void* const own = &mine;
  std::memcpy(&block.slots[block.current], &own, sizeof own);
  meet_warp();
  if (block.current == first) {
    T* slots[32];
    for (int l = 0; l < 32; ++l) std::memcpy(&slots[l], &block.slots[first + l], sizeof(void*));
    act(slots);
  }
  meet_warp();
}

alignas(1024) inline char dynamic_shared[232448];

inline void enter() {
  block.body(block.argument);
  block.fibers[block.current].done = true;
  _longjmp(block.scheduler, 1);
}

inline void run_block(int index) {
  const int threads = block.threads;
  for (Meeting& meeting : block.meetings) meeting = {};
  for (Fiber& fiber : block.fibers) fiber.begun = fiber.done = fiber.waiting = false;
  for (int left = threads; left > 0;) {
    bool moved = false;
    for (int k = 0; k < threads; ++k) {
      const int at = index % 2 == 0 ? k : threads - 1 - k;
      Fiber& fiber = block.fibers[at];
      if (fiber.done || fiber.waiting) continue;
      moved = true;
      block.current = threadIdx.x = at;
      if (_setjmp(block.scheduler) == 0) {
        if (fiber.begun) _longjmp(fiber.at, 1);
        fiber.begun = true;
        getcontext(&fiber.start);
        fiber.start.uc_stack.ss_sp = fiber.stack;
        fiber.start.uc_stack.ss_size = kStack;
        fiber.start.uc_link = nullptr;
        makecontext(&fiber.start, enter, 0);
        setcontext(&fiber.start);
      }
      left -= block.fibers[block.current].done;
    }
    if (!moved) {
      std::fprintf(stderr, "emulated kernel: block %d has threads that wait for others which never come\n", index);
      std::abort();
    }
  }
}

template <class F>
void run_blocks(F& body, int64_t blocks, int threads) {
  if (block.fibers.size() < static_cast<size_t>(threads)) block.fibers.resize(static_cast<size_t>(threads));
  for (Fiber& fiber : block.fibers) {
    if (fiber.stack == nullptr) fiber.stack = static_cast<char*>(std::malloc(kStack));
  }
  block.threads = blockDim.x = threads;
  gridDim.x = static_cast<int>(blocks);
  block.body = [](void* f) { (*static_cast<F*>(f))(); };
  block.argument = &body;
  // Blocks in another order than they are numbered in: nobody may rely on it.
  for (int64_t k = 0; k < blocks; ++k) {
    blockIdx.x = static_cast<int>(k % 2 == 0 ? k / 2 : blocks - 1 - k / 2);
    run_block(blockIdx.x);
  }
}

template <class A>
A argument(void* const*& args, const int64_t*& sizes) {
  if constexpr (std::is_pointer_v<A>) {
    return static_cast<A>(*args++);
  } else {
    return static_cast<A>(*sizes++);
  }
}

template <class... A>
void launch(void (*kernel)(A...), void* const* args, const int64_t* sizes, int64_t blocks, int threads) {
  std::tuple<A...> values{argument<A>(args, sizes)...};  // braces: in order
  auto body = [&] { std::apply(kernel, values); };
  run_blocks(body, blocks, threads);
}

}  // namespace ig_emulation

inline void __syncthreads() { ig_emulation::meet(0, blockDim.x); }
inline void __syncwarp() { ig_emulation::meet_warp(); }
template <class V>
V __shfl_xor_sync(unsigned, V v, int mask) {
  return ig_emulation::exchange(v, (ig_emulation::block.current % 32) ^ mask);
}
template <class V>
V __shfl_sync(unsigned, V v, int lane) {
  return ig_emulation::exchange(v, lane % 32);
}
template <class V>
V __shfl_up_sync(unsigned, V v, int by) {
  const int lane = ig_emulation::block.current % 32;
  return ig_emulation::exchange(v, lane >= by ? lane - by : lane);
}
template <class V>
V __shfl_down_sync(unsigned, V v, int by) {
  const int lane = ig_emulation::block.current % 32;
  return ig_emulation::exchange(v, lane + by < 32 ? lane + by : lane);
}
template <class V>
V atomicAdd(V* to, V by) {
  const V old = *to;
  *to = old + by;
  return old;
}

struct alignas(16) ig_16 {
  unsigned x, y, z, w;
};
struct alignas(8) ig_8 {
  unsigned x, y;
};
template <class P>
P ig_stream(const P* p) {
  if (reinterpret_cast<uintptr_t>(p) % sizeof(P) != 0) {
    std::fprintf(stderr, "emulated kernel: a read of %zu bytes at an address that is no multiple of them\n", sizeof(P));
    std::abort();
  }
  return *p;
}
template <class P>
void ig_place(P* p, const P& v) {
  if (reinterpret_cast<uintptr_t>(p) % sizeof(P) != 0) {
    std::fprintf(stderr, "emulated kernel: a write of %zu bytes at an address that is no multiple of them\n", sizeof(P));
    std::abort();
  }
  *p = v;
}
inline void ig_meet(int team, int threads) { ig_emulation::meet(team + 1, threads); }

// ---------------------------------------------------------------- what warp_cuda.inc has of the card

struct float2 {
  float x, y;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline void __threadfence_block() {}

#define IG_DYNAMIC_SHARED(name) const unsigned name = 0

namespace ig_emulation {

template <class V>
V peek(unsigned at) {
  if (at % sizeof(V) != 0 || at + sizeof(V) > sizeof dynamic_shared) {
    std::fprintf(stderr, "emulated kernel: a shared read of %zu bytes at %u\n", sizeof(V), at);
    std::abort();
  }
  V v;
  std::memcpy(&v, dynamic_shared + at, sizeof(V));
  return v;
}
template <class V>
void poke(unsigned at, const V& v) {
  if (at % sizeof(V) != 0 || at + sizeof(V) > sizeof dynamic_shared) {
    std::fprintf(stderr, "emulated kernel: a shared write of %zu bytes at %u\n", sizeof(V), at);
    std::abort();
  }
  std::memcpy(dynamic_shared + at, &v, sizeof(V));
}

inline float float_of(unsigned bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

struct Matrices {
  unsigned* r;
  unsigned row;
};
inline void load_matrices(unsigned (&r)[4], unsigned row, bool transposed) {
  Matrices mine{r, row};
  together(mine, [transposed](Matrices** lanes) {
    uint16_t m[4][8][8];
    for (int l = 0; l < 32; ++l) std::memcpy(m[l / 8][l % 8], dynamic_shared + lanes[l]->row, 16);
    for (int l = 0; l < 32; ++l) {
      for (int q = 0; q < 4; ++q) {
        const int i = l / 4, j = 2 * (l % 4);
        const uint16_t low = transposed ? m[q][j][i] : m[q][i][j], high = transposed ? m[q][j + 1][i] : m[q][i][j + 1];
        lanes[l]->r[q] = low | static_cast<unsigned>(high) << 16;
      }
    }
  });
}

struct Product {
  float* d;
  const unsigned* a;
  unsigned b[2];
};
/// d += a b with K products a sum; `get` gives the elements a register holds.
template <int K, class Get>
void multiply(float (&d)[4], const unsigned* a, unsigned b0, unsigned b1, Get get) {
  Product mine{d, a, {b0, b1}};
  together(mine, [get](Product** lanes) {
    constexpr int each = K / 8;  // elements in a register
    float left[16][K], right[K][8];
    for (int l = 0; l < 32; ++l) {
      const int i = l / 4, j = l % 4;
      for (int e = 0; e < each; ++e) {
        for (int q = 0; q < 4; ++q) left[i + q % 2 * 8][each * j + e + q / 2 * 4 * each] = get(lanes[l]->a[q], e);
        for (int q = 0; q < 2; ++q) right[each * j + e + q * 4 * each][i] = get(lanes[l]->b[q], e);
      }
    }
    for (int l = 0; l < 32; ++l) {
      for (int q = 0; q < 4; ++q) {
        float sum = lanes[l]->d[q];
        for (int k = 0; k < K; ++k) sum += left[l / 4 + q / 2 * 8][k] * right[k][2 * (l % 4) + q % 2];
        lanes[l]->d[q] = sum;
      }
    }
  });
}

}  // namespace ig_emulation

inline float ig_exp2_fast(float x) { return exp2f(x); }
inline float ig_reciprocal_fast(float x) { return 1.0f / x; }
inline int ig_round(float x) { return static_cast<int>(rintf(x)); }
inline unsigned ig_tf32(float x) {
  unsigned bits;
  std::memcpy(&bits, &x, 4);
  return (bits + 0x1000u) & 0xffffe000u;
}
inline unsigned ig_peek(unsigned at) { return ig_emulation::peek<unsigned>(at); }
inline float ig_peek_float(unsigned at) { return ig_emulation::peek<float>(at); }
inline float2 ig_peek_two(unsigned at) {
  const auto both = ig_emulation::peek<unsigned long long>(at);
  return {ig_emulation::float_of(static_cast<unsigned>(both)), ig_emulation::float_of(static_cast<unsigned>(both >> 32))};
}
inline uint4 ig_peek_16(unsigned at) { return ig_emulation::peek<uint4>(at); }
inline void ig_poke(unsigned at, unsigned v) { ig_emulation::poke(at, v); }
inline void ig_poke_float(unsigned at, float v) { ig_emulation::poke(at, v); }
inline void ig_poke_two(unsigned at, float x, float y) {
  ig_emulation::poke(at, x);
  ig_emulation::poke(at + 4, y);
}
inline int ig_here(int x) { return x; }
inline void ig_load_matrices(unsigned (&r)[4], unsigned row) { ig_emulation::load_matrices(r, row, false); }
inline void ig_load_matrices_transposed(unsigned (&r)[4], unsigned row) { ig_emulation::load_matrices(r, row, true); }
inline void ig_mma_bf16(float (&d)[4], const unsigned* a, unsigned b0, unsigned b1) {
  ig_emulation::multiply<16>(d, a, b0, b1,
                             [](unsigned r, int e) { return ig_emulation::float_of(e == 0 ? r << 16 : r & 0xffff0000u); });
}
inline void ig_mma_tf32(float (&d)[4], const unsigned* a, unsigned b0, unsigned b1) {
  ig_emulation::multiply<8>(d, a, b0, b1, [](unsigned r, int) { return ig_emulation::float_of(r & 0xffffe000u); });
}
inline void ig_copy_async(unsigned to, const void* from, bool valid) {
  if (valid)
    ig_emulation::poke(to, *static_cast<const uint4*>(from));
  else
    ig_emulation::poke(to, uint4{});
}
inline void ig_copy_commit() {}
inline void ig_copy_wait_all() {}
template <int bytes>
void ig_ring_copy(unsigned to, const void* from) {
  struct alignas(bytes) Piece {
    char bits[bytes];
  };
  ig_emulation::poke(to, ig_stream(static_cast<const Piece*>(from)));
}
template <int groups>
void ig_ring_wait() {}
inline ig_8 ig_peek_8(unsigned at) { return ig_emulation::peek<ig_8>(at); }
template <class T>
unsigned ig_load_pair(const T* from) {
  unsigned both;
  std::memcpy(&both, from, 4);
  return both;
}
inline void ig_gather(int id, int threads) { ig_emulation::meet(id, threads); }
inline void ig_arrive(int id, int threads) { ig_emulation::arrive(id, threads); }
