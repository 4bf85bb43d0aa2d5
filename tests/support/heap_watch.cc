#include "tests/support/heap_watch.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>

#include <fmt/format.h>

namespace hyper::testing {
namespace {

struct Request {
  const char* function = nullptr;
  std::size_t bytes = 0;
};

std::atomic<bool> g_watching{false};
std::atomic<int64_t> g_count{0};
constexpr int64_t kKept = 8;
Request g_first[kKept];
constinit thread_local int t_excused = 0;

[[maybe_unused]] void Note(const char* function, std::size_t bytes) {
  if (!g_watching.load(std::memory_order_relaxed) || t_excused > 0) return;
  const int64_t index = g_count.fetch_add(1);
  if (index < kKept) g_first[index] = {function, bytes};
}

}  // namespace

HeapWatch::HeapWatch() {
  g_count = 0;
  g_watching = true;
}
HeapWatch::~HeapWatch() { g_watching = false; }
int64_t HeapWatch::count() const { return g_count; }

std::string HeapWatch::First() const {
  const HeapExcuse excuse;
  std::string text;
  for (int64_t i = 0; i < std::min(count(), kKept); ++i) {
    text += fmt::format("{} {}\n", g_first[i].function, g_first[i].bytes);
  }
  return text;
}

HeapExcuse::HeapExcuse() { ++t_excused; }
HeapExcuse::~HeapExcuse() { --t_excused; }

#if defined(__has_feature)
#define HYPER_HAS_FEATURE(name) __has_feature(name)
#else
#define HYPER_HAS_FEATURE(name) 0
#endif

// gcc says by a macro what it instruments, Clang by a feature.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||               \
    HYPER_HAS_FEATURE(address_sanitizer) || HYPER_HAS_FEATURE(thread_sanitizer) || \
    !defined(__GLIBC__)
bool HeapCanBeWatched() { return false; }
}  // namespace hyper::testing
#else
bool HeapCanBeWatched() { return true; }
}  // namespace hyper::testing

using hyper::testing::Note;

extern "C" {

void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
// Of runtime/kernels/library_heap.cc, where that is linked: it knows blocks that libc does not.
__attribute__((weak)) void* hyper_library_heap_realloc(void* memory, std::size_t bytes) noexcept;

void* malloc(std::size_t bytes) noexcept {
  Note("malloc", bytes);
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) noexcept {
  Note("calloc", count * bytes);
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) noexcept {
  Note("realloc", bytes);
  if (hyper_library_heap_realloc != nullptr) return hyper_library_heap_realloc(memory, bytes);
  return __libc_realloc(memory, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  Note("memalign", bytes);
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  Note("aligned_alloc", bytes);
  return __libc_memalign(alignment, bytes);
}
// The runtime's own, where it is linked (runtime/kernels/library_heap.cc), goes on to memalign.
__attribute__((weak)) int posix_memalign(void** memory, std::size_t alignment,
                                         std::size_t bytes) noexcept {
  Note("posix_memalign", bytes);
  *memory = __libc_memalign(alignment, bytes);
  return *memory != nullptr ? 0 : ENOMEM;
}

}  // extern "C"
#endif
