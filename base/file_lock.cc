#include "base/file_lock.h"

#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

namespace hyper {
namespace {

std::string HolderOf(int fd) {
  char text[512] = {};
  const ssize_t length = ::pread(fd, text, sizeof(text) - 1, 0);
  std::string holder(text, length > 0 ? static_cast<size_t>(length) : 0);
  holder = holder.substr(0, holder.find('\n'));
  return holder.empty() ? "another process" : holder;
}

Status Lock(int fd, const std::string& path) {
  int locked = -1;
  do {
    locked = ::flock(fd, LOCK_EX | LOCK_NB);
  } while (locked != 0 && errno == EINTR);
  if (locked == 0) return Status::Ok();
  switch (errno) {
    case EWOULDBLOCK: return FailedPrecondition(fmt::format("in use by {}", HolderOf(fd)));
    case ENOSYS:
    case ENOLCK:
    case EOPNOTSUPP:
    case EINVAL: return Unimplemented(fmt::format("'{}': its file system has no locks", path));
    default: return ErrnoStatus(errno, "cannot lock", path);
  }
}

Status WriteHolder(int fd, const std::string& path, std::string_view holder) {
  const std::string line = fmt::format("{}\n", holder);
  if (::ftruncate(fd, 0) != 0 ||
      ::pwrite(fd, line.data(), line.size(), 0) != static_cast<ssize_t>(line.size())) {
    return ErrnoStatus(errno, "cannot write", path);
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<FileLock>> FileLock::Take(const std::string& path, std::string_view holder) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
  if (fd < 0) return ErrnoStatus(errno, "cannot create", path);
  std::unique_ptr<FileLock> lock(new FileLock(fd));
  struct stat info {};
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, "cannot read", path);
  HYPER_RETURN_IF_ERROR(CheckRegular(info.st_mode, path));
  HYPER_RETURN_IF_ERROR(Lock(fd, path));
  HYPER_RETURN_IF_ERROR(WriteHolder(fd, path, holder));
  return lock;
}

FileLock::~FileLock() { ::close(fd_); }

std::string ThisProcess() {
  char host[256] = {};
  if (::gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  return fmt::format("process {} on {}", ::getpid(), host[0] != '\0' ? host : "an unknown host");
}

}  // namespace hyper
