#include "runtime/ordered_communicator.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace hyper::runtime {
namespace {

// Elements combined at a time: small enough for the first-level cache.
constexpr int64_t kBlock = 1024;

}  // namespace

OrderedCommunicator::OrderedCommunicator(std::unique_ptr<Transport> transport,
                                         OrderedOptions options)
    : transport_(std::move(transport)), options_(options) {
  const size_t peers = static_cast<size_t>(size());
  planned_sends_.reserve(2 * peers);
  planned_receives_.reserve(2 * peers);
  sends_.reserve(2 * peers);
  receives_.reserve(2 * peers);
}

template <typename T>
void OrderedCommunicator::CombineChunk(T* own, int64_t count, Operation operation) {
  T sum[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    for (int r = 0; r < size(); ++r) {
      const T* in =
          r == rank() ? own : reinterpret_cast<const T*>(scratch_.data() + r * scratch_stride_);
      in += begin;
      if (r == 0) {
        std::copy(in, in + n, sum);
      } else if (operation == Operation::kSum) {
        for (int64_t i = 0; i < n; ++i) sum[i] += in[i];
      } else {
        for (int64_t i = 0; i < n; ++i) sum[i] = std::max(sum[i], in[i]);
      }
    }
    std::copy(sum, sum + n, own + begin);
  }
}

Status OrderedCommunicator::AllReduce(void* data, int64_t elements, ir::DType dtype,
                                      Operation operation) {
  if (dtype != ir::DType::kF32 && dtype != ir::DType::kF64 && dtype != ir::DType::kI64) {
    return Internal(
        fmt::format("all-reduce of {}: only f32, f64 and i64 are summed", ir::DTypeName(dtype)));
  }
  if (size() == 1 || elements == 0) return Status::Ok();
  const int64_t width = ir::DTypeBytes(dtype);
  auto* const base = static_cast<std::byte*>(data);
  const OrderedRounds rounds(size(), elements, width, options_);
  // Chunks start 64 bytes apart at least, so that every chunk is aligned for its type.
  scratch_stride_ = (rounds.LargestChunk() * width + 63) / 64 * 64;
  const size_t scratch_bytes = static_cast<size_t>(scratch_stride_ * size());
  if (scratch_.size() < scratch_bytes) scratch_.resize(scratch_bytes);

  for (int64_t k = 0; k < rounds.rounds(); ++k) {
    rounds.Messages(k, rank(), &planned_sends_, &planned_receives_);
    sends_.clear();
    receives_.clear();
    for (const OrderedRounds::Message& m : planned_sends_) {
      sends_.push_back({m.peer, base + m.chunk.begin * width, m.chunk.count * width});
    }
    for (const OrderedRounds::Message& m : planned_receives_) {
      std::byte* place =
          m.summand ? scratch_.data() + m.peer * scratch_stride_ : base + m.chunk.begin * width;
      receives_.push_back({m.peer, place, m.chunk.count * width});
    }
    HYPER_RETURN_IF_ERROR(transport_->Exchange(sends_, receives_));
    const auto [begin, count] = rounds.Owned(k, rank());
    if (count == 0) continue;
    std::byte* own = base + begin * width;
    switch (dtype) {
      case ir::DType::kF32: CombineChunk(reinterpret_cast<float*>(own), count, operation); break;
      case ir::DType::kF64: CombineChunk(reinterpret_cast<double*>(own), count, operation); break;
      default: CombineChunk(reinterpret_cast<int64_t*>(own), count, operation);
    }
  }
  return Status::Ok();
}

Status OrderedCommunicator::AllReduceSum(void* data, int64_t elements, ir::DType dtype) {
  return AllReduce(data, elements, dtype, Operation::kSum);
}

Status OrderedCommunicator::AllReduceMax(void* data, int64_t elements, ir::DType dtype) {
  return AllReduce(data, elements, dtype, Operation::kMax);
}

Status OrderedCommunicator::Broadcast(void* data, int64_t bytes, int root) {
  if (root < 0 || root >= size()) {
    return Internal(fmt::format("broadcast from rank {} of {}", root, size()));
  }
  if (size() == 1 || bytes == 0) return Status::Ok();
  auto* const base = static_cast<std::byte*>(data);
  // Binomial tree over ranks counted from the root: in round `step` the first `step` ranks have
  // the data and each hands it to one more.
  const int place = (rank() - root + size()) % size();
  for (int step = 1; step < size(); step *= 2) {
    if (place < step && place + step < size()) {
      const Outgoing send{(place + step + root) % size(), base, bytes};
      HYPER_RETURN_IF_ERROR(transport_->Exchange({&send, 1}, {}));
    } else if (place >= step && place < 2 * step) {
      const Incoming receive{(place - step + root) % size(), base, bytes};
      HYPER_RETURN_IF_ERROR(transport_->Exchange({}, {&receive, 1}));
    }
  }
  return Status::Ok();
}

Status OrderedCommunicator::Barrier() {
  int64_t nothing = 0;
  return AllReduceSum(&nothing, 1, ir::DType::kI64);
}

Result<std::vector<std::string>> OrderedCommunicator::AllGather(const std::string& text) {
  const size_t ranks = static_cast<size_t>(size());
  std::vector<std::string> texts(ranks);
  std::vector<int64_t> lengths(ranks, 0);
  lengths[static_cast<size_t>(rank())] = static_cast<int64_t>(text.size());
  HYPER_RETURN_IF_ERROR(AllReduceSum(lengths.data(), size(), ir::DType::kI64));
  sends_.clear();
  receives_.clear();
  for (int peer = 0; peer < size(); ++peer) {
    const size_t p = static_cast<size_t>(peer);
    texts[p].resize(static_cast<size_t>(lengths[p]));
    if (peer == rank()) {
      texts[p] = text;
      continue;
    }
    if (!text.empty()) {
      sends_.push_back({peer, reinterpret_cast<const std::byte*>(text.data()),
                        static_cast<int64_t>(text.size())});
    }
    if (lengths[p] > 0) {
      receives_.push_back({peer, reinterpret_cast<std::byte*>(texts[p].data()), lengths[p]});
    }
  }
  HYPER_RETURN_IF_ERROR(transport_->Exchange(sends_, receives_));
  return texts;
}

}  // namespace hyper::runtime
