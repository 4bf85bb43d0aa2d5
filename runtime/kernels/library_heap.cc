// Replaces the heap's functions in the binaries that link this object, see library_blocks.h. Those
// that only ever make blocks for others (malloc, calloc) stay libc's.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

#include <dlfcn.h>
#include <malloc.h>

#include "runtime/kernels/library_blocks.h"

#if defined(__has_feature)
#define HYPER_HAS_FEATURE(name) __has_feature(name)
#else
#define HYPER_HAS_FEATURE(name) 0
#endif

// gcc says by a macro what it instruments, Clang by a feature.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) &&               \
    !HYPER_HAS_FEATURE(address_sanitizer) && !HYPER_HAS_FEATURE(thread_sanitizer) && \
    defined(__GLIBC__)

using hyper::runtime::GiveBackLibraryBlock;
using hyper::runtime::IsLibraryBlock;
using hyper::runtime::LibraryBlockBytes;
using hyper::runtime::TakeLibraryBlock;

// The other forms of new and delete (arrays, sizes, nothrow) call these.
void* operator new(std::size_t bytes) {
  if (void* block = TakeLibraryBlock(bytes, 1)) return block;
  while (true) {
    if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

extern "C" {

void __libc_free(void* memory);
void* __libc_realloc(void* memory, std::size_t bytes);

void hyper_library_heap_is_replaced() {}

// The library takes its own objects from posix_memalign and gives them back by free.
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) noexcept {
  if (!std::has_single_bit(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  void* block = TakeLibraryBlock(bytes, alignment);
  if (block == nullptr) block = memalign(alignment, bytes);
  if (block == nullptr) return ENOMEM;
  *memory = block;
  return 0;
}

void free(void* memory) noexcept {
  if (IsLibraryBlock(memory)) {
    GiveBackLibraryBlock(memory);
  } else {
    __libc_free(memory);
  }
}

// A block from a slab moves to the heap when it grows or shrinks.
void* hyper_library_heap_realloc(void* memory, std::size_t bytes) noexcept {
  if (!IsLibraryBlock(memory)) return __libc_realloc(memory, bytes);
  if (bytes == 0) {
    GiveBackLibraryBlock(memory);
    return nullptr;
  }
  void* moved = std::malloc(bytes);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, memory, std::min(bytes, LibraryBlockBytes(memory)));
  GiveBackLibraryBlock(memory);
  return moved;
}
// Weak: tests that count what is asked of the heap have a realloc of their own, which calls the one
// above.
__attribute__((weak)) void* realloc(void* memory, std::size_t bytes) noexcept {
  return hyper_library_heap_realloc(memory, bytes);
}

std::size_t malloc_usable_size(void* memory) noexcept {
  if (IsLibraryBlock(memory)) return LibraryBlockBytes(memory);
  // libc has no other name for its own.
  using Function = std::size_t (*)(void*);
  static std::atomic<Function> next{nullptr};
  Function function = next.load(std::memory_order_relaxed);
  if (function == nullptr) {
    function = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "malloc_usable_size"));
    if (function == nullptr) return 0;
    next.store(function, std::memory_order_relaxed);
  }
  return function(memory);
}

}  // extern "C"

#endif
