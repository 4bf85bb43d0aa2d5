#include "runtime/agree.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace hyper::runtime {

Status AgreeOn(Communicator* communicator, const Status& status) {
  if (communicator->size() == 1) return status;
  const std::string mine =
      status.ok() ? std::string()
                  : fmt::format("{}:{}", static_cast<int>(status.code()), status.message());
  HYPER_ASSIGN_OR_RETURN(const std::vector<std::string> all, communicator->AllGather(mine));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    int code = static_cast<int>(StatusCode::kInternal);
    const auto [end, error] =
        std::from_chars(all[rank].data(), all[rank].data() + all[rank].size(), code);
    const std::string message(error == std::errc() ? end + 1 : all[rank].data());
    // What fails alike everywhere is no matter of one rank.
    const bool everywhere =
        std::count(all.begin(), all.end(), all[rank]) == static_cast<int64_t>(all.size());
    const Status first(static_cast<StatusCode>(code), message);
    return everywhere ? first : first.WithContext(fmt::format("rank {}", rank));
  }
  return Status::Ok();
}

}  // namespace hyper::runtime
