// A lock that a file carries and that ends with its holder, however that dies: two jobs in one
// folder find out about each other.
// Thread safety: values; a lock may be taken and given back on different threads.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hyper {

class FileLock {
 public:
  // Creates `path` where it is missing, locks it and writes `holder` (one line) into it for whoever
  // finds it locked. kFailedPrecondition that names the present holder when there is one (also in
  // this process); kUnimplemented where the file system has no locks.
  static Result<std::unique_ptr<FileLock>> Take(const std::string& path, std::string_view holder);
  // The file stays: removing it would let a third process lock another file of that name.
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

// "process 1234 on node7": who this process is, for Take.
std::string ThisProcess();

}  // namespace hyper
