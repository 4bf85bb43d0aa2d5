// Counts what the process asks of the heap: malloc, calloc, realloc and the aligned forms, hence
// operator new too, are interposed in every binary that links this. Under a sanitizer, which
// replaces the same functions, nothing can be watched.
#pragma once

#include <cstdint>
#include <string>

namespace hyper::testing {

// False in builds with address or thread sanitizer: tests skip themselves.
bool HeapCanBeWatched();

// Counts the requests of all threads while it lives; one at a time.
class HeapWatch {
 public:
  HeapWatch();
  ~HeapWatch();
  HeapWatch(const HeapWatch&) = delete;
  HeapWatch& operator=(const HeapWatch&) = delete;
  int64_t count() const;
  // The first requests as "FUNCTION BYTES", for messages.
  std::string First() const;
};

// What this thread asks for while one lives is not counted.
class HeapExcuse {
 public:
  HeapExcuse();
  ~HeapExcuse();
  HeapExcuse(const HeapExcuse&) = delete;
  HeapExcuse& operator=(const HeapExcuse&) = delete;
};

}  // namespace hyper::testing
