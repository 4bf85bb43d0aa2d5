// Status and Result: how every library function reports failure. Exceptions never cross a library
// border; `Guard` turns those of third-party code into a Status.
// Thread safety: values; const access from several threads is safe.
#pragma once

#include <cassert>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace hyper {

// Chosen by what the caller or the user should do next, not by where the error arose.
enum class StatusCode {
  kOk,
  kInvalidArgument,     // the input is wrong: fix the file or the option
  kNotFound,            // a named file, tensor or key does not exist
  kFailedPrecondition,  // right input, wrong state (other version, run directory in use)
  kUnimplemented,       // a documented feature that this input needs and we do not have
  kResourceExhausted,   // memory, disk or device too small
  kDataLoss,            // damaged file: checksum or format does not hold
  kUnavailable,         // a peer is gone or cannot be reached
  kDeadlineExceeded,    // a peer did not answer in time
  kCancelled,           // stopped on request, state saved
  kInternal,            // our bug
};

std::string_view StatusCodeName(StatusCode code);

// A peer is gone, cannot be reached or did not answer: other ranks may not know.
inline bool IsCommunicationError(StatusCode code) {
  return code == StatusCode::kUnavailable || code == StatusCode::kDeadlineExceeded;
}

// Process exit code of a status, as documented in the architecture (section 9).
int ExitCode(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status Ok() { return {}; }
  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // "invalid argument: message"
  std::string ToString() const;
  // The same status with `context: ` before its message; ok stays ok.
  Status WithContext(std::string_view context) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status InvalidArgument(std::string m) {
  return {StatusCode::kInvalidArgument, std::move(m)};
}
inline Status NotFound(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
inline Status FailedPrecondition(std::string m) {
  return {StatusCode::kFailedPrecondition, std::move(m)};
}
inline Status Unimplemented(std::string m) { return {StatusCode::kUnimplemented, std::move(m)}; }
inline Status ResourceExhausted(std::string m) {
  return {StatusCode::kResourceExhausted, std::move(m)};
}
inline Status DataLoss(std::string m) { return {StatusCode::kDataLoss, std::move(m)}; }
inline Status Unavailable(std::string m) { return {StatusCode::kUnavailable, std::move(m)}; }
inline Status Internal(std::string m) { return {StatusCode::kInternal, std::move(m)}; }

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}        // NOLINT: implicit
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {  // NOLINT: implicit
    assert(!std::get<1>(state_).ok());
  }
  bool ok() const { return state_.index() == 0; }
  Status status() const { return ok() ? Status::Ok() : std::get<1>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T& value() & { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  T&& operator*() && { return std::get<0>(std::move(state_)); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }

 private:
  std::variant<T, Status> state_;
};

// An invariant of ours that does not hold. Thrown by HYPER_CHECK only, caught by Guard.
class InternalError : public std::exception {
 public:
  explicit InternalError(std::string what) : what_(std::move(what)) {}
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::string what_;
};

[[noreturn]] void FailCheck(const char* file, int line, const char* condition,
                            const std::string& detail);

// Runs `body` (returning Status or Result<T>) and turns any exception into a Status: the border
// between throwing third-party code and the libraries.
template <typename Body>
auto Guard(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const InternalError& e) {
    return Internal(e.what());
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("out of memory");
  } catch (const std::exception& e) {
    return InvalidArgument(e.what());
  }
}

}  // namespace hyper

#define HYPER_CHECK(condition, detail)                                         \
  do {                                                                         \
    if (!(condition)) [[unlikely]]                                             \
      ::hyper::FailCheck(__FILE__, __LINE__, #condition, std::string(detail)); \
  } while (false)

#define HYPER_RETURN_IF_ERROR(expression)                                               \
  do {                                                                                  \
    if (::hyper::Status hyper_status_ = (expression); !hyper_status_.ok()) [[unlikely]] \
      return hyper_status_;                                                             \
  } while (false)

#define HYPER_CONCAT_INNER(a, b) a##b
#define HYPER_CONCAT(a, b) HYPER_CONCAT_INNER(a, b)
#define HYPER_ASSIGN_OR_RETURN(declaration, expression) \
  HYPER_ASSIGN_OR_RETURN_IMPL(HYPER_CONCAT(hyper_result_, __LINE__), declaration, expression)
#define HYPER_ASSIGN_OR_RETURN_IMPL(result, declaration, expression) \
  auto result = (expression);                                        \
  if (!result.ok()) [[unlikely]]                                     \
    return result.status();                                          \
  declaration = std::move(result).value()
