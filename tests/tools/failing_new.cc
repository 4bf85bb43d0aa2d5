// Linked into a hyperrun of its own: once the file that HYPER_TEST_NO_MEMORY names is there, the
// main thread of rank 1 is refused its next memory, once. An exception at a place that nothing
// prepares for, on one rank only.
#include <cstdlib>
#include <cstring>
#include <new>

#include <sys/syscall.h>
#include <unistd.h>

namespace {

bool Refuses() {
  static bool refused = false;
  static const char* const file = std::getenv("HYPER_TEST_NO_MEMORY");
  static const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (file == nullptr || rank == nullptr || std::strcmp(rank, "1") != 0) return false;
  if (::syscall(SYS_gettid) != ::getpid() || refused || ::access(file, F_OK) != 0) return false;
  refused = true;
  return true;
}

}  // namespace

void* operator new(std::size_t bytes) {
  void* memory = Refuses() ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
// Its default belongs to the sanitizer where there is one, and would not go with our delete.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return Refuses() ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
