#include "runtime/rank_table.h"

#include <fmt/format.h>

namespace hyper::runtime {

Result<RankTable> RankTable::Create(const std::string& model, int ranks, int ranks_per_replica) {
  if (ranks_per_replica < 1 || ranks < 1) {
    return DataLoss(fmt::format("the bundle says {} ranks per replica", ranks_per_replica));
  }
  if (ranks % ranks_per_replica != 0) {
    const int below = ranks / ranks_per_replica * ranks_per_replica;
    return InvalidArgument(
        fmt::format("the bundle needs {} ranks per replica and {} were launched; launch {}{}",
                    ranks_per_replica, ranks, below > 0 ? fmt::format("{} or ", below) : "",
                    below + ranks_per_replica));
  }
  RankTable table;
  table.replicas_ = ranks / ranks_per_replica;
  for (int rank = 0; rank < ranks; ++rank) {
    RankPlace place{model, {}, rank / ranks_per_replica, {}};
    if (ranks_per_replica > 1) place.coordinates = {rank % ranks_per_replica};
    table.places_.push_back(std::move(place));
  }
  return table;
}

}  // namespace hyper::runtime
