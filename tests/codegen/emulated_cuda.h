// Runs CUDA kernel texts on the CPU, for tests on machines without a GPU. Compiled before each text by the host compiler.
//
// The threads of a block are fibers of one thread: each runs until it waits for others (a barrier, an exchange in a warp) or
// ends. A barrier that not all of its threads reach is a deadlock, and said so. Fibers run in another order from block to block,
// so that a missing barrier shows.
//
// While ig_watch(true), every access to dynamic shared memory is judged by happens-before, whatever order the fibers happened to
// run in (Races below); ig_races() tells what was found.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <source_location>
#include <string>
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
  int arrived = 0, count = 0;
  std::vector<int> who;
};

constexpr int kMeetings = 16 + 32 + 8;  ///< the numbered barriers, then one per warp, then one per group of four warps

struct Block {
  std::vector<Fiber> fibers;
  jmp_buf scheduler;
  int current = 0, threads = 0;
  Meeting meetings[kMeetings];
  unsigned long long slots[1024];
  unsigned warp_words[32][32][4];
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

using Where = std::source_location;

/// Races on dynamic shared memory, by vector clocks: two accesses to a word, one of them a write, by two threads neither of which
/// has been told by a chain of barriers that the other is past its access. What tells: numbered barriers (who arrives tells, who
/// waits is told) and __syncwarp; not shuffles, matrix loads and products, which wait for the warp's other lanes but order no
/// memory. An asynchronous copy counts as written by a helper of its thread, which learns of it when it waits for the copy.
struct Races {
  struct Access {
    int who = -1;
    unsigned clock = 0;
    Where where;
  };
  struct Word {
    Access write;
    uint64_t written = 0;       ///< which of all writes of the block that was
    std::vector<Access> reads;  ///< since then
  };

  bool watching = false;
  int actors = 0;               ///< the block's threads, then their copying helpers
  std::vector<unsigned> known;  ///< [thread][actor]: how far this thread has been told of that one
  std::vector<unsigned> told[kMeetings];
  std::vector<Word> words;
  size_t touched = 0;
  uint64_t writes = 0;
  std::vector<uint64_t> published;  ///< [thread]: its writes up to here are visible to products of warp groups
  std::string report;
  std::set<std::pair<unsigned long long, std::string>> reported;

  unsigned& clock(int thread, int actor) { return known[static_cast<size_t>(thread) * actors + actor]; }
  static int helper(int thread) { return block.threads + thread; }

  void begin_block() {
    actors = 2 * block.threads;
    known.assign(static_cast<size_t>(block.threads) * actors, 0);
    for (int t = 0; t < block.threads; ++t) clock(t, t) = 1;
    published.assign(static_cast<size_t>(block.threads), 0);
    writes = 0;
    helper_clock.assign(static_cast<size_t>(block.threads), 1);
    groups.assign(static_cast<size_t>(block.threads), {});
    for (auto& meeting : told) meeting.assign(static_cast<size_t>(actors), 0);
    for (size_t i = 0; i < touched; ++i) words[i] = {};
    touched = 0;
  }

  __attribute__((optimize("O3"))) static void join(unsigned* to, const unsigned* from, int count) {
    for (int i = 0; i < count; ++i) to[i] = to[i] > from[i] ? to[i] : from[i];
  }
  void tell(int thread, int meeting) {
    join(told[meeting].data(), &clock(thread, 0), actors);
    ++clock(thread, thread);
  }
  void learn(int thread, int meeting) { join(&clock(thread, 0), told[meeting].data(), actors); }
  void forget(int meeting) { told[meeting].assign(static_cast<size_t>(actors), 0); }

