#include "runtime/data/batch_loader.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace hyper::runtime {
namespace {

// A group of buffers handed over at once, with the error that reading it met.
struct Block {
  std::vector<std::vector<std::byte>> buffers;
  std::vector<std::span<const std::byte>> views;
  Status status;

  void Add(int64_t bytes) { buffers.emplace_back(static_cast<size_t>(bytes)); }
  void MakeViews() {
    for (const std::vector<std::byte>& buffer : buffers) views.emplace_back(buffer);
  }
};

// Blocks filled and emptied in turn; `filled` counts those ready, all guarded by the loader.
struct Ring {
  std::vector<Block> blocks;
  size_t next_fill = 0;
  size_t next_take = 0;
  size_t filled = 0;
  bool held = false;  // the consumer still reads the block before next_take

  bool HasRoom() const { return filled + (held ? 1 : 0) < blocks.size(); }
};

class Loader final : public BatchLoader {
 public:
  Loader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options)
      : dataset_(std::move(dataset)),
        options_(options),
        sampler_(dataset_->samples(), options.seed, options.shuffle),
        position_(options.position) {
    const size_t ahead = static_cast<size_t>(std::max<int64_t>(options_.prefetch, 0));
    // One block is in the consumer's hands.
    batches_.blocks.resize(ahead + 1);
    for (Block& block : batches_.blocks) {
      for (const InputSpec& spec : dataset_->inputs()) {
        block.Add(spec.SampleBytes() * options_.micro_batch);
      }
      block.MakeViews();
    }
    labels_.blocks.resize(ahead > 0 ? 2 : 1);
    for (Block& block : labels_.blocks) {
      for (int64_t i = 0; i < options_.micro_batches; ++i) {
        for (const int input : options_.count_inputs) {
          block.Add(Spec(input).SampleBytes() * options_.micro_batch);
        }
      }
      block.MakeViews();
    }
    if (ahead > 0) thread_ = std::thread([this] { ReadAhead(); });
  }

  ~Loader() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  Result<std::span<const std::span<const std::byte>>> BeginStep() override { return Take(labels_); }
  Result<std::span<const std::span<const std::byte>>> NextMicroBatch() override {
    return Take(batches_);
  }

 private:
  const InputSpec& Spec(int input) const { return dataset_->inputs()[static_cast<size_t>(input)]; }

  Result<std::span<const std::span<const std::byte>>> Take(Ring& ring) {
    std::unique_lock lock(mutex_);
    ring.held = false;
    if (thread_.joinable()) {
      changed_.notify_all();
      changed_.wait(lock, [&] { return ring.filled > 0; });
    } else {
      FillNext(lock);
    }
    const Block& block = ring.blocks[ring.next_take];
    ring.next_take = (ring.next_take + 1) % ring.blocks.size();
    --ring.filled;
    ring.held = true;
    if (!block.status.ok()) return block.status;
    return std::span<const std::span<const std::byte>>(block.views);
  }

  void ReadAhead() {
    std::unique_lock lock(mutex_);
    while (!stop_) FillNext(lock);
  }

  // The next block in the order of consumption: the labels of a step, then its micro-batches.
  void FillNext(std::unique_lock<std::mutex>& lock) {
    const bool labels = micro_ < 0;
    Ring& ring = labels ? labels_ : batches_;
    changed_.wait(lock, [&] { return stop_ || ring.HasRoom(); });
    if (stop_) return;
    Block& block = ring.blocks[ring.next_fill];
    lock.unlock();
    block.status = Guard([&] { return labels ? ReadLabels(block) : ReadMicroBatch(block); });
    lock.lock();
    ring.next_fill = (ring.next_fill + 1) % ring.blocks.size();
    ++ring.filled;
    changed_.notify_all();
    if (++micro_ == options_.micro_batches) {
      micro_ = -1;
      position_ += options_.micro_batch * options_.micro_batches * options_.replicas;
    }
  }

  Status ReadLabels(Block& block) {
    size_t buffer = 0;
    for (int64_t i = 0; i < options_.micro_batches; ++i) {
      for (const int input : options_.count_inputs) {
        HYPER_RETURN_IF_ERROR(ReadInput(input, i, block.buffers[buffer++]));
      }
    }
    return Status::Ok();
  }

  Status ReadMicroBatch(Block& block) {
    for (size_t input = 0; input < dataset_->inputs().size(); ++input) {
      HYPER_RETURN_IF_ERROR(ReadInput(static_cast<int>(input), micro_, block.buffers[input]));
    }
    return Status::Ok();
  }

  Status ReadInput(int input, int64_t micro, std::vector<std::byte>& out) {
    const int64_t bytes = Spec(input).SampleBytes();
    const int64_t slice = options_.replica * options_.micro_batches + micro;
    const int64_t first = position_ + slice * options_.micro_batch;
    for (int64_t i = 0; i < options_.micro_batch; ++i) {
      HYPER_RETURN_IF_ERROR(dataset_->Read(input, sampler_.At(first + i), out.data() + i * bytes));
    }
    return Status::Ok();
  }

  const std::shared_ptr<const Dataset> dataset_;
  const LoaderOptions options_;
  // Used by the one thread that reads.
  Sampler sampler_;
  int64_t position_;    // stream position of the step being read
  int64_t micro_ = -1;  // micro-batch to read next; -1: the labels of the step

  std::mutex mutex_;
  std::condition_variable changed_;
  Ring labels_;  // guarded by mutex_, block contents by turns
  Ring batches_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<BatchLoader> BatchLoader::Create(std::shared_ptr<const Dataset> dataset,
                                                 const LoaderOptions& options) {
  return std::make_unique<Loader>(std::move(dataset), options);
}

}  // namespace hyper::runtime
