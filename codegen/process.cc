#include "codegen/process.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace hyper::codegen {
namespace {

class SpawnActions {
 public:
  SpawnActions() { ::posix_spawn_file_actions_init(&actions_); }
  ~SpawnActions() { ::posix_spawn_file_actions_destroy(&actions_); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

// Our environment with messages in English, so that they can be parsed.
std::vector<char*> Environment() {
  static char locale[] = "LC_ALL=C";
  std::vector<char*> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "LC_ALL=", 7) != 0) result.push_back(*entry);
  }
  result.push_back(locale);
  result.push_back(nullptr);
  return result;
}

std::string ReadUntilClosed(int fd) {
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer, static_cast<size_t>(got));
  }
}

}  // namespace

Result<ProcessOutput> RunProcess(const std::vector<std::string>& arguments,
                                 const std::string& folder, bool with_stderr) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return ResourceExhausted(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  }
  SpawnActions actions;
  ::posix_spawn_file_actions_addopen(actions.get(), STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(actions.get(), ends[1], STDOUT_FILENO);
  if (with_stderr) {
    ::posix_spawn_file_actions_adddup2(actions.get(), ends[1], STDERR_FILENO);
  } else {
    ::posix_spawn_file_actions_addopen(actions.get(), STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
  if (!folder.empty()) ::posix_spawn_file_actions_addchdir_np(actions.get(), folder.c_str());
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> environment = Environment();
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, argv[0], actions.get(), nullptr, argv.data(), environment.data());
  ::close(ends[1]);
  if (error != 0) {
    ::close(ends[0]);
    return NotFound(fmt::format("cannot run '{}': {}", arguments[0], std::strerror(error)));
  }
  ProcessOutput output;
  output.text = ReadUntilClosed(ends[0]);
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return Internal(fmt::format("lost '{}'", arguments[0]));
  }
  output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

}  // namespace hyper::codegen