  std::vector<unsigned> helper_clock;         ///< [thread]
  std::vector<std::vector<unsigned>> groups;  ///< [thread]: the helper's clock at the end of each group not waited for
  void commit(int thread) { groups[thread].push_back(helper_clock[thread]++); }
  /// The thread has waited until all but its latest `left` groups are there; -1: for everything.
  void await(int thread, int left) {
    std::vector<unsigned>& open = groups[thread];
    unsigned& seen = clock(thread, helper(thread));
    if (left < 0) {
      seen = helper_clock[thread]++;
      open.clear();
    }
    while (left >= 0 && open.size() > static_cast<size_t>(left)) {
      seen = open.front();
      open.erase(open.begin());
    }
  }

  void fault(size_t word, const char* what, int thread, const Where& where, const Access& other) {
    const auto places = std::pair(where.line() * 1ull << 32 | other.where.line(), std::string(what));
    if (!reported.insert(places).second) return;  // each pair of places once
    char line[400];
    const auto base = [](const char* path) { return std::strrchr(path, '/') == nullptr ? path : std::strrchr(path, '/') + 1; };
    std::snprintf(line, sizeof line, "%s at shared byte %zu, block %d: thread %d at %s:%u, and thread %d%s before at %s:%u\n",
                  what, 4 * word, block_number(), thread, base(where.file_name()), where.line(), other.who % block.threads,
                  other.who < block.threads ? "" : " (by an asynchronous copy)", base(other.where.file_name()),
                  other.where.line());
    report += line;
  }
  static int block_number();

