// Memory for what the math library allocates inside every primitive's execution.
//
// oneDNN builds its execution context anew in each dnnl_primitive_execute: hash maps of arguments,
// shared pointers to event lists, nested memory objects; 8 to 136 bytes each, six to twenty a call,
// some on the threads of the team. No way of calling it avoids that. Its gemm (batched products
// whose heads lie interleaved) packs operands into buffers that it allocates and frees each time,
// scratchpad mode or not; only copying the operands first would avoid that. Inside a LibraryCall
// such blocks come from a slab of the thread instead of the heap: the first step cuts what a step
// needs, later ones find it in free lists. To that end the object library hyper_library_heap
// (library_heap.cc) replaces the global operator new and delete, posix_memalign, realloc, free and
// malloc_usable_size in the binaries that link it; outside a LibraryCall they are those of libc.
//
// In builds with address or thread sanitizer nothing is replaced: the sanitizers watch every block
// through replacements of their own, and a slab would hide overruns and leaks from them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace hyper::runtime {

// While one lives, blocks that its thread asks for, or threads of an OpenMP team at work, are
// served from slabs. They may be freed later and on any thread. Thread safety: one thread.
class LibraryCall {
 public:
  LibraryCall();
  ~LibraryCall();
  LibraryCall(const LibraryCall&) = delete;
  LibraryCall& operator=(const LibraryCall&) = delete;
};

// All counts are since the process began, on all threads. Thread safety: any thread.

// Blocks that were asked for inside library calls but came from the heap. A steady step adds none.
int64_t LibraryBlocksFromHeap();
// How many blocks came from the heap for which of the reasons that occurred; empty: none did.
std::string LibraryHeapNote();
// Blocks that came from slabs.
int64_t LibraryBlocksServed();
// Bytes of slabs that were ever made into blocks: what the slabs occupy. A steady step adds none.
int64_t LibraryBytesCut();

// False in binaries and builds where nothing is replaced, see above.
bool LibraryBlocksAreServed();

// Largest block that is served, bytes; larger ones go to the heap.
inline constexpr int64_t kLargestLibraryBlock = 16 << 20;
// Address space of one thread's slab, taken when the thread first needs it (memory is what has been
// cut), and how many threads can have one.
inline constexpr int64_t kLibrarySlabBytes = 64 << 20;
inline constexpr int kLibrarySlabs = 256;

// For library_heap.cc alone; nothing here allocates. Thread safety: any thread.

// Null when the block is to come from the heap. The block is at least as large as both.
void* TakeLibraryBlock(size_t bytes, size_t alignment);
// Whether a block came from a slab, whatever thread and memory it is from.
bool IsLibraryBlock(const void* memory);
// Usable bytes of a block from a slab.
size_t LibraryBlockBytes(const void* block);
void GiveBackLibraryBlock(void* block);

}  // namespace hyper::runtime
