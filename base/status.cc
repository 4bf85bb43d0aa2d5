#include "base/status.h"

#include <fmt/format.h>

namespace hyper {

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "ok";
    case StatusCode::kInvalidArgument: return "invalid argument";
    case StatusCode::kNotFound: return "not found";
    case StatusCode::kFailedPrecondition: return "failed precondition";
    case StatusCode::kUnimplemented: return "not supported";
    case StatusCode::kResourceExhausted: return "resources exhausted";
    case StatusCode::kDataLoss: return "damaged data";
    case StatusCode::kUnavailable: return "unavailable";
    case StatusCode::kDeadlineExceeded: return "deadline exceeded";
    case StatusCode::kCancelled: return "stopped on request";
    case StatusCode::kInternal: return "internal error";
  }
  return "unknown";
}

int ExitCode(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return 0;
    case StatusCode::kInternal: return 3;
    case StatusCode::kResourceExhausted: return 4;
    case StatusCode::kUnavailable:
    case StatusCode::kDeadlineExceeded: return 5;
    case StatusCode::kCancelled: return 75;
    default: return 1;
  }
}

std::string Status::ToString() const {
  if (ok()) return "ok";
  return fmt::format("{}: {}", StatusCodeName(code_), message_);
}

Status Status::WithContext(std::string_view context) const {
  if (ok()) return *this;
  return {code_, fmt::format("{}: {}", context, message_)};
}

void FailCheck(const char* file, int line, const char* condition, const std::string& detail) {
  throw InternalError(fmt::format("{}:{}: check failed: {}{}{}; please report this", file, line,
                                  condition, detail.empty() ? "" : ": ", detail));
}

}  // namespace hyper
