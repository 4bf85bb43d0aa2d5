#include "runtime/kernels/library_blocks.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <new>

#include <fmt/format.h>
#include <omp.h>
#include <pthread.h>
#include <sys/mman.h>

#include "base/strings.h"

// Defined by library_heap.cc where that replaces the heap's functions.
extern "C" __attribute__((weak)) void hyper_library_heap_is_replaced();

namespace hyper::runtime {
namespace {

// Blocks are powers of two from 64 bytes (a cache line, the library's alignment) upwards. They are
// cut from runs; all blocks of a run are of one class, a larger block has runs of its own.
constexpr size_t kSmallest = 64;
constexpr int kClasses = 19;
static_assert(kSmallest << (kClasses - 1) == static_cast<size_t>(kLargestLibraryBlock));
constexpr size_t kRunBytes = 64 << 10;
constexpr size_t kSlabBytes = static_cast<size_t>(kLibrarySlabBytes);
constexpr size_t kRuns = kSlabBytes / kRunBytes;
static_assert(std::has_single_bit(kSlabBytes));

enum Reason { kTooLarge, kSlabFull, kNoSlab, kNoAddresses, kReasons };

std::atomic<int> g_active{0};  // library calls in progress, for the threads of their teams
std::atomic<int64_t> g_from_heap[kReasons];
constinit thread_local int t_depth = 0;

struct Free {
  Free* next;
};

// One thread's slab. Only the owner cuts and takes blocks; others give theirs back through
// `remote`.
struct Slab {
  char* memory =
      nullptr;  // null until a thread first takes the slab; a run becomes memory when cut
  Free* lists[kClasses] = {};
  char* cut[kClasses] = {};  // rest of the class's newest run
  char* cut_end[kClasses] = {};
  size_t runs = 0;                      // in use
  unsigned char run_class[kRuns] = {};  // of a block's first run
  std::atomic<Free*> remote{nullptr};   // freed by other threads, of any size
  std::atomic<int64_t> served{0};       // written by the owner, as is the next
  std::atomic<int64_t> bytes_cut{0};
  std::atomic<bool> taken{false};
};

Slab g_slabs[kLibrarySlabs];
// The thread's slab, or kUnset, or minus the reason why it has none.
constexpr int kUnset = -kReasons;
constinit thread_local int t_slab = kUnset;

// A block is known by its address: slabs lie at multiples of their size, and for each multiple in
// the 48 bits that user addresses have this says whose it is, from 1. The pages of the table that
// nobody looks at are no memory.
constexpr size_t kSlots = (size_t{1} << 48) / kSlabBytes;
std::atomic<uint16_t> g_owner[kSlots];
static_assert(kLibrarySlabs < UINT16_MAX);

size_t SlotOf(const void* memory) { return reinterpret_cast<uintptr_t>(memory) / kSlabBytes; }

// The slab that the address is in; -1: none.
int OwnerOf(const void* memory) {
  const size_t slot = SlotOf(memory);
  return slot < kSlots ? g_owner[slot].load(std::memory_order_relaxed) - 1 : -1;
}

int ClassOf(size_t bytes) {
  return bytes <= kSmallest ? 0 : std::bit_width(bytes - 1) - std::bit_width(kSmallest - 1);
}

size_t RunOf(const void* block) {
  return reinterpret_cast<uintptr_t>(block) % kSlabBytes / kRunBytes;
}

// A thread's slab goes to the next thread that needs one; blocks still in use come back by
// `remote`.
void ReleaseSlab(void* slab) {
  t_slab = -kNoSlab;
  static_cast<Slab*>(slab)->taken.store(false, std::memory_order_release);
}

// Address space for slab `index`; false where the system refuses it.
bool Reserve(int index) {
  Slab& slab = g_slabs[index];
  if (slab.memory != nullptr) return true;
  // Twice as much holds an aligned piece.
  void* all = mmap(nullptr, 2 * kSlabBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return false;
  char* begin = static_cast<char*>(all);
  const size_t before = (kSlabBytes - reinterpret_cast<uintptr_t>(begin) % kSlabBytes) % kSlabBytes;
  char* memory = begin + before;
  if (before > 0) munmap(begin, before);
  munmap(memory + kSlabBytes, kSlabBytes - before);
  if (SlotOf(memory) >= kSlots) {
    munmap(memory, kSlabBytes);
    return false;
  }
  slab.memory = memory;
  g_owner[SlotOf(memory)].store(static_cast<uint16_t>(index + 1), std::memory_order_relaxed);
  return true;
}

// The slab's index or minus a reason.
int TakeSlab() {
  static const pthread_key_t key = [] {
    pthread_key_t created{};
    pthread_key_create(&created, ReleaseSlab);
    return created;
  }();
  for (int i = 0; i < kLibrarySlabs; ++i) {
    if (g_slabs[i].taken.load(std::memory_order_relaxed)) continue;
    if (g_slabs[i].taken.exchange(true, std::memory_order_acquire)) continue;
    if (!Reserve(i)) {
      g_slabs[i].taken.store(false, std::memory_order_release);
      return -kNoAddresses;
    }
    pthread_setspecific(key, &g_slabs[i]);
    return i;
  }
  return -kNoSlab;
}

void Push(Slab& slab, void* block) {
  Free*& list = slab.lists[slab.run_class[RunOf(block)]];
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
  char* run = slab.memory + slab.runs * kRunBytes;
  if (mprotect(run, count * kRunBytes, PROT_READ | PROT_WRITE) != 0) return false;
  slab.run_class[slab.runs] = static_cast<unsigned char>(size_class);
  slab.runs += count;
  slab.cut[size_class] = run;
  slab.cut_end[size_class] = run + count * kRunBytes;
  return true;
}

// Only the owner writes these counters: no locked instruction.
void Add(std::atomic<int64_t>& counter, size_t amount) {
  counter.store(counter.load(std::memory_order_relaxed) + static_cast<int64_t>(amount),
                std::memory_order_relaxed);
}

// Null when the thread has no slab or its slab no such block left; `reason` says which.
void* TakeBlock(int size_class, Reason* reason) {
  if (t_slab == kUnset) t_slab = TakeSlab();
  if (t_slab < 0) {
    *reason = static_cast<Reason>(-t_slab);
    return nullptr;
  }
  Slab& slab = g_slabs[t_slab];
  Free*& list = slab.lists[size_class];
  if (list == nullptr) TakeBackRemote(slab);
  void* block = list;
  if (list != nullptr) {
    list = list->next;
  } else {
    char*& cut = slab.cut[size_class];
    if (cut == slab.cut_end[size_class] && !AddRun(slab, size_class)) {
      *reason = kSlabFull;
      return nullptr;
    }
    block = cut;
    cut += kSmallest << size_class;
    Add(slab.bytes_cut, kSmallest << size_class);
  }
  Add(slab.served, 1);
  return block;
}

}  // namespace

bool IsLibraryBlock(const void* memory) { return OwnerOf(memory) >= 0; }

size_t LibraryBlockBytes(const void* block) {
  return kSmallest << g_slabs[OwnerOf(block)].run_class[RunOf(block)];
}

void GiveBackLibraryBlock(void* block) {
  const int owner = OwnerOf(block);
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

void* TakeLibraryBlock(size_t bytes, size_t alignment) {
  if (t_depth == 0) {
    if (g_active.load(std::memory_order_relaxed) == 0 || omp_in_parallel() == 0) return nullptr;
  }
  void* block = nullptr;
  Reason reason = kTooLarge;
  // Blocks are as aligned as they are large, up to a page.
  constexpr size_t kPage = 4096;
  const size_t wanted = std::max(bytes, alignment);
  if (wanted <= static_cast<size_t>(kLargestLibraryBlock) && alignment <= kPage) {
    block = TakeBlock(ClassOf(wanted), &reason);
  }
  if (block == nullptr) g_from_heap[reason].fetch_add(1, std::memory_order_relaxed);
  return block;
}

LibraryCall::LibraryCall() {
  ++t_depth;
  g_active.fetch_add(1, std::memory_order_relaxed);
}

LibraryCall::~LibraryCall() {
  g_active.fetch_sub(1, std::memory_order_relaxed);
  --t_depth;
}

int64_t LibraryBlocksFromHeap() {
  int64_t blocks = 0;
  for (const auto& count : g_from_heap) blocks += count.load(std::memory_order_relaxed);
  return blocks;
}

std::string LibraryHeapNote() {
  const std::string reasons[kReasons] = {
      fmt::format("larger than {} or aligned to more than a page",
                  FormatBytes(kLargestLibraryBlock)),
      fmt::format("the thread's slab of {} was full", FormatBytes(kLibrarySlabBytes)),
      fmt::format("{} other threads have slabs", kLibrarySlabs),
      fmt::format("the system refused the address space of a slab of {} (ulimit -v)",
                  FormatBytes(kLibrarySlabBytes))};
  std::string note;
  for (int i = 0; i < kReasons; ++i) {
    const int64_t count = g_from_heap[i].load(std::memory_order_relaxed);
    if (count == 0) continue;
    note += fmt::format("{}{}: {}", note.empty() ? "" : "; ", reasons[i], count);
  }
  if (note.empty()) return note;
  return fmt::format("library calls took {} blocks from the heap ({})", LibraryBlocksFromHeap(),
                     note);
}

int64_t LibraryBlocksServed() {
  int64_t served = 0;
  for (const Slab& slab : g_slabs) served += slab.served.load(std::memory_order_relaxed);
  return served;
}

int64_t LibraryBytesCut() {
  int64_t bytes = 0;
  for (const Slab& slab : g_slabs) bytes += slab.bytes_cut.load(std::memory_order_relaxed);
  return bytes;
}

bool LibraryBlocksAreServed() { return hyper_library_heap_is_replaced != nullptr; }

}  // namespace hyper::runtime
