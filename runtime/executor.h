// Runs the subprograms of one rank: resolves every instruction to a prepared kernel once, then
// executes without allocating. One Executor per rank; not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "codegen/bundle.h"
#include "codegen/program.pb.h"
#include "runtime/poison.h"
#include "runtime/team.h"

namespace hyper::runtime {

// One zeroed block of memory, 64-byte aligned (huge pages where possible).
class Arena {
 public:
  static Result<std::unique_ptr<Arena>> Create(int64_t bytes);
  ~Arena();
  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  Arena(char* data, int64_t bytes, int64_t mapped) : data_(data), bytes_(bytes), mapped_(mapped) {}
  char* data_;
  int64_t bytes_;
  int64_t mapped_;
};

// An instruction ready to run: all addresses and algorithms decided.
class PreparedKernel {
 public:
  virtual ~PreparedKernel() = default;
  // kInternal or kResourceExhausted only; must not allocate after the first call.
  virtual Status Run(const Team& team) = 0;
};

struct ExecutorOptions {
  int threads = 1;
  bool reference_kernels = false;  // run library calls by reference kernels too
  bool poison = false;             // test mode: fill dead ranges and guards, check what is touched
};

// Times of one instruction for traces; nanoseconds of a steady clock.
struct InstructionTime {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

class Executor {
 public:
  // kResourceExhausted: more threads than the bundle is planned for, or a library kernel that needs
  // more workspace here than planned; both with the numbers. kFailedPrecondition: this process's
  // math library is fixed to another instruction set.
  static Result<std::unique_ptr<Executor>> Create(const codegen::BundleReader& bundle,
                                                  const ExecutorOptions& options);
  virtual ~Executor() = default;

  // `on_marker(bucket)` is called on the executor's thread when a marker is reached; empty: markers
  // are skipped (all micro-batches but the last).
  virtual Status Run(const std::string& subprogram,
                     const std::function<void(int bucket)>& on_marker) = 0;
  virtual bool Has(const std::string& subprogram) const = 0;

  virtual const program::Program& program() const = 0;
  virtual char* arena() = 0;
  virtual int64_t arena_bytes() const = 0;
  virtual const Team& team() const = 0;
  // Slot lookup; null when there is none.
  virtual const program::Slot* FindSlot(program::Storage storage, const std::string& name,
                                        const std::string& slot = {}) const = 0;
  // Dense row-major copy out of / into a (possibly strided) place.
  virtual void ReadOperand(const program::Operand& place, std::span<std::byte> row_major) const = 0;
  virtual void WriteOperand(const program::Operand& place,
                            std::span<const std::byte> row_major) = 0;
  // With a non-null sink, every instruction of the following runs is timed into it (resized to the
  // instruction count). Null stops it.
  virtual void SetTimeSink(std::vector<InstructionTime>* sink) = 0;
  // Bytes that reference kernels keep beside the arena for operands that are not dense: 0 but for
  // ExecutorOptions::reference_kernels.
  virtual int64_t staging_bytes() const { return 0; }
  // Test mode (ExecutorOptions::poison): what all subprograms touched in the temporary region.
  virtual PoisonMarks Touched() const { return {}; }
};

}  // namespace hyper::runtime