  bool knows(int thread, const Access& access) {
    return access.who < 0 || access.who == thread || clock(thread, access.who) >= access.clock;
  }
  Word* touch(size_t word) {
    if (words.size() <= word) words.resize(word + 1);
    if (touched <= word) touched = word + 1;
    return &words[word];
  }
  void read(int thread, unsigned at, size_t bytes, const Where& where) {
    for (size_t word = at / 4; word < (at + bytes + 3) / 4; ++word) {
      Word& w = *touch(word);
      if (!knows(thread, w.write)) fault(word, "a read of what may not be written yet", thread, where, w.write);
      const Access mine{thread, clock(thread, thread), where};
      // Reads this thread knows of need no record any more: whoever knows of this one knows of them.
      std::erase_if(w.reads, [&](const Access& access) { return knows(thread, access); });
      w.reads.push_back(mine);
    }
  }
  /// A read by a product of a warp group, which sees only what its writer published (a fence) before telling of it.
  void read_by_product(int thread, unsigned at, size_t bytes, const Where& where) {
    for (size_t word = at / 4; word < (at + bytes) / 4; ++word) {
      const Word& w = *touch(word);
      if (w.write.who >= 0 && published[static_cast<size_t>(w.write.who % block.threads)] < w.written)
        fault(word, "a product reads what its writer did not publish", thread, where, w.write);
    }
    read(thread, at, bytes, where);
  }
  void write(int thread, bool by_helper, unsigned at, size_t bytes, const Where& where) {
    for (size_t word = at / 4; word < (at + bytes + 3) / 4; ++word) {
      Word& w = *touch(word);
      if (!knows(thread, w.write)) fault(word, "a write over another", thread, where, w.write);
      for (const Access& access : w.reads) {
        if (!knows(thread, access)) fault(word, "a write over what may not be read yet", thread, where, access);
      }
      w.reads.clear();
      w.written = ++writes;
      w.write = by_helper ? Access{helper(thread), helper_clock[thread], where} : Access{thread, clock(thread, thread), where};
    }
  }
};
inline Races races;

/// A thread comes to a meeting; true when that completes it.
inline bool come(int number, int count, bool orders, bool waits) {
  Meeting& meeting = block.meetings[number];
  if (meeting.arrived > 0 && meeting.count != count) {
    std::fprintf(stderr, "emulated kernel: barrier %d is for %d threads and for %d\n", number, meeting.count, count);
    std::abort();
  }
  meeting.count = count;
  const bool watched = orders && races.watching;
  if (watched) races.tell(block.current, number);
  if (++meeting.arrived != count) return false;
  for (int fiber : meeting.who) {
    block.fibers[fiber].waiting = false;
    if (watched) races.learn(fiber, number);
  }
  if (watched && waits) races.learn(block.current, number);
  if (watched) races.forget(number);
  meeting.who.clear();
  meeting.arrived = 0;
  return true;
}

/// Comes to a meeting without waiting for it to be complete.
inline void arrive(int number, int count) { come(number, count, true, false); }

inline void meet(int number, int count, bool orders = true) {
  if (come(number, count, orders, true)) return;
  block.meetings[number].who.push_back(block.current);
  block.fibers[block.current].waiting = true;
  yield();
}

inline int warp_size() {
  const int left = block.threads - block.current / 32 * 32;
  return left < 32 ? left : 32;
}
/// All lanes have come. Says nothing of memory: __syncwarp does.
inline void meet_warp() { meet(16 + block.current / 32, warp_size(), false); }

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

inline int Races::block_number() { return blockIdx.x; }

alignas(1024) inline char dynamic_shared[232448];

inline void enter() {
  block.body(block.argument);
  block.fibers[block.current].done = true;
  _longjmp(block.scheduler, 1);
}

inline void run_block(int index) {
  const int threads = block.threads;
  for (Meeting& meeting : block.meetings) meeting = {};
  if (races.watching) races.begin_block();
  std::memset(dynamic_shared, 0xff, sizeof dynamic_shared);  // whatever stands there at first means nothing: here NaN
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

/// Parameter `index` of a kernel: pointers come first.
template <class A>
A argument(void* const* args, const int64_t* sizes, size_t pointers, size_t index) {
  if constexpr (std::is_pointer_v<A>) {
    return static_cast<A>(args[index]);
  } else {
    return static_cast<A>(sizes[index - pointers]);
  }
}

// No tuple of the arguments: one of hundreds takes a compiler many seconds.
template <class Use, class... A, size_t... index>
void with_body(void (*kernel)(A...), void* const* args, const int64_t* sizes, const Use& use, std::index_sequence<index...>) {
  size_t pointers = 0;
  for (const bool pointer : {std::is_pointer_v<A>...}) pointers += pointer;
  auto body = [&] { kernel(argument<A>(args, sizes, pointers, index)...); };
  use(body);
}
/// use(what a thread of the kernel does).
template <class Use, class... A>
void with_body(void (*kernel)(A...), void* const* args, const int64_t* sizes, const Use& use) {
  with_body(kernel, args, sizes, use, std::index_sequence_for<A...>());
}

template <class... A>
void launch(void (*kernel)(A...), void* const* args, const int64_t* sizes, int64_t blocks, int threads) {
  with_body(kernel, args, sizes, [&](auto& body) { run_blocks(body, blocks, threads); });
}

}  // namespace ig_emulation

inline void __syncthreads() { ig_emulation::meet(0, blockDim.x); }
inline void __syncwarp() { ig_emulation::meet(16 + ig_emulation::block.current / 32, ig_emulation::warp_size()); }
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
inline unsigned __ballot_sync(unsigned, bool vote) {
  unsigned votes = vote ? 1u << ig_emulation::block.current % 32 : 0u;
  for (int step = 1; step < 32; step *= 2) votes |= __shfl_xor_sync(0xffffffffu, votes, step);
  return votes;
}
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
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
#define IG_SHARED_ALL_DYNAMIC(name) IG_DYNAMIC_SHARED(name)

namespace ig_emulation {

template <class V>
void need_place(const char* what, unsigned at) {
  if (at % sizeof(V) == 0 && at + sizeof(V) <= sizeof dynamic_shared) return;
  std::fprintf(stderr, "emulated kernel: a shared %s of %zu bytes at %u\n", what, sizeof(V), at);
  std::abort();
}
template <class V>
V peek(unsigned at, const Where& where) {
  need_place<V>("read", at);
  if (races.watching) races.read(block.current, at, sizeof(V), where);
  V v;
  std::memcpy(&v, dynamic_shared + at, sizeof(V));
  return v;
}
template <class V>
void poke(unsigned at, const V& v, const Where& where, bool by_helper = false) {
  need_place<V>("write", at);
  if (races.watching) races.write(block.current, by_helper, at, sizeof(V), where);
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
inline void load_matrices(unsigned (&r)[4], unsigned row, bool transposed, const Where& where) {
  need_place<uint4>("read", row);
  if (races.watching) races.read(block.current, row, 16, where);
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

inline void store_matrices(unsigned row, const unsigned (&r)[4], const Where& where) {
  need_place<uint4>("write", row);
  if (races.watching) races.write(block.current, false, row, 16, where);
  unsigned mine[5] = {r[0], r[1], r[2], r[3], row};
  together(mine, [](unsigned(**lanes)[5]) {
    for (int m = 0; m < 4; ++m) {
      uint16_t rows[8][8];
      for (int l = 0; l < 32; ++l) {
        for (int e = 0; e < 2; ++e) {
          rows[l / 4][2 * (l % 4) + e] = static_cast<uint16_t>((*lanes[l])[m] >> (16 * e));
        }
      }
      for (int i = 0; i < 8; ++i) std::memcpy(dynamic_shared + (*lanes[8 * m + i])[4], rows[i], 16);
    }
  });
}

/// What warp groups multiply, done only when they wait for it: whoever reads a sum too early gets the old one.
struct GroupProduct {
  float (*d)[4];
  bool add, left_in_shared, left_columns, right_rows;
  int columns;
  unsigned a[4];  ///< fragment, or the address of the left operand
  unsigned b;
  Where where;
};
inline std::vector<GroupProduct> products[1024];  ///< [thread]

inline unsigned swizzled(unsigned at) { return at ^ (at >> 7 & 7) << 4; }
inline float bf16_at(unsigned at) {
  uint16_t bits;
  std::memcpy(&bits, dynamic_shared + swizzled(at), 2);
  return float_of(static_cast<unsigned>(bits) << 16);
}
/// Pieces of 16 bytes of an operand, which the lanes of a warp share out among them.
inline void read_pieces(unsigned first, int rows, int pieces, const Where& where) {
  for (int i = block.current % 32; i < rows * pieces; i += 32)
    races.read_by_product(block.current, swizzled(first + i / pieces * 128 + i % pieces * 16), 16, where);
}
inline void do_product(const GroupProduct& p) {
  const int l = block.current % 32, w = block.current / 32 % 4;
  if (races.watching) {
    if (p.right_rows) read_pieces(p.b, p.columns, 2, p.where);
    if (!p.right_rows) read_pieces(p.b, 16, p.columns / 8, p.where);
    if (p.left_in_shared && p.left_columns) read_pieces(p.a[0] + 32 * w, 16, 2, p.where);
    if (p.left_in_shared && !p.left_columns) read_pieces(p.a[0] + 128 * 16 * w, 16, 2, p.where);
  }
  unsigned fragments[32][4];
  if (!p.left_in_shared) {
    unsigned mine[4] = {p.a[0], p.a[1], p.a[2], p.a[3]};
    together(mine, [](unsigned(**lanes)[4]) {
      unsigned all[32][4];
      for (int i = 0; i < 32; ++i) std::memcpy(all[i], *lanes[i], 16);
      std::memcpy(block.warp_words[block.current / 32], all, sizeof all);
    });
    std::memcpy(fragments, block.warp_words[block.current / 32], sizeof fragments);
    meet_warp();
  }
  const auto left = [&](int i, int k) {  // i: row among the warp's 16
    if (!p.left_in_shared) {
      const unsigned r = fragments[i % 8 * 4 + k % 8 / 2][i / 8 + k / 8 * 2];
      return float_of(k % 2 == 0 ? r << 16 : r & 0xffff0000u);
    }
    return bf16_at(p.left_columns ? p.a[0] + 128 * k + 2 * (16 * w + i) : p.a[0] + 128 * (16 * w + i) + 2 * k);
  };
  float rows[2][16];
  for (int h = 0; h < 2; ++h)
    for (int k = 0; k < 16; ++k) rows[h][k] = left(l / 4 + 8 * h, k);
  for (int n = 0; n < p.columns / 8; ++n) {
    for (int q = 0; q < 2; ++q) {
      const int column = 8 * n + 2 * (l % 4) + q;
      float sums[2] = {p.add ? p.d[n][q] : 0.0f, p.add ? p.d[n][2 + q] : 0.0f};
      for (int k = 0; k < 16; ++k) {
        const float b = bf16_at(p.right_rows ? p.b + 128 * column + 2 * k : p.b + 128 * k + 2 * column);
        sums[0] += rows[0][k] * b, sums[1] += rows[1][k] * b;
      }
      p.d[n][q] = sums[0], p.d[n][2 + q] = sums[1];
    }
  }
}
inline void meet_group() { meet(16 + 32 + block.current / 128, 128, false); }

}  // namespace ig_emulation

inline float ig_exp2_fast(float x) { return exp2f(x); }
inline float ig_reciprocal_fast(float x) { return 1.0f / x; }
inline unsigned ig_bytes(unsigned low, unsigned high, unsigned which) {
  unsigned out = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned byte = which >> 4 * i & 7;
    out |= ((byte < 4 ? low : high) >> 8 * (byte % 4) & 0xff) << 8 * i;
  }
  return out;
}
inline unsigned ig_peek(unsigned at, ig_emulation::Where where = ig_emulation::Where::current()) {
  return ig_emulation::peek<unsigned>(at, where);
}
inline float ig_peek_float(unsigned at, ig_emulation::Where where = ig_emulation::Where::current()) {
  return ig_emulation::peek<float>(at, where);
}
inline float2 ig_peek_two(unsigned at, ig_emulation::Where where = ig_emulation::Where::current()) {
  const auto both = ig_emulation::peek<unsigned long long>(at, where);
  return {ig_emulation::float_of(static_cast<unsigned>(both)), ig_emulation::float_of(static_cast<unsigned>(both >> 32))};
}
inline uint4 ig_peek_16(unsigned at, ig_emulation::Where where = ig_emulation::Where::current()) {
  return ig_emulation::peek<uint4>(at, where);
}
inline void ig_poke(unsigned at, unsigned v, ig_emulation::Where where = ig_emulation::Where::current()) {
  ig_emulation::poke(at, v, where);
}
inline void ig_poke_float(unsigned at, float v, ig_emulation::Where where = ig_emulation::Where::current()) {
  ig_emulation::poke(at, v, where);
}
inline void ig_poke_two(unsigned at, float x, float y, ig_emulation::Where where = ig_emulation::Where::current()) {
  ig_emulation::need_place<float2>("write", at);
  ig_emulation::poke(at, x, where);
  ig_emulation::poke(at + 4, y, where);
}
inline int ig_here(int x) { return x; }
inline unsigned ig_clock() { return 0; }
inline int ig_thread() { return threadIdx.x; }
inline int ig_lane() { return threadIdx.x % 32; }
inline void ig_load_matrices(unsigned (&r)[4], unsigned row, ig_emulation::Where where = ig_emulation::Where::current()) {
  ig_emulation::load_matrices(r, row, false, where);
}
inline void ig_load_matrices_transposed(unsigned (&r)[4], unsigned row,
                                        ig_emulation::Where where = ig_emulation::Where::current()) {
  ig_emulation::load_matrices(r, row, true, where);
}
inline void ig_mma_bf16(float (&d)[4], const unsigned* a, unsigned b0, unsigned b1) {
  ig_emulation::multiply<16>(d, a, b0, b1,
                             [](unsigned r, int e) { return ig_emulation::float_of(e == 0 ? r << 16 : r & 0xffff0000u); });
}
inline void ig_mma_tf32(float (&d)[4], const unsigned* a, unsigned b0, unsigned b1) {
  ig_emulation::multiply<8>(d, a, b0, b1, [](unsigned r, int) { return ig_emulation::float_of(r & 0xffffe000u); });
}
inline void ig_store_matrices(unsigned row, const unsigned (&r)[4], ig_emulation::Where where = ig_emulation::Where::current()) {
  ig_emulation::store_matrices(row, r, where);
}
inline void ig_publish() {
  if (ig_emulation::races.watching)
    ig_emulation::races.published[static_cast<size_t>(ig_emulation::block.current)] = ig_emulation::races.writes;
}
inline unsigned ig_sixteens(unsigned at) { return at / 16; }
inline void ig_group_begin() { ig_emulation::meet_group(); }
template <bool add, bool left_columns, bool right_rows, int tiles>
void ig_group_mma(float (&d)[tiles][4], unsigned a, unsigned b, ig_emulation::Where where = ig_emulation::Where::current()) {
  ig_emulation::products[ig_emulation::block.current].push_back(
      {d, add, true, left_columns, right_rows, 8 * tiles, {16 * a, 0, 0, 0}, 16 * b, where});
}
template <bool add, bool right_rows, int tiles>
void ig_group_mma(float (&d)[tiles][4], const unsigned (&a)[4], unsigned b,
                  ig_emulation::Where where = ig_emulation::Where::current()) {
  ig_emulation::products[ig_emulation::block.current].push_back(
      {d, add, false, false, right_rows, 8 * tiles, {a[0], a[1], a[2], a[3]}, 16 * b, where});
}
inline void ig_group_end() {
  for (const auto& product : ig_emulation::products[ig_emulation::block.current]) ig_emulation::do_product(product);
  ig_emulation::products[ig_emulation::block.current].clear();
  ig_emulation::meet_group();
}
template <int tiles>
void ig_group_end(float (&)[tiles][4]) {
  ig_group_end();
}
inline void ig_copy_async(unsigned to, const void* from, bool valid, ig_emulation::Where where = ig_emulation::Where::current()) {
  ig_emulation::poke(to, valid ? *static_cast<const uint4*>(from) : uint4{}, where, true);
}
inline void ig_announce(const void*) {}
inline void ig_copy_commit() {
  if (ig_emulation::races.watching) ig_emulation::races.commit(ig_emulation::block.current);
}
inline void ig_copy_wait_all() {
  if (ig_emulation::races.watching) ig_emulation::races.await(ig_emulation::block.current, -1);
}
template <int bytes>
void ig_ring_copy(unsigned to, const void* from, ig_emulation::Where where = ig_emulation::Where::current()) {
  struct alignas(bytes) Piece {
    char bits[bytes];
  };
  ig_emulation::poke(to, ig_stream(static_cast<const Piece*>(from)), where, true);
}
template <int groups>
void ig_ring_wait() {
  if (ig_emulation::races.watching) ig_emulation::races.await(ig_emulation::block.current, groups);
}
inline ig_8 ig_peek_8(unsigned at, ig_emulation::Where where = ig_emulation::Where::current()) {
  return ig_emulation::peek<ig_8>(at, where);
}
inline void ig_put_16(void* to, uint4 v, bool valid) {
  if (valid) *static_cast<uint4*>(to) = v;
}
inline void ig_gather(int id, int threads) { ig_emulation::meet(id, threads); }
inline void ig_arrive(int id, int threads) { ig_emulation::arrive(id, threads); }

/// Whether to look for races from now on; what was found since then, or "".
extern "C" __attribute__((used)) inline void ig_watch(bool on) {
  ig_emulation::races.watching = on;
  ig_emulation::races.reported.clear();
  ig_emulation::races.report.clear();
}
extern "C" __attribute__((used)) inline const char* ig_races() { return ig_emulation::races.report.c_str(); }
