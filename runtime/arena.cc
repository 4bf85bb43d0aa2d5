// The one block of memory that a rank's program lives in.
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <sys/mman.h>

#include "base/strings.h"
#include "runtime/executor.h"

namespace hyper::runtime {

Result<std::unique_ptr<Arena>> Arena::Create(int64_t bytes) {
  // Whole huge pages, so that the kernel can back the arena with them.
  constexpr int64_t kHugePage = 2 << 20;
  const int64_t mapped = (std::max<int64_t>(bytes, 1) + kHugePage - 1) / kHugePage * kHugePage;
  void* data = ::mmap(nullptr, static_cast<size_t>(mapped), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return ResourceExhausted(
        fmt::format("cannot map the arena of {}: {}", FormatBytes(bytes), std::strerror(errno)));
  }
  ::madvise(data, static_cast<size_t>(mapped), MADV_HUGEPAGE);
  return std::unique_ptr<Arena>(new Arena(static_cast<char*>(data), bytes, mapped));
}

Arena::~Arena() { ::munmap(data_, static_cast<size_t>(mapped_)); }

}  // namespace hyper::runtime
