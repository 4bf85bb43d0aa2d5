#include "runtime/kernels/library_blocks.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <new>

#include <malloc.h>
#include <omp.h>
#include <pthread.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define HYPER_LIBRARY_BLOCKS 0
#else
#define HYPER_LIBRARY_BLOCKS 1
#endif

namespace hyper::runtime {
namespace {

std::atomic<int> g_active{0};  // library calls in progress, for the threads of their teams
std::atomic<int64_t> g_from_heap{0};
constinit thread_local int t_depth = 0;

#if HYPER_LIBRARY_BLOCKS

// Blocks are powers of two from 64 bytes (a cache line, the library's alignment) upwards. They are
// cut from runs; all blocks of a run are of one class, a larger block has runs of its own.
constexpr size_t kSmallest = 64;
constexpr int kClasses = 19;
static_assert(kSmallest << (kClasses - 1) == static_cast<size_t>(kLargestLibraryBlock));
constexpr size_t kRunBytes = 64 << 10;
constexpr size_t kSlabBytes = static_cast<size_t>(kLibrarySlabBytes);
constexpr size_t kRuns = kSlabBytes / kRunBytes;
constexpr size_t kAllBytes = kLibrarySlabs * kSlabBytes;

struct Free {
  Free* next;
};

// One thread's slab. Only the owner cuts and takes blocks; others give theirs back through
// `remote`.
struct Slab {
  Free* lists[kClasses] = {};
  char* cut[kClasses] = {};  // rest of the class's newest run
  char* cut_end[kClasses] = {};
  size_t runs = 0;                      // in use
  unsigned char run_class[kRuns] = {};  // of a block's first run
  std::atomic<Free*> remote{nullptr};   // freed by other threads, of any size
  std::atomic<int64_t> served{0};       // written by the owner
  std::atomic<bool> taken{false};
};

Slab g_slabs[kLibrarySlabs];
constinit thread_local int t_slab = -1;  // -2: none was left

// Address space for all slabs, so that a block is known by its address; a run becomes memory when
// it is first cut. Null before the first library call and where the system refuses.
std::atomic<char*> g_memory{nullptr};

int ClassOf(size_t bytes) {
  return bytes <= kSmallest ? 0 : std::bit_width(bytes - 1) - std::bit_width(kSmallest - 1);
}

// A thread's slab goes to the next thread that needs one; blocks still in use come back by
// `remote`.
void ReleaseSlab(void* slab) {
  t_slab = -2;
  static_cast<Slab*>(slab)->taken.store(false, std::memory_order_release);
}

bool ReserveMemory() {
  static const bool reserved = [] {
    void* memory = mmap(nullptr, kAllBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    g_memory.store(static_cast<char*>(memory), std::memory_order_release);
    return true;
  }();
  return reserved;
}

int TakeSlab() {
  static const pthread_key_t key = [] {
    pthread_key_t created{};
    pthread_key_create(&created, ReleaseSlab);
    return created;
  }();
  if (!ReserveMemory()) return -2;
  for (int i = 0; i < kLibrarySlabs; ++i) {
    if (g_slabs[i].taken.load(std::memory_order_relaxed)) continue;
    if (g_slabs[i].taken.exchange(true, std::memory_order_acquire)) continue;
    pthread_setspecific(key, &g_slabs[i]);
    return i;
  }
  return -2;
}

bool IsBlock(const void* memory) {
  const char* begin = g_memory.load(std::memory_order_relaxed);
  const auto address = reinterpret_cast<uintptr_t>(memory);
  return begin != nullptr && address - reinterpret_cast<uintptr_t>(begin) < kAllBytes;
}

size_t OffsetOf(const void* block) {
  return static_cast<size_t>(static_cast<const char*>(block) -
                             g_memory.load(std::memory_order_relaxed));
}

void Push(Slab& slab, void* block) {
  Free*& list = slab.lists[slab.run_class[OffsetOf(block) % kSlabBytes / kRunBytes]];
  list = new (block) Free{list};
}

void TakeBackRemote(Slab& slab) {
  Free* freed = slab.remote.exchange(nullptr, std::memory_order_acquire);
  while (freed != nullptr) {
    Free* next = freed->next;
    Push(slab, freed);
    freed = next;
  }
}

// False when the slab is full or the system has no memory.
bool AddRun(Slab& slab, int size_class) {
  const size_t block = kSmallest << size_class;
  const size_t count = std::max<size_t>(1, block / kRunBytes);
  if (slab.runs + count > kRuns) return false;
  char* run =
      g_memory.load(std::memory_order_relaxed) + t_slab * kSlabBytes + slab.runs * kRunBytes;
  if (mprotect(run, count * kRunBytes, PROT_READ | PROT_WRITE) != 0) return false;
  slab.run_class[slab.runs] = static_cast<unsigned char>(size_class);
  slab.runs += count;
  slab.cut[size_class] = run;
  slab.cut_end[size_class] = run + count * kRunBytes;
  return true;
}

// Null when the slab has no such block left.
void* TakeBlock(int size_class) {
  if (t_slab == -1) t_slab = TakeSlab();
  if (t_slab < 0) return nullptr;
  Slab& slab = g_slabs[t_slab];
  Free*& list = slab.lists[size_class];
  if (list == nullptr) TakeBackRemote(slab);
  void* block = list;
  if (list != nullptr) {
    list = list->next;
  } else {
    char*& cut = slab.cut[size_class];
    if (cut == slab.cut_end[size_class] && !AddRun(slab, size_class)) return nullptr;
    block = cut;
    cut += kSmallest << size_class;
  }
  slab.served.store(slab.served.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return block;
}

void GiveBack(void* block) {
  const int owner = static_cast<int>(OffsetOf(block) / kSlabBytes);
  Slab& slab = g_slabs[owner];
  if (owner == t_slab) {
    Push(slab, block);
    return;
  }
  Free* item = new (block) Free{slab.remote.load(std::memory_order_relaxed)};
  while (!slab.remote.compare_exchange_weak(item->next, item, std::memory_order_release,
                                            std::memory_order_relaxed)) {
  }
}

// Null when the block is to come from the heap.
void* Serve(size_t bytes, size_t alignment) {
  if (t_depth == 0) {
    if (g_active.load(std::memory_order_relaxed) == 0 || omp_in_parallel() == 0) return nullptr;
  }
  void* block = nullptr;
  // Blocks are as aligned as they are large, up to a page.
  constexpr size_t kPage = 4096;
  const size_t wanted = std::max(bytes, alignment);
  if (wanted <= static_cast<size_t>(kLargestLibraryBlock) && alignment <= kPage) {
    block = TakeBlock(ClassOf(wanted));
  }
  if (block == nullptr) g_from_heap.fetch_add(1, std::memory_order_relaxed);
  return block;
}

#endif  // HYPER_LIBRARY_BLOCKS

}  // namespace

LibraryCall::LibraryCall() {
  ++t_depth;
  g_active.fetch_add(1, std::memory_order_relaxed);
}

LibraryCall::~LibraryCall() {
  g_active.fetch_sub(1, std::memory_order_relaxed);
  --t_depth;
}

int64_t LibraryBlocksFromHeap() { return g_from_heap.load(std::memory_order_relaxed); }

int64_t LibraryBlocksServed() {
  int64_t served = 0;
#if HYPER_LIBRARY_BLOCKS
  for (const Slab& slab : g_slabs) served += slab.served.load(std::memory_order_relaxed);
#endif
  return served;
}

bool LibraryBlocksAreServed() { return HYPER_LIBRARY_BLOCKS != 0; }

}  // namespace hyper::runtime

#if HYPER_LIBRARY_BLOCKS

// The other forms of new and delete (arrays, sizes, nothrow) call these.
void* operator new(std::size_t bytes) {
  if (void* block = hyper::runtime::Serve(bytes, 1)) return block;
  while (true) {
    if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

// The library takes its own objects from posix_memalign and gives them back by free.
extern "C" int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) noexcept {
  if (!std::has_single_bit(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  *memory = hyper::runtime::Serve(bytes, alignment);
  if (*memory == nullptr) *memory = memalign(alignment, bytes);
  return *memory != nullptr ? 0 : ENOMEM;
}

extern "C" void __libc_free(void* memory);
extern "C" void free(void* memory) noexcept {
  if (hyper::runtime::IsBlock(memory)) {
    hyper::runtime::GiveBack(memory);
  } else {
    __libc_free(memory);
  }
}

#endif  // HYPER_LIBRARY_BLOCKS
